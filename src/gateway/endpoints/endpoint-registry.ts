import { type Clock, systemClock } from '../../base/clock.ts'
import type { NameOwners } from '../access/name-rules.ts'
import type { OnlineUsage } from '../records/account-quotas.ts'
import { isInternal } from '../records/domain-name.ts'
import {
  type EndpointAddress,
  type EndpointProtocol,
  internalAddressOf,
} from '../records/endpoint-protocol.ts'
import {
  AwayName,
  AwayNames,
  type DeviceMark,
  DeviceReturn,
  type HeldRequest,
  isSameDevice,
  type NameFacts,
} from './away-name.ts'
import type { AgentEndpoint, Endpoint, EndpointTraffic } from './endpoint.ts'
import { type EndpointPool, isPooled, type PoolAffinity } from './endpoint-pool.ts'
import { HeldRequests, type HeldRequestsLimits } from './held-requests.ts'
import { AddressTable, type NameHolder, type NameState } from './host-table.ts'
import { TrafficTotals } from './traffic-totals.ts'

/** How long requests wait for a device that has gone without a word. */
const HOLD_MS = 10_000
/** A device that binds on and on for longer is waited for no more: its visitors take places of others. */
const RETURN_MS = 300_000
/** For how long the gateway knows of a name that its device is merely away. */
const AWAY_MS = 3_600_000
/** Of how many names it knows that; some hundred bytes each. */
const AWAY_NAMES = 50_000

/** Thrown by `add`: the address has an endpoint already. */
export class EndpointConflictError extends Error {
  override readonly name = 'EndpointConflictError'
  readonly holder: Endpoint

  constructor(holder: Endpoint) {
    super(`${holder.url} is already online`)
    this.holder = holder
  }
}

export interface EndpointRegistryOptions {
  readonly clock?: Clock
  /** How long requests wait for a device that is away; 0: they do not. */
  readonly holdMs?: number | undefined
  readonly held?: Partial<HeldRequestsLimits>
  readonly awayNames?: number
  /** Leads clients back to the member of a pool that they had; unset: the least busy one serves. */
  readonly affinity?: PoolAffinity | undefined
  /** Who owns names; unset: a wildcard answers for every name below it. */
  readonly owners?: Pick<NameOwners, 'mayAnswer'> | undefined
}

/**
 * Which endpoint answers for an address: scheme, host and port. Of hosts the exact name, else the
 * longest wildcard above it. The account that has the nearest name, at whichever entrance, is the only
 * one that answers for a host; a wildcard never answers for a name that is reserved for another account.
 * Internal endpoints stand apart: visitors never find them, policies that forward do. Each account
 * has internal names of its own, so that nobody takes, finds or guesses those of others; what is
 * shared is found by all, after what they have themselves.
 * Endpoints of one account that agree to it share an address: one of the pool answers each time.
 *
 * INVARIANTS
 * - A name is online, away or nobody's. `add` brings it online, `suspend` and `hold` make it away;
 *   `remove` and `forget`, its age and the number of names make it nobody's.
 * - A name that is held hides the wildcards above it; away for longer, it is for those of its account.
 * - A request waits for one name that is away, and hears once that it is so no longer.
 * - An address with a pool is online while one of its members is: one that goes, in whatever way, is
 *   out of it before anybody looks again.
 */
export class EndpointRegistry {
  readonly #clock: Clock
  readonly #holdMs: number
  readonly #affinity: PoolAffinity | undefined
  readonly #owners: Pick<NameOwners, 'mayAnswer'> | undefined
  readonly #public = new AddressTable()
  /** By account; one without internal names has no table. */
  readonly #internal = new Map<string | null, AddressTable>()
  readonly #shared = new AddressTable()
  readonly #byId = new Map<string, Endpoint>()
  /** What devices of bot users have online; only of those that have something. */
  readonly #usage = new Map<string, OnlineUsage>()
  readonly #counting = new Set<EndpointTraffic>()
  /** What went through all endpoints, those that are gone included. */
  readonly totals = new TrafficTotals((traffic) => this.#counting.has(traffic))
  readonly #away: AwayNames
  readonly #held: HeldRequests
  /** Something has left an address, which others may have taken. */
  onLeave: (left: NameState) => void = () => {}
  #revision = 0
  readonly #now = () => this.#clock.monotonic()

  constructor(options: EndpointRegistryOptions = {}) {
    const { clock = systemClock, holdMs = HOLD_MS, awayNames = AWAY_NAMES, held } = options
    this.#affinity = options.affinity
    this.#owners = options.owners
    this.#clock = clock
    this.#holdMs = holdMs
    this.#away = new AwayNames(awayNames)
    this.#held = new HeldRequests(held)
  }

  /** Another number after each change of who has which name. */
  get revision(): number {
    return this.#revision
  }

  /** Endpoints that are online. */
  get size(): number {
    return this.#byId.size
  }

  /** The requests that wait for devices to come back. */
  get held(): Pick<HeldRequests, 'size' | 'bytes' | 'clients'> {
    return this.#held
  }

  /**
   * Throws EndpointConflictError when the account has that host, or somebody shares it already, unless
   * both are for a pool.
   */
  add(endpoint: Endpoint, { isShared = false } = {}): void {
    const before = this.#holderAt(endpoint, endpoint.ownerId)
    const sharer = isShared ? this.#shared.get(endpoint) : undefined
    const conflict = conflictWith(before, endpoint) ?? conflictWith(sharer, endpoint)
    if (conflict) throw new EndpointConflictError(conflict)
    this.#revision += 1
    this.#tableFor(endpoint).set(endpoint)
    if (isShared) this.#shared.set(endpoint)
    this.#byId.set(endpoint.id, endpoint)
    this.#count(endpoint, 1)
    this.#follow(endpoint)
    if (before?.type === 'away') this.forget(before)
  }

  /** What devices of a bot user have online here. */
  usageOf(ownerId: string): OnlineUsage {
    return this.#usage.get(ownerId) ?? { endpoints: 0, policyBytes: 0 }
  }

  #count({ type, ownerId, trafficPolicy }: Endpoint, sign: 1 | -1): void {
    if (type !== 'agent' || ownerId === null) return
    const { endpoints, policyBytes } = this.usageOf(ownerId)
    const bytes = sign * Buffer.byteLength(trafficPolicy ?? '')
    if (endpoints + sign === 0) this.#usage.delete(ownerId)
    else {
      this.#usage.set(ownerId, { endpoints: endpoints + sign, policyBytes: policyBytes + bytes })
    }
  }

  find(id: string): Endpoint | undefined {
    return this.#byId.get(id)
  }

  /** The endpoints on exactly this address, more than one in a pool; internal ones of this account. */
  holdersOf(address: EndpointAddress, ownerId: string | null): Endpoint[] {
    return online(this.#holderAt(address, ownerId))
  }

  /** The internal endpoints on exactly this address that all accounts find. */
  sharersOf(address: EndpointAddress): Endpoint[] {
    return online(this.#shared.get(address))
  }

  /** The name at exactly this address, if its device is away. */
  awayAt(address: EndpointAddress, ownerId: string | null): AwayName | undefined {
    const holder = this.#holderAt(address, ownerId)
    return holder?.type === 'away' ? holder : undefined
  }

  isShared(endpoint: Endpoint): boolean {
    return this.#shared.has(endpoint)
  }

  /** Shares an internal endpoint, or no longer. False when another account shares that name. */
  setShared(endpoint: Endpoint, isShared: boolean): boolean {
    if (this.isShared(endpoint) === isShared) return true
    if (!isShared) return this.#shared.remove(endpoint)
    if (conflictWith(this.#shared.get(endpoint), endpoint)) return false
    this.#shared.set(endpoint)
    return true
  }

  /**
   * Puts a changed endpoint of the same account in the place of what it was, shared as that was.
   * Throws like `add` when its host is taken.
   */
  replace(before: Endpoint, after: Endpoint): void {
    const isShared = this.isShared(before)
    this.remove(before)
    try {
      this.add(after, { isShared })
    } catch (error) {
      this.add(before, { isShared })
      throw error
    }
  }

  /** Gives the name up. False when this very endpoint was not there; another holder of it stays. */
  remove(endpoint: Endpoint): boolean {
    const { id } = endpoint
    if (this.#byId.get(id) === endpoint) {
      this.#byId.delete(id)
      this.#count(endpoint, -1)
      this.#counting.delete(endpoint.traffic)
    }
    return this.#clear(endpoint)
  }

  /**
   * The device of an endpoint is gone and did not give it up; undefined when it was not there, or
   * others serve its address.
   */
  suspend(
    endpoint: AgentEndpoint,
    { credentialId, deviceId, instance }: DeviceMark,
    extraMs = 0,
  ): AwayName | undefined {
    const isShared = this.isShared(endpoint)
    if (!this.remove(endpoint)) return undefined
    const { host, ownerId, protocol, url } = endpoint
    const owner = { ownerId, credentialId, deviceId, instance }
    const drawn = drawnFor(endpoint)
    const facts = { ...owner, host, protocol, url, isShared, drawn, isPooled: isPooled(endpoint) }
    return this.hold(facts, extraMs)
  }

  /**
   * Makes requests wait for a name that was online before, for `extraMs` longer than usual; what is
   * online stays so. Undefined then.
   */
  hold(facts: NameFacts, extraMs = 0): AwayName | undefined {
    const { ownerId, isShared } = facts
    const before = this.#holderAt(facts, ownerId)
    if (before && before.type !== 'away') return undefined
    const now = this.#now()
    const name = new AwayName(facts, now + this.#holdMs + extraMs, now + AWAY_MS)
    this.#revision += 1
    this.#tableFor(name).set(name)
    if (isShared && this.sharersOf(facts).length === 0) this.#shared.set(name)
    if (before) this.forget(before)
    for (const surplus of this.#away.add(name, now)) this.forget(surplus)
    return name
  }

  isAway(name: AwayName): boolean {
    return this.#away.has(name)
  }

  /** True while requests may wait for it. */
  isHeld(name: AwayName): boolean {
    return this.#away.has(name) && name.isHeld(this.#now())
  }

  /** Nobody waits for the name any more; that its device is away is known as before. */
  stopHolding(name: AwayName): void {
    name.hold(this.#now())
  }

  /** The time that requests wait for a name begins now. */
  holdFromNow(name: AwayName): void {
    if (this.#away.has(name)) name.hold(this.#now() + this.#holdMs)
  }

  /** Nobody has the name any more; who waits for it hears of that. */
  forget(name: AwayName): void {
    if (!this.#away.remove(name)) return
    name.returning?.names.delete(name)
    this.#clear(name)
    this.#held.release(name)
  }

  /** Forgets the names that are away and that nobody may bring back. */
  forgetUnless(mayReturn: (name: AwayName) => boolean): void {
    for (const name of [...this.#away.all()]) if (!mayReturn(name)) this.forget(name)
  }

  /**
   * The device is connected again: requests wait for the names that it has not bound yet, for `quietMs`
   * after each sign that it goes on. Several connections of a device take part in one return.
   */
  startReturn(device: DeviceMark & Pick<NameFacts, 'ownerId'>, quietMs: number): DeviceReturn {
    const ofDevice = this.#away.ofDevice(device.ownerId, device.deviceId)
    const names = [...ofDevice].filter((it) => isSameDevice(it, device))
    const known = names.find(({ returning }) => returning && returning.sessions > 0)?.returning
    const found = known ?? new DeviceReturn(this.#now() + RETURN_MS)
    found.goOn(this.#now() + quietMs)
    // Where nobody waits for a device that is away, nobody waits for one that comes back.
    const waits = this.#holdMs > 0
    const fresh = new Set(names.filter((name) => name.returning !== found))
    for (const name of fresh) name.startReturn(found, waits)
    if (fresh.size > 0) found.tellAwaited(this.#hostsAwaited(fresh))
    return found
  }

  /**
   * The device has taken what it wants: of the names that were away when it came, nobody has those that
   * are still so. Those of pools are not its own alone.
   */
  endReturn(device: DeviceReturn): void {
    for (const name of [...device.names]) if (!name.isPooled) this.forget(name)
  }

  /** The names of a device that visitors wait for, the longest wait first. */
  awaitedOf({ names }: DeviceReturn): string[] {
    return this.#hostsAwaited(names)
  }

  #hostsAwaited(names: ReadonlySet<AwayName>): string[] {
    return [...this.#held.names].filter((name) => names.has(name)).map(({ host }) => host)
  }

  /** A connection has ended before the device had all of its names: the hold begins anew. */
  loseReturn(device: DeviceReturn): void {
    device.sessions -= 1
    if (device.sessions > 0) return
    const until = this.#now() + this.#holdMs
    for (const name of [...device.names]) name.loseReturn(until)
  }

  /** Has a request wait for a name; false when it is not held any more, or there is no place. */
  wait(name: AwayName, request: HeldRequest): boolean {
    const isHeld = this.#away.has(name) && name.isHeld(this.#now())
    const isWaiting = isHeld && this.#held.add(name, request)
    if (isWaiting && name.waiting.size === 1) name.returning?.tellAwaited([name.host])
    return isWaiting
  }

  /** The request does not wait any more; it hears nothing. */
  cancel(name: AwayName, request: HeldRequest): void {
    this.#held.remove(name, request)
  }

  /**
   * Who answers for visitors of an address. A plain listener leads to an HTTPS endpoint, too, where
   * no HTTP endpoint is as near. `network` is the visitor's: it may choose the member of a pool.
   */
  match(
    host: string,
    protocol: EndpointProtocol = 'http',
    network?: string,
  ): NameState | undefined {
    const exact = this.#public.get({ protocol, host })
    if (exact && exact.type !== 'away') return this.#choose(exact, network)
    return this.#choose(this.#nearestOf(this.#answering(host, protocol)), network)
  }

  /** The nearest public name that covers a host, online or away: its account has the host. */
  nearest(host: string, protocol: EndpointProtocol): NameHolder | undefined {
    return this.#nearestTo(host, protocol).near
  }

  /** All that may answer for a public host, the nearest first. */
  #answering(host: string, protocol: EndpointProtocol): NameHolder[] {
    const { here, there, near } = this.#nearestTo(host, protocol)
    // A visitor with TLS has come for no endpoint without.
    const found = protocol === 'http' ? byNearness(here, there, host) : here
    return found.filter(
      (holder) =>
        holder.ownerId === near?.ownerId && (this.#owners?.mayAnswer(host, holder) ?? true),
    )
  }

  /** What covers a host at the entrance that is asked, and at the other one of HTTP and HTTPS. */
  #nearestTo(host: string, protocol: EndpointProtocol) {
    const here = [...this.#public.holdersFor({ protocol, host }, this.#now)]
    const other = protocol === 'http' ? 'https' : 'http'
    const there =
      protocol === 'tcp' ? [] : [...this.#public.holdersFor({ protocol: other, host }, this.#now)]
    const near = here[0] && !isNearer(there[0], here[0], host) ? here[0] : there[0]
    return { here, there, near }
  }

  /**
   * An endpoint, or a name whose device was here within the hour, that another account has on the same
   * host: of HTTP, HTTPS and TLS one account has all.
   */
  foreignHolder(
    { protocol, host }: EndpointAddress,
    ownerId: string | null,
  ): NameHolder | undefined {
    if (isInternal(host)) return undefined
    const protocols = protocol === 'tcp' ? (['tcp'] as const) : (['http', 'https'] as const)
    for (const each of protocols) {
      const holder = this.#public.get({ protocol: each, host })
      const isOver = holder?.type === 'away' && this.#now() >= holder.forgottenAt
      if (holder && !isOver && holder.ownerId !== ownerId) return holder
    }
    return undefined
  }

  /** Whether somebody answers for an internal URL; see `matchInternal`. */
  hasInternal(url: URL, ownerId: string | null): boolean {
    return this.#findInternal(url, ownerId) !== undefined
  }

  /**
   * Who answers for an internal URL that a policy of an account names, such as
   * `https://cam.internal`: its own, else one that is shared. That of another account is not there.
   */
  matchInternal(url: URL, ownerId: string | null, network?: string): NameState | undefined {
    return this.#choose(this.#findInternal(url, ownerId), network)
  }

  #findInternal(url: URL, ownerId: string | null): NameHolder | undefined {
    const address = internalAddressOf(url)
    if (!address) return undefined
    const holder =
      this.#nearestOf(this.#internal.get(ownerId)?.holdersFor(address, this.#now)) ??
      this.#nearestOf(this.#shared.holdersFor(address, this.#now))
    return holder?.protocol === address.protocol ? holder : undefined
  }

  /** The nearest that is online or held, else the nearest that is away. */
  #nearestOf(holders: Iterable<NameHolder> = []): NameHolder | undefined {
    let away: NameHolder | undefined
    for (const holder of holders) {
      if (holder.type !== 'away' || holder.isHeld(this.#now())) return holder
      away ??= holder
    }
    return away
  }

  /**
   * Who has the name of an endpoint now: itself, what took it over, what is away, or nobody. Of a pool
   * what took its place, else another member.
   */
  successorOf(endpoint: Endpoint, network?: string): NameState | undefined {
    const { ownerId, poolMember } = endpoint
    const holder = this.#holderAt(endpoint, ownerId)
    if (holder?.ownerId !== ownerId) return undefined
    if (holder.type !== 'pool') return holder
    for (const member of holder) {
      if (member.poolMember === poolMember && member !== endpoint) return member
    }
    return this.#choose(holder, network, endpoint)
  }

  /** The public TCP addresses that somebody has, online or away. */
  tcpAddresses(): Iterable<NameState> {
    return this.#public.allAt('tcp')
  }

  /** The names whose devices are away. */
  allAway(): Iterable<AwayName> {
    return this.#away.all()
  }

  /** Those of one account. */
  awayOf(ownerId: string | null): Iterable<AwayName> {
    return this.#away.all(ownerId)
  }

  /** All that is online. */
  *all(): Generator<Endpoint> {
    for (const table of [this.#public, ...this.#internal.values()]) {
      for (const state of table.all()) if (state.type !== 'away') yield state
    }
  }

  #follow({ traffic, protocol }: Endpoint): void {
    this.totals.follow(traffic, protocol, this.#counting.size)
    this.#counting.add(traffic)
  }

  /** Who has exactly this address, online or away; of internal ones, in this account. */
  #holderAt(address: EndpointAddress, ownerId: string | null): NameHolder | undefined {
    return (isInternal(address.host) ? this.#internal.get(ownerId) : this.#public)?.get(address)
  }

  #choose(
    holder: NameHolder | undefined,
    network: string | undefined,
    except?: Endpoint,
  ): NameState | undefined {
    if (holder?.type !== 'pool') return holder
    return this.#affinity && network !== undefined
      ? this.#affinity.choose(holder, network, except)
      : holder.leastBusy(except)
  }

  #tableFor({ host, ownerId }: NameState): AddressTable {
    if (!isInternal(host)) return this.#public
    const own = this.#internal.get(ownerId) ?? new AddressTable()
    this.#internal.set(ownerId, own)
    return own
  }

  /** False when this very one was not there. */
  #clear(state: NameState): boolean {
    const { host, ownerId } = state
    this.#revision += 1
    this.onLeave(state)
    if (!isInternal(host)) return this.#public.remove(state)
    this.#shared.remove(state)
    const own = this.#internal.get(ownerId)
    const isRemoved = own?.remove(state) ?? false
    if (own?.size === 0) this.#internal.delete(ownerId)
    return isRemoved
  }
}

/** What is kept of an address that the gateway has chosen. */
export function drawnFor({ isDrawn, id, forwardsTo }: AgentEndpoint): NameFacts['drawn'] {
  return isDrawn ? { endpointId: id, forwardsTo } : undefined
}

function online(holder: NameHolder | undefined): Endpoint[] {
  if (!holder || holder.type === 'away') return []
  return holder.type === 'pool' ? [...holder] : [holder]
}

/** Who keeps an endpoint off an address; nobody who pools with it does. */
function conflictWith(holder: NameHolder | undefined, endpoint: Endpoint): Endpoint | undefined {
  if (holder?.type === 'pool' && mayJoin(holder, endpoint)) return undefined
  return online(holder)[0]
}

function mayJoin({ ownerId, protocol }: EndpointPool, endpoint: Endpoint): boolean {
  return isPooled(endpoint) && ownerId === endpoint.ownerId && protocol === endpoint.protocol
}

type Named = { readonly host: string }

/** Whether one name that covers a host is more specific than another. */
export function isNearer(one: Named | undefined, other: Named, host: string): boolean {
  return one !== undefined && nearness(one, host) > nearness(other, host)
}

function nearness({ host: name }: Named, host: string): number {
  return name === host ? Number.POSITIVE_INFINITY : name.length
}

/** Two lists as one, the nearest first; of what is equally near the first list goes first. */
function byNearness(first: NameHolder[], second: NameHolder[], host: string): NameHolder[] {
  return [...first, ...second].sort((a, b) =>
    isNearer(a, b, host) ? -1 : isNearer(b, a, host) ? 1 : 0,
  )
}

import { type Clock, systemClock } from '../../base/clock.ts'
import { REQUEST_DEFAULTS } from '../../settings/gateway-settings.ts'
import type { NameOwners } from '../access/name-rules.ts'
import type { OnlineUsage } from '../records/account-quotas.ts'
import { isInternal } from '../records/domain-name.ts'
import {
  type EndpointAddress,
  type EndpointProtocol,
  internalAddressOf,
} from '../records/endpoint-protocol.ts'
import {
  type DeviceMark,
  DeviceReturn,
  DisconnectedName,
  DisconnectedNames,
  type HeldRequest,
  isSameDevice,
  type NameFacts,
} from './disconnected-name.ts'
import type { AgentEndpoint, Endpoint, EndpointTraffic } from './endpoint.ts'
import { type EndpointPool, isPooled, type PoolAffinity } from './endpoint-pool.ts'
import { HeldRequests, type HeldRequestsLimits } from './held-requests.ts'
import { AddressTable, type NameHolder, type NameState } from './host-table.ts'
import { TrafficTotals } from './traffic-totals.ts'

/**
 * Waiting ends after this time even if the device still binds names, because the waiting visitors take places
 * of others.
 */
const RETURN_MS = 300_000
/** The gateway remembers disconnected names for this long. */
const AWAY_MS = 3_600_000
/** Number of disconnected names that are remembered; some hundred bytes each. */
const AWAY_NAMES = 50_000

/** Thrown by `add` if the address already has an endpoint. */
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
  /** Requests wait this long for a disconnected device; 0: no wait. */
  readonly holdMs?: number | undefined
  readonly held?: Partial<HeldRequestsLimits>
  readonly maxDisconnectedNames?: number
  /** Sends clients back to their previous pool member. Unset: the least busy member serves. */
  readonly affinity?: PoolAffinity | undefined
  /** Owners of names. Unset: a wildcard answers for every name below it. */
  readonly owners?: Pick<NameOwners, 'mayAnswer'> | undefined
}

/**
 * Finds the endpoint that answers for an address (scheme, host and port).
 *
 * For hosts, the exact name wins, then the longest wildcard above it. Only the account with the nearest name,
 * at any ingress type, answers for a host. A wildcard never answers for a name that is reserved for another
 * account.
 *
 * Internal endpoints are separate: policies can forward to them, visitors cannot reach them. Each account has
 * its own internal names, so that it cannot take, reach or guess names of others. Shared endpoints are
 * reachable by all accounts, after the account's own endpoints. Pooled endpoints of an account share an
 * address: one member answers each request.
 *
 * INVARIANTS
 * - A name is online, disconnected or free. `add` brings it online, `suspend` and `hold` make it
 *   disconnected. It becomes free by `remove`, `forget`, its age or the maximum number of names.
 * - A held name hides the wildcards above it. After the hold, wildcards of the same account may answer.
 * - A request waits for one disconnected name and is notified once, when that state ends.
 * - An address with a pool is online while one of its members is online. A member that leaves, for any
 *   reason, is removed from the pool before the next lookup.
 */
export class EndpointRegistry {
  readonly #clock: Clock
  readonly #holdMs: number
  readonly #affinity: PoolAffinity | undefined
  readonly #owners: Pick<NameOwners, 'mayAnswer'> | undefined
  readonly #public = new AddressTable()
  /** By account. An account without internal names has no table. */
  readonly #internal = new Map<string | null, AddressTable>()
  readonly #shared = new AddressTable()
  readonly #byId = new Map<string, Endpoint>()
  /** Usage of online device endpoints by bot user. Bot users without such endpoints have no entry. */
  readonly #usage = new Map<string, OnlineUsage>()
  readonly #counting = new Set<EndpointTraffic>()
  /** Traffic of all endpoints, including removed endpoints. */
  readonly totals = new TrafficTotals((traffic) => this.#counting.has(traffic))
  readonly #disconnected: DisconnectedNames
  readonly #held: HeldRequests
  /** Called when an address is released. Another endpoint may already have it. */
  onLeave: (left: NameState) => void = () => {}
  #revision = 0
  readonly #now = () => this.#clock.monotonic()

  constructor(options: EndpointRegistryOptions = {}) {
    const {
      clock = systemClock,
      holdMs = REQUEST_DEFAULTS.holdMs,
      maxDisconnectedNames = AWAY_NAMES,
      held,
    } = options
    this.#affinity = options.affinity
    this.#owners = options.owners
    this.#clock = clock
    this.#holdMs = holdMs
    this.#disconnected = new DisconnectedNames(maxDisconnectedNames)
    this.#held = new HeldRequests(held)
  }

  /** Changes whenever a name gets another holder. */
  get revision(): number {
    return this.#revision
  }

  /** Number of endpoints that are online. */
  get size(): number {
    return this.#byId.size
  }

  /** Requests that wait for devices to come back. */
  get held(): Pick<HeldRequests, 'size' | 'bytes' | 'clients'> {
    return this.#held
  }

  /**
   * Brings an endpoint online. Throws EndpointConflictError if the account has that host, or an account
   * shares it already, unless both are for a pool.
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
    if (before?.type === 'disconnected') this.forget(before)
  }

  /** Endpoints and policy bytes that devices of a bot user have online here. */
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

  /** Endpoints on exactly this address; several if it is a pool. Internal endpoints: of this account. */
  holdersOf(address: EndpointAddress, ownerId: string | null): Endpoint[] {
    return online(this.#holderAt(address, ownerId))
  }

  /** Internal endpoints on exactly this address that all accounts can reach. */
  sharersOf(address: EndpointAddress): Endpoint[] {
    return online(this.#shared.get(address))
  }

  /** The disconnected name at exactly this address, if there is one. */
  disconnectedAt(address: EndpointAddress, ownerId: string | null): DisconnectedName | undefined {
    const holder = this.#holderAt(address, ownerId)
    return holder?.type === 'disconnected' ? holder : undefined
  }

  isShared(endpoint: Endpoint): boolean {
    return this.#shared.has(endpoint)
  }

  /** Starts or stops sharing an internal endpoint. Returns false if another account shares that name. */
  setShared(endpoint: Endpoint, isShared: boolean): boolean {
    if (this.isShared(endpoint) === isShared) return true
    if (!isShared) return this.#shared.remove(endpoint)
    if (conflictWith(this.#shared.get(endpoint), endpoint)) return false
    this.#shared.set(endpoint)
    return true
  }

  /**
   * Replaces an endpoint by a changed version of the same account, shared as before. Throws like `add` if its
   * host is taken.
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

  /**
   * Releases the name. Returns false if this very endpoint was not present; another holder of the name stays.
   */
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
   * Marks the name of an endpoint as disconnected, because its device is gone without releasing it. Returns
   * undefined if the endpoint was not present, or if others serve its address.
   */
  suspend(
    endpoint: AgentEndpoint,
    { credentialId, deviceId, instance }: DeviceMark,
    extraMs = 0,
  ): DisconnectedName | undefined {
    const isShared = this.isShared(endpoint)
    if (!this.remove(endpoint)) return undefined
    const { host, ownerId, protocol, url } = endpoint
    const owner = { ownerId, credentialId, deviceId, instance }
    const drawn = drawnFor(endpoint)
    const facts = { ...owner, host, protocol, url, isShared, drawn, isPooled: isPooled(endpoint) }
    return this.hold(facts, extraMs)
  }

  /**
   * Makes requests wait for a name that was online before, `extraMs` longer than usual. Returns undefined if
   * an endpoint is online there: it stays online.
   */
  hold(facts: NameFacts, extraMs = 0): DisconnectedName | undefined {
    const { ownerId, isShared } = facts
    const before = this.#holderAt(facts, ownerId)
    if (before && before.type !== 'disconnected') return undefined
    const now = this.#now()
    const name = new DisconnectedName(facts, now + this.#holdMs + extraMs, now + AWAY_MS)
    this.#revision += 1
    this.#tableFor(name).set(name)
    if (isShared && this.sharersOf(facts).length === 0) this.#shared.set(name)
    if (before) this.forget(before)
    for (const surplus of this.#disconnected.add(name, now)) this.forget(surplus)
    return name
  }

  isAway(name: DisconnectedName): boolean {
    return this.#disconnected.has(name)
  }

  /** Whether requests may wait for the name. */
  isHeld(name: DisconnectedName): boolean {
    return this.#disconnected.has(name) && name.isHeld(this.#now())
  }

  /** Ends the hold: requests no longer wait. The name stays remembered as disconnected. */
  stopHolding(name: DisconnectedName): void {
    name.hold(this.#now())
  }

  /** Restarts the hold of a name. */
  holdFromNow(name: DisconnectedName): void {
    if (this.#disconnected.has(name)) name.hold(this.#now() + this.#holdMs)
  }

  /** Frees the name and notifies the requests that wait for it. */
  forget(name: DisconnectedName): void {
    if (!this.#disconnected.remove(name)) return
    name.returning?.names.delete(name)
    this.#clear(name)
    this.#held.release(name)
  }

  /** Forgets the disconnected names that no device may bring back. */
  forgetUnless(mayReturn: (name: DisconnectedName) => boolean): void {
    for (const name of [...this.#disconnected.all()]) if (!mayReturn(name)) this.forget(name)
  }

  /**
   * Starts the return of a connected device. Requests wait for names that it has not bound yet, for `quietMs`
   * after each sign of progress. Several connections of a device take part in one return.
   */
  startReturn(device: DeviceMark & Pick<NameFacts, 'ownerId'>, quietMs: number): DeviceReturn {
    const ofDevice = this.#disconnected.ofDevice(device.ownerId, device.deviceId)
    const names = [...ofDevice].filter((it) => isSameDevice(it, device))
    const known = names.find(({ returning }) => returning && returning.sessions > 0)?.returning
    const found = known ?? new DeviceReturn(this.#now() + RETURN_MS)
    found.goOn(this.#now() + quietMs)
    // If requests do not wait for disconnected devices, they do not wait for returning devices either.
    const waits = this.#holdMs > 0
    const fresh = new Set(names.filter((name) => name.returning !== found))
    for (const name of fresh) name.startReturn(found, waits)
    if (fresh.size > 0) found.tellAwaited(this.#hostsAwaited(fresh))
    return found
  }

  /**
   * The device has bound all names it wants. Its names that are still disconnected become free. Names of
   * pools stay, because they are not the device's alone.
   */
  endReturn(device: DeviceReturn): void {
    for (const name of [...device.names]) if (!name.isPooled) this.forget(name)
  }

  /**
   * Another gateway reports that the device has bound all names it wants. Its disconnected names here become
   * free, unless a connection of the device is returning here.
   */
  endReturnElsewhere(device: DeviceMark & Pick<NameFacts, 'ownerId'>): void {
    for (const name of [...this.#disconnected.ofDevice(device.ownerId, device.deviceId)]) {
      const isReturningHere = name.returning !== undefined && name.returning.sessions > 0
      if (isSameDevice(name, device) && !name.isPooled && !isReturningHere) this.forget(name)
    }
  }

  /** Names of a device that visitors wait for, the longest wait first. */
  awaitedOf({ names }: DeviceReturn): string[] {
    return this.#hostsAwaited(names)
  }

  #hostsAwaited(names: ReadonlySet<DisconnectedName>): string[] {
    return [...this.#held.names].filter((name) => names.has(name)).map(({ host }) => host)
  }

  /** A connection ended before the device had bound all of its names: the hold starts again. */
  loseReturn(device: DeviceReturn): void {
    device.sessions -= 1
    if (device.sessions > 0) return
    const until = this.#now() + this.#holdMs
    for (const name of [...device.names]) name.loseReturn(until)
  }

  /**
   * Makes a request wait for a name. Returns false if the name is no longer held, or the limit is reached.
   */
  wait(name: DisconnectedName, request: HeldRequest): boolean {
    const isHeld = this.#disconnected.has(name) && name.isHeld(this.#now())
    const isWaiting = isHeld && this.#held.add(name, request)
    if (isWaiting && name.waiting.size === 1) name.returning?.tellAwaited([name.host])
    return isWaiting
  }

  /** Stops the wait of a request without notifying it. */
  cancel(name: DisconnectedName, request: HeldRequest): void {
    this.#held.remove(name, request)
  }

  /**
   * Finds the endpoint that answers visitors of an address. Plain HTTP also leads to an HTTPS endpoint if no
   * HTTP endpoint is as near. `network` is the visitor's and may decide the member of a pool.
   */
  match(
    host: string,
    protocol: EndpointProtocol = 'http',
    network?: string,
  ): NameState | undefined {
    const exact = this.#public.get({ protocol, host })
    if (exact && exact.type !== 'disconnected') return this.#choose(exact, network)
    const secure = exact || protocol !== 'http' ? undefined : this.#secureAt(host)
    if (secure) return this.#choose(secure, network)
    return this.#choose(this.#nearestOf(this.#answering(host, protocol)), network)
  }

  /** An endpoint with TLS on exactly this host, which is nearer than any wildcard. */
  #secureAt(host: string): NameHolder | undefined {
    const holder = this.#public.get({ protocol: 'https', host })
    if (!holder || holder.type === 'disconnected') return undefined
    return (this.#owners?.mayAnswer(host, holder) ?? true) ? holder : undefined
  }

  /** The nearest public name that covers a host, online or disconnected. The host belongs to its account. */
  nearest(host: string, protocol: EndpointProtocol): NameHolder | undefined {
    return this.#nearestTo(host, protocol).near
  }

  /** All holders that may answer for a public host, the nearest first. */
  #answering(host: string, protocol: EndpointProtocol): NameHolder[] {
    const { here, there, near } = this.#nearestTo(host, protocol)
    // A visitor with TLS is never sent to an endpoint without TLS.
    const found = protocol === 'http' ? byNearness(here, there, host) : here
    return found.filter(
      (holder) =>
        holder.ownerId === near?.ownerId && (this.#owners?.mayAnswer(host, holder) ?? true),
    )
  }

  /** Names that cover a host at the requested ingress type, and at the other one of HTTP and HTTPS. */
  #nearestTo(host: string, protocol: EndpointProtocol) {
    const here = [...this.#public.holdersFor({ protocol, host }, this.#now)]
    const other = protocol === 'http' ? 'https' : 'http'
    const there =
      protocol === 'tcp' ? [] : [...this.#public.holdersFor({ protocol: other, host }, this.#now)]
    const near = here[0] && !isNearer(there[0], here[0], host) ? here[0] : there[0]
    return { here, there, near }
  }

  /**
   * An endpoint or disconnected name of another account on the same host. Disconnected names count for an
   * hour. All HTTP, HTTPS and TLS endpoints of a host belong to one account.
   */
  foreignHolder(
    { protocol, host }: EndpointAddress,
    ownerId: string | null,
  ): NameHolder | undefined {
    if (isInternal(host)) return undefined
    const protocols = protocol === 'tcp' ? (['tcp'] as const) : (['http', 'https'] as const)
    for (const each of protocols) {
      const holder = this.#public.get({ protocol: each, host })
      const isOver = holder?.type === 'disconnected' && this.#now() >= holder.forgottenAt
      if (holder && !isOver && holder.ownerId !== ownerId) return holder
    }
    return undefined
  }

  /** Whether an endpoint answers for an internal URL; see `matchInternal`. */
  hasInternal(url: URL, ownerId: string | null): boolean {
    return this.#findInternal(url, ownerId) !== undefined
  }

  /**
   * Finds the endpoint for an internal URL in a policy of an account, such as `https://cam.internal`. The
   * account's own endpoint comes first, then a shared endpoint. Endpoints of other accounts are not found.
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

  /** The nearest that is online or held, else the nearest that is disconnected. */
  #nearestOf(holders: Iterable<NameHolder> = []): NameHolder | undefined {
    let away: NameHolder | undefined
    for (const holder of holders) {
      if (holder.type !== 'disconnected' || holder.isHeld(this.#now())) return holder
      away ??= holder
    }
    return away
  }

  /**
   * Finds the current holder of an endpoint's name: the endpoint itself, its replacement, or a disconnected
   * name. In a pool: its replacement, else another member. Undefined if the name is free.
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

  /** Public TCP addresses in use, online or disconnected. */
  tcpAddresses(): Iterable<NameState> {
    return this.#public.allAt('tcp')
  }

  /** All disconnected names. */
  allDisconnected(): Iterable<DisconnectedName> {
    return this.#disconnected.all()
  }

  /** Disconnected names of one account. */
  disconnectedOf(ownerId: string | null): Iterable<DisconnectedName> {
    return this.#disconnected.all(ownerId)
  }

  /** All endpoints that are online. */
  *all(): Generator<Endpoint> {
    for (const table of [this.#public, ...this.#internal.values()]) {
      for (const state of table.all()) if (state.type !== 'disconnected') yield state
    }
  }

  #follow({ traffic, protocol, url }: Endpoint): void {
    this.totals.follow(traffic, { protocol, url }, this.#counting.size)
    this.#counting.add(traffic)
  }

  /** Holder of exactly this address, online or disconnected. Internal addresses: of this account. */
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

  /** Returns false if this very object was not present. */
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

/** Facts to remember if the gateway has chosen the address. */
export function drawnFor({ isDrawn, id, forwardsTo }: AgentEndpoint): NameFacts['drawn'] {
  return isDrawn ? { endpointId: id, forwardsTo } : undefined
}

function online(holder: NameHolder | undefined): Endpoint[] {
  if (!holder || holder.type === 'disconnected') return []
  return holder.type === 'pool' ? [...holder] : [holder]
}

/** The endpoint that prevents another from using an address. Members of the same pool do not conflict. */
function conflictWith(holder: NameHolder | undefined, endpoint: Endpoint): Endpoint | undefined {
  if (holder?.type === 'pool' && mayJoin(holder, endpoint)) return undefined
  return online(holder)[0]
}

function mayJoin({ ownerId, protocol }: EndpointPool, endpoint: Endpoint): boolean {
  return isPooled(endpoint) && ownerId === endpoint.ownerId && protocol === endpoint.protocol
}

type Named = { readonly host: string }

/** Whether the first name is more specific than the second. Both cover the host. */
export function isNearer(one: Named | undefined, other: Named, host: string): boolean {
  return one !== undefined && nearness(one, host) > nearness(other, host)
}

function nearness({ host: name }: Named, host: string): number {
  return name === host ? Number.POSITIVE_INFINITY : name.length
}

/** Merges two lists, the nearest first. Between equally near holders, the first list goes first. */
function byNearness(first: NameHolder[], second: NameHolder[], host: string): NameHolder[] {
  return [...first, ...second].sort((a, b) =>
    isNearer(a, b, host) ? -1 : isNearer(b, a, host) ? 1 : 0,
  )
}

import type { Clock } from '../../base/clock.ts'
import type { NameOwners } from '../access/name-rules.ts'
import { isInternal } from '../records/domain-name.ts'
import {
  type EndpointAddress,
  type EndpointProtocol,
  type Entrance,
  entranceOf,
  internalAddressOf,
} from '../records/endpoint-protocol.ts'
import { AwayName, type HeldRequest } from './away-name.ts'
import type { Endpoint } from './endpoint.ts'
import { type EndpointRegistry, isNearer } from './endpoint-registry.ts'
import { HeldRequests } from './held-requests.ts'
import type { NameState } from './host-table.ts'

/** How long nobody waits again for a home that was waited for in vain, unless something changes. */
const REST_MS = 5_000
const CAPACITY = 10_000

/**
 * Homes at other nodes that cannot be reached, or have said that they are none: who wants to go there
 * waits, as for a device that is away, until its node can be reached, the name has another home, or
 * the time is up.
 */
export class UnreachedHomes {
  readonly #holdMs: number
  readonly #held = new HeldRequests()
  /** Oldest first. */
  readonly #names = new Map<string, { readonly home: RemoteHome; readonly away: AwayName }>()
  readonly #aways = new Set<AwayName>()

  constructor(holdMs: number) {
    this.#holdMs = holdMs
  }

  get size(): number {
    return this.#names.size
  }

  /** Requests that wait. */
  get waiting(): number {
    return this.#held.size
  }

  has(name: AwayName): boolean {
    return this.#aways.has(name)
  }

  /** The name to wait for, in place of its home; `now` is monotonic. */
  hold(home: RemoteHome, now: number): AwayName {
    const key = keyOf(home)
    const known = this.#names.get(key)
    if (known && known.home.nodeId === home.nodeId && now < known.away.forgottenAt)
      return known.away
    if (known) this.#forget(key)
    const [oldest] = this.#names.size >= CAPACITY ? this.#names.keys() : []
    if (oldest !== undefined) this.#forget(oldest)
    const until = now + this.#holdMs
    const { protocol, host, url, ownerId } = home
    const facts = { protocol, host, url, ownerId, isShared: false, credentialId: '' }
    const away = new AwayName(facts, until, until + REST_MS)
    this.#names.set(key, { home, away })
    this.#aways.add(away)
    return away
  }

  /** False when the time is up, or there is no place. */
  wait(name: AwayName, request: HeldRequest, now: number): boolean {
    return name.isHeld(now) && this.#held.add(name, request)
  }

  cancel(name: AwayName, request: HeldRequest): void {
    this.#held.remove(name, request)
  }

  /** Lets all go that may have somewhere to go now. */
  release(isChanged: (home: RemoteHome) => boolean): void {
    for (const [key, { home }] of [...this.#names]) if (isChanged(home)) this.#forget(key)
  }

  #forget(key: string): void {
    const known = this.#names.get(key)
    if (!known) return
    this.#names.delete(key)
    this.#aways.delete(known.away)
    this.#held.release(known.away)
  }
}

function keyOf({ protocol, host, ownerId }: RemoteHome): string {
  return `${protocol} ${host} ${ownerId ?? ''}`
}

/** A name whose endpoint is at home at another node. */
export interface RemoteHome extends EndpointAddress {
  readonly type: 'remote'
  readonly nodeId: string
  /** As its owner was told. */
  readonly url: string
  readonly ownerId: string | null
  /** TLS of its visitors ends at its home, because its policy says how. */
  readonly endsTls: boolean
}

/** Where in a cluster the endpoints are, as far as this node knows. It never waits for anybody. */
export interface Homes {
  /**
   * Who serves visitors of a host at an entrance, by the exact name, else by the longest wildcard
   * above it. Undefined: this node, or nobody.
   */
  find(entrance: Entrance, host: string): RemoteHome | undefined
  /** A name that this node is about to open: whoever comes sooner waits for that. */
  coming?(entrance: Entrance, host: string, ownerId: string | null): RemoteHome | undefined
  /** The same as `find` for policies of an account: an internal name of its own, else one that is shared. */
  findInternal(entrance: Entrance, host: string, ownerId: string | null): RemoteHome | undefined
}

/**
 * Whether a node may serve an endpoint that it has. `unsure`: nobody knows yet, and whoever comes waits;
 * `none`: it is for another node.
 */
export type Tenure = 'firm' | 'unsure' | 'none'

/** What a node may serve, at this moment; asked for each visitor, and never waits. */
interface Tenures {
  readonly nodeId: string
  of(endpoint: Endpoint): Tenure
}

const HOLD_MS = 10_000

/** Who answers for a name: here, or at another node. */
export type Route = NameState | RemoteHome

/** The account that a request, or a connection, has waited for or gone to. */
export type RouteAccount = Pick<Route, 'ownerId'>

/** What is found again for a request, as far as it is of the same account: a request moves to no other. */
export function ofSameAccount<Found extends RouteAccount>(
  found: Found | undefined,
  before: RouteAccount | undefined,
): Found | undefined {
  return before && found?.ownerId !== before.ownerId ? undefined : found
}

/** Where requests go, and wait. A registry is that by itself, where there is one node alone. */
export interface Routes {
  /** See `EndpointRegistry`, as for the others. */
  match(host: string, protocol?: EndpointProtocol, network?: string): Route | undefined
  matchInternal(url: URL, ownerId: string | null, network?: string): Route | undefined
  hasInternal(url: URL, ownerId: string | null): boolean
  successorOf(endpoint: Endpoint, network?: string): Route | undefined
  wait(name: AwayName, request: HeldRequest): boolean
  cancel(name: AwayName, request: HeldRequest): void
  /** Where to wait for a home that cannot be reached; absent where there are no others. */
  holdHome?(home: RemoteHome): AwayName
}

/** Where only what is served here counts. */
export interface OwnRoutes extends Routes {
  match(host: string, protocol?: EndpointProtocol, network?: string): NameState | undefined
  matchInternal(url: URL, ownerId: string | null, network?: string): NameState | undefined
}

export interface ClusterRoutesOptions {
  readonly registry: EndpointRegistry
  readonly homes: Homes
  readonly tenures: Tenures
  /** Who owns names; see `EndpointRegistryOptions`. */
  readonly owners?: Pick<NameOwners, 'mayAnswer'> | undefined
  readonly clock: Clock
  /** How long requests wait for a home that cannot be reached. */
  readonly holdMs?: number | undefined
}

/**
 * The routes of a node of several. What is served here is found without asking where it is.
 *
 * INVARIANT: nobody is led to an endpoint of this node, and counted there, that it may not serve.
 */
export class ClusterRoutes implements Routes {
  readonly #registry: EndpointRegistry
  readonly #homes: Homes
  readonly #tenures: Tenures
  readonly #owners: Pick<NameOwners, 'mayAnswer'> | undefined
  readonly #clock: Clock
  readonly #unreached: UnreachedHomes

  constructor({ registry, homes, tenures, owners, clock, holdMs = HOLD_MS }: ClusterRoutesOptions) {
    this.#owners = owners
    this.#tenures = tenures
    this.#registry = registry
    this.#homes = homes
    this.#clock = clock
    this.#unreached = new UnreachedHomes(holdMs)
  }

  /** Requests that wait for homes that cannot be reached. */
  get waiting(): number {
    return this.#unreached.waiting
  }

  match(host: string, protocol: EndpointProtocol = 'http', network?: string): Route | undefined {
    const own = this.#registry.match(host, protocol, network)
    if (own && own.type !== 'away' && own.host === host) return this.#lead(own)
    const elsewhere = this.#findElsewhere(host, protocol)
    const isForeign = own && !this.#mayAnswer(own, host, protocol)
    const mine = isForeign ? undefined : own
    if (elsewhere && isElsewhere(elsewhere, mine, host, this.#clock)) return elsewhere
    return this.#lead(mine) ?? this.#awaitOpening(host, protocol)
  }

  /** The nearest home at other nodes. A plain listener leads to an HTTPS endpoint, too. */
  #findElsewhere(host: string, protocol: EndpointProtocol): RemoteHome | undefined {
    const entrance = entranceOf(protocol)
    const found = this.#homes.find(entrance, host)
    const secure = entrance === 'http' ? this.#homes.find('https', host) : undefined
    const home = found && !isNearer(secure, found, host) ? found : secure
    return home && this.#mayAnswer(home, host, protocol) ? home : undefined
  }

  /** One account answers for a host at all nodes: the one that has the nearest name. */
  #mayAnswer(route: Route, host: string, protocol: EndpointProtocol): boolean {
    if (route.host === host) return true
    const entrance = entranceOf(protocol)
    const other = entrance === 'http' ? 'https' : 'http'
    const homes = [this.#homes.find(entrance, host), this.#homes.find(other, host)]
    for (const name of [this.#registry.nearest(host, protocol), ...homes]) {
      if (isNearer(name, route, host) && name?.ownerId !== route.ownerId) return false
    }
    return this.#owners?.mayAnswer(host, route) ?? true
  }

  matchInternal(url: URL, ownerId: string | null, network?: string): Route | undefined {
    const own = this.#registry.matchInternal(url, ownerId, network)
    if (own && own.type !== 'away' && own.ownerId === ownerId) return this.#lead(own)
    const elsewhere = this.#findInternal(url, ownerId)
    // What is shared comes after what the account has itself, wherever that is.
    const isOwn = elsewhere?.ownerId === ownerId
    return elsewhere && (!own || own.type === 'away' || isOwn)
      ? elsewhere
      : (this.#lead(own) ?? this.#awaitInternal(url, ownerId))
  }

  hasInternal(url: URL, ownerId: string | null): boolean {
    return (
      this.#registry.hasInternal(url, ownerId) || this.#findInternal(url, ownerId) !== undefined
    )
  }

  /** What was lost here may have come back at another node. */
  successorOf(endpoint: Endpoint, network?: string): Route | undefined {
    const own = this.#registry.successorOf(endpoint, network)
    if (own && own.type !== 'away') return this.#lead(own)
    const { protocol, host, ownerId } = endpoint
    if (isInternal(host)) {
      return this.#homes.findInternal(entranceOf(protocol), host, ownerId) ?? own
    }
    const elsewhere = this.#homes.find(entranceOf(protocol), host)
    return elsewhere?.host === host && elsewhere.ownerId === ownerId ? elsewhere : own
  }

  wait(name: AwayName, request: HeldRequest): boolean {
    return this.#unreached.has(name)
      ? this.#unreached.wait(name, request, this.#clock.monotonic())
      : this.#registry.wait(name, request)
  }

  cancel(name: AwayName, request: HeldRequest): void {
    if (this.#unreached.has(name)) this.#unreached.cancel(name, request)
    else this.#registry.cancel(name, request)
  }

  holdHome(home: RemoteHome): AwayName {
    return this.#unreached.hold(home, this.#clock.monotonic())
  }

  /** What this node may serve may be another from now on. */
  onSettled(): void {
    this.onNodeUp(this.#tenures.nodeId)
  }

  /** A node can be reached from now on. */
  onNodeUp(nodeId: string): void {
    this.#unreached.release((home) => home.nodeId === nodeId)
  }

  /** A name has another home, or none. */
  onHomeChange(host: string): void {
    this.#unreached.release((home) => home.host === host)
  }

  /** Those whom another node has sent here: what this one may not serve is not there for them. */
  readonly forPeers: OwnRoutes = {
    match: (host, protocol = 'http', network) =>
      this.#admit(this.#registry.match(host, protocol, network)) ??
      this.#awaitOpening(host, protocol),
    matchInternal: (url, ownerId, network) =>
      this.#admit(this.#registry.matchInternal(url, ownerId, network)) ??
      this.#awaitInternal(url, ownerId),
    hasInternal: (...asked) => this.#registry.hasInternal(...asked),
    successorOf: (...asked) => this.#admit(this.#registry.successorOf(...asked)),
    wait: (...asked) => this.wait(...asked),
    cancel: (...asked) => this.cancel(...asked),
  }

  /** A name whose claim is here, or on its way, before it is open. */
  #awaitOpening(host: string, protocol: EndpointProtocol, ownerId: string | null = null) {
    const entrance = entranceOf(protocol)
    const home =
      this.#homes.coming?.(entrance, host, ownerId) ??
      // See `match`.
      (entrance === 'http' ? this.#homes.coming?.('https', host, ownerId) : undefined)
    return home && this.holdHome(home)
  }

  #awaitInternal(url: URL, ownerId: string | null): AwayName | undefined {
    const address = internalAddressOf(url)
    if (!address) return undefined
    const home = this.#homes.coming?.(entranceOf(address.protocol), address.host, ownerId)
    return home && this.holdHome(home)
  }

  #admit(own: NameState | undefined): NameState | undefined {
    if (!own || own.type === 'away') return own
    const tenure = this.#tenures.of(own)
    if (tenure === 'none') return undefined
    return tenure === 'unsure' ? this.#holdHere(own) : own
  }

  /** To what is here, as far as it may be served; else to where it is, or to wait for that. */
  #lead(own: NameState | undefined): Route | undefined {
    if (!own || own.type === 'away' || this.#tenures.of(own) === 'firm') return own
    return this.#homeOf(own) ?? this.#holdHere(own)
  }

  #holdHere({ protocol, host, url, ownerId }: Endpoint): AwayName {
    const { nodeId } = this.#tenures
    return this.holdHome({
      ...{ type: 'remote', nodeId, protocol, host, url, ownerId, endsTls: false },
    })
  }

  #homeOf({ protocol, host, ownerId }: Endpoint): RemoteHome | undefined {
    const entrance = entranceOf(protocol)
    const home = isInternal(host)
      ? this.#homes.findInternal(entrance, host, ownerId)
      : this.#homes.find(entrance, host)
    return home?.host === host && home.ownerId === ownerId ? home : undefined
  }

  #findInternal(url: URL, ownerId: string | null): RemoteHome | undefined {
    const address = internalAddressOf(url)
    if (!address) return undefined
    const { protocol, host } = address
    const home = this.#homes.findInternal(entranceOf(protocol), host, ownerId)
    // At the entrance of HTTPS there may be an endpoint of TLS.
    return home?.protocol === protocol ? home : undefined
  }
}

/** Whether a home elsewhere is to serve a host, and not what there is here. */
function isElsewhere(
  elsewhere: RemoteHome,
  own: NameState | undefined,
  host: string,
  clock: Clock,
): boolean {
  if (!own || elsewhere.host === host || elsewhere.host.length > own.host.length) return true
  // A name that is held hides the wildcards above it, as it does where there is one node.
  if (own.type === 'away') return elsewhere.host === own.host || !own.isHeld(clock.monotonic())
  return false
}

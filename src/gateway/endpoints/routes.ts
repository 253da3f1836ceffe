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

/**
 * After an unsuccessful wait for an unreachable node, requests do not wait again for this long, unless the
 * state changes.
 */
const REST_MS = 5_000
/** Maximum number of unreachable names; the oldest is dropped first. */
const CAPACITY = 10_000

/**
 * Names of endpoints on other nodes that are unreachable, or that reported that they do not serve them.
 * Requests wait as for a disconnected device. The wait ends when the node is reachable, another node serves
 * the name, or the time is up.
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

  /** Number of waiting requests. */
  get waiting(): number {
    return this.#held.size
  }

  has(name: AwayName): boolean {
    return this.#aways.has(name)
  }

  /** Returns the name to wait for instead of the remote endpoint. `now` is monotonic. */
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

  /** Returns false if the time is up, or there is no room. */
  wait(name: AwayName, request: HeldRequest, now: number): boolean {
    return name.isHeld(now) && this.#held.add(name, request)
  }

  cancel(name: AwayName, request: HeldRequest): void {
    this.#held.remove(name, request)
  }

  /** Releases all requests whose remote endpoint may be reachable now. */
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

/** A name whose endpoint is on another node. */
export interface RemoteHome extends EndpointAddress {
  readonly type: 'remote'
  readonly nodeId: string
  /** As reported to its owner. */
  readonly url: string
  readonly ownerId: string | null
  /** The serving node terminates TLS, because the endpoint's policy configures it. */
  readonly endsTls: boolean
}

/** Endpoints of other nodes, as far as this node knows. Synchronous. */
export interface Homes {
  /**
   * Finds the node that serves visitors of a host at an ingress type: by exact name, else by the
   * longest wildcard above it. Undefined: this node serves it, or the name is free.
   */
  find(entrance: Entrance, host: string): RemoteHome | undefined
  /** A name that this node is about to open. Earlier requests wait for it. */
  coming?(entrance: Entrance, host: string, ownerId: string | null): RemoteHome | undefined
  /** Like `find`, for policies of an account: its own internal name first, then a shared name. */
  findInternal(entrance: Entrance, host: string, ownerId: string | null): RemoteHome | undefined
}

/**
 * Whether this node may serve an endpoint that it has. `unsure`: not known yet, requests wait. `none`:
 * another node serves it.
 */
export type Tenure = 'firm' | 'unsure' | 'none'

/** Rights of this node to serve endpoints, at this moment. Called for each visitor; synchronous. */
interface Tenures {
  readonly nodeId: string
  of(endpoint: Endpoint): Tenure
}

/** Default wait for an unreachable node, in milliseconds. */
const HOLD_MS = 10_000

/** Destination of a request, at this node or another node. */
export type Route = NameState | RemoteHome

/** Account that a request or connection has waited for or gone to. */
export type RouteAccount = Pick<Route, 'ownerId'>

/**
 * Returns a repeated lookup only if it belongs to the same account: a request never moves to another account.
 */
export function ofSameAccount<Found extends RouteAccount>(
  found: Found | undefined,
  before: RouteAccount | undefined,
): Found | undefined {
  return before && found?.ownerId !== before.ownerId ? undefined : found
}

/** Routes of requests and their waits. On a single node, EndpointRegistry implements this. */
export interface Routes {
  /** See `EndpointRegistry`, also for the other members. */
  match(host: string, protocol?: EndpointProtocol, network?: string): Route | undefined
  matchInternal(url: URL, ownerId: string | null, network?: string): Route | undefined
  hasInternal(url: URL, ownerId: string | null): boolean
  successorOf(endpoint: Endpoint, network?: string): Route | undefined
  wait(name: AwayName, request: HeldRequest): boolean
  cancel(name: AwayName, request: HeldRequest): void
  /** Returns the name to wait for if a remote endpoint is unreachable. Absent on a single node. */
  holdHome?(home: RemoteHome): AwayName
}

/** Routes that only lead to endpoints of this node. */
export interface OwnRoutes extends Routes {
  match(host: string, protocol?: EndpointProtocol, network?: string): NameState | undefined
  matchInternal(url: URL, ownerId: string | null, network?: string): NameState | undefined
}

export interface ClusterRoutesOptions {
  readonly registry: EndpointRegistry
  readonly homes: Homes
  readonly tenures: Tenures
  /** Owners of names; see `EndpointRegistryOptions`. */
  readonly owners?: Pick<NameOwners, 'mayAnswer'> | undefined
  readonly clock: Clock
  /** Requests wait this long for an unreachable node, in milliseconds. */
  readonly holdMs?: number | undefined
}

/**
 * Routes of a node in a cluster. Exact names that are online here are found without asking for other nodes.
 *
 * INVARIANT: a request is never routed to, and counted at, a local endpoint that this node may not serve.
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

  /** Number of requests that wait for unreachable nodes. */
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

  /** The nearest endpoint on other nodes. Plain HTTP also leads to an HTTPS endpoint. */
  #findElsewhere(host: string, protocol: EndpointProtocol): RemoteHome | undefined {
    const entrance = entranceOf(protocol)
    const found = this.#homes.find(entrance, host)
    const secure = entrance === 'http' ? this.#homes.find('https', host) : undefined
    const home = found && !isNearer(secure, found, host) ? found : secure
    return home && this.#mayAnswer(home, host, protocol) ? home : undefined
  }

  /** On all nodes, only the account with the nearest name answers for a host. */
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
    // Shared endpoints come after the account's own endpoints, on any node.
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

  /** A name that was lost here may have come back on another node. */
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

  /** Call this when the set of endpoints that this node may serve has changed. */
  onSettled(): void {
    this.onNodeUp(this.#tenures.nodeId)
  }

  /** Call this when a node is reachable again. */
  onNodeUp(nodeId: string): void {
    this.#unreached.release((home) => home.nodeId === nodeId)
  }

  /** Call this when another node serves a name, or the name is released. */
  onHomeChange(host: string): void {
    this.#unreached.release((home) => home.host === host)
  }

  /** Routes for requests from other nodes. Endpoints that this node may not serve are not found. */
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

  /** A name whose claim is at this node, or on its way, before its endpoint is open. */
  #awaitOpening(host: string, protocol: EndpointProtocol, ownerId: string | null = null) {
    const entrance = entranceOf(protocol)
    const home =
      this.#homes.coming?.(entrance, host, ownerId) ??
      // As in `match`: plain HTTP also leads to an HTTPS endpoint.
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

  /**
   * Routes to the local endpoint if this node may serve it. Otherwise routes to its serving node, or makes
   * the request wait.
   */
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
    // The HTTPS ingress may also have a TLS endpoint.
    return home?.protocol === protocol ? home : undefined
  }
}

/** Whether the remote endpoint serves a host, instead of the local name. */
function isElsewhere(
  elsewhere: RemoteHome,
  own: NameState | undefined,
  host: string,
  clock: Clock,
): boolean {
  if (!own || elsewhere.host === host || elsewhere.host.length > own.host.length) return true
  // A held name hides the wildcards above it, as on a single node.
  if (own.type === 'away') return elsewhere.host === own.host || !own.isHeld(clock.monotonic())
  return false
}

import type { Clock } from '../../base/clock.ts'
import { REQUEST_DEFAULTS } from '../../settings/gateway-settings.ts'
import type { NameOwners } from '../access/name-rules.ts'
import { isInternal } from '../records/domain-name.ts'
import {
  type EndpointAddress,
  type EndpointProtocol,
  type IngressType,
  ingressTypeOf,
  internalAddressOf,
} from '../records/endpoint-protocol.ts'
import { DisconnectedName, type HeldRequest } from './disconnected-name.ts'
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
export class UnreachableEndpoints {
  readonly #holdMs: number
  readonly #held = new HeldRequests()
  /** Oldest first. */
  readonly #names = new Map<
    string,
    { readonly remote: RemoteEndpoint; readonly wait: DisconnectedName }
  >()
  readonly #waits = new Set<DisconnectedName>()

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

  has(name: DisconnectedName): boolean {
    return this.#waits.has(name)
  }

  /** Returns the name to wait for instead of the remote endpoint. `now` is monotonic. */
  hold(remote: RemoteEndpoint, now: number): DisconnectedName {
    const key = keyOf(remote)
    const known = this.#names.get(key)
    if (known && known.remote.nodeId === remote.nodeId && now < known.wait.forgottenAt)
      return known.wait
    if (known) this.#forget(key)
    const [oldest] = this.#names.size >= CAPACITY ? this.#names.keys() : []
    if (oldest !== undefined) this.#forget(oldest)
    const until = now + this.#holdMs
    const { protocol, host, url, ownerId } = remote
    const facts = { protocol, host, url, ownerId, isShared: false, credentialId: '' }
    const wait = new DisconnectedName(facts, until, until + REST_MS)
    this.#names.set(key, { remote, wait })
    this.#waits.add(wait)
    return wait
  }

  /** Returns false if the time is up, or there is no room. */
  wait(name: DisconnectedName, request: HeldRequest, now: number): boolean {
    return name.isHeld(now) && this.#held.add(name, request)
  }

  cancel(name: DisconnectedName, request: HeldRequest): void {
    this.#held.remove(name, request)
  }

  /** Releases all requests whose remote endpoint may be reachable now. */
  release(isChanged: (remote: RemoteEndpoint) => boolean): void {
    for (const [key, { remote }] of [...this.#names]) if (isChanged(remote)) this.#forget(key)
  }

  #forget(key: string): void {
    const known = this.#names.get(key)
    if (!known) return
    this.#names.delete(key)
    this.#waits.delete(known.wait)
    this.#held.release(known.wait)
  }
}

function keyOf({ protocol, host, ownerId }: RemoteEndpoint): string {
  return `${protocol} ${host} ${ownerId ?? ''}`
}

/** A name whose endpoint is on another node. */
export interface RemoteEndpoint extends EndpointAddress {
  readonly type: 'remote'
  readonly nodeId: string
  /** As reported to its owner. */
  readonly url: string
  readonly ownerId: string | null
  /** The serving node terminates TLS, because the endpoint's policy configures it. */
  readonly endsTls: boolean
}

/** Endpoints of other nodes, as far as this node knows. Synchronous. */
export interface RemoteEndpoints {
  /**
   * Finds the node that serves visitors of a host at an ingress type: by exact name, else by the
   * longest wildcard above it. Undefined: this node serves it, or the name is free.
   */
  find(entrance: IngressType, host: string): RemoteEndpoint | undefined
  /** A name that this node is about to open. Earlier requests wait for it. */
  coming?(entrance: IngressType, host: string, ownerId: string | null): RemoteEndpoint | undefined
  /** Whether the names of other nodes are known. Unset: they are. */
  areKnown?(): boolean
  /** Like `find`, for policies of an account: its own internal name first, then a shared name. */
  findInternal(
    entrance: IngressType,
    host: string,
    ownerId: string | null,
  ): RemoteEndpoint | undefined
}

/**
 * Whether this node may serve an endpoint that it has. `unknown`: requests wait. `foreign`:
 * another node serves it.
 */
export type Ownership = 'owned' | 'unknown' | 'foreign'

/** Rights of this node to serve endpoints, at this moment. Called for each visitor; synchronous. */
interface Ownerships {
  readonly nodeId: string
  of(endpoint: Endpoint): Ownership
}

/** Destination of a request, at this node or another node. */
export type Route = NameState | RemoteEndpoint

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
  wait(name: DisconnectedName, request: HeldRequest): boolean
  cancel(name: DisconnectedName, request: HeldRequest): void
  /** Returns the name to wait for if a remote endpoint is unreachable. Absent on a single node. */
  holdHome?(home: RemoteEndpoint): DisconnectedName
}

/** Routes that only lead to endpoints of this node. */
export interface OwnRoutes extends Routes {
  match(host: string, protocol?: EndpointProtocol, network?: string): NameState | undefined
  matchInternal(url: URL, ownerId: string | null, network?: string): NameState | undefined
}

export interface ClusterRoutesOptions {
  readonly registry: EndpointRegistry
  readonly homes: RemoteEndpoints
  readonly ownerships: Ownerships
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
  readonly #homes: RemoteEndpoints
  readonly #ownerships: Ownerships
  readonly #owners: Pick<NameOwners, 'mayAnswer'> | undefined
  readonly #clock: Clock
  readonly #unreached: UnreachableEndpoints

  constructor({
    registry,
    homes,
    ownerships,
    owners,
    clock,
    holdMs = REQUEST_DEFAULTS.holdMs,
  }: ClusterRoutesOptions) {
    this.#owners = owners
    this.#ownerships = ownerships
    this.#registry = registry
    this.#homes = homes
    this.#clock = clock
    this.#unreached = new UnreachableEndpoints(holdMs)
  }

  /** Number of requests that wait for unreachable nodes. */
  get waiting(): number {
    return this.#unreached.waiting
  }

  match(host: string, protocol: EndpointProtocol = 'http', network?: string): Route | undefined {
    const own = this.#registry.match(host, protocol, network)
    if (own && own.type !== 'disconnected' && own.host === host) return this.#lead(own)
    // A wildcard here may cover a name of another node.
    if (!this.#areHomesKnown && own?.host !== host) return unknownName(protocol, host)
    const elsewhere = this.#findElsewhere(host, protocol)
    const isForeign = own && !this.#mayAnswer(own, host, protocol)
    const mine = isForeign ? undefined : own
    if (elsewhere && isElsewhere(elsewhere, mine, host, this.#clock)) return elsewhere
    return this.#lead(mine) ?? this.#awaitOpening(host, protocol)
  }

  get #areHomesKnown(): boolean {
    return this.#homes.areKnown?.() ?? true
  }

  /** The nearest endpoint on other nodes. Plain HTTP also leads to an HTTPS endpoint. */
  #findElsewhere(host: string, protocol: EndpointProtocol): RemoteEndpoint | undefined {
    const entrance = ingressTypeOf(protocol)
    const found = this.#homes.find(entrance, host)
    const secure = entrance === 'http' ? this.#homes.find('https', host) : undefined
    const home = found && !isNearer(secure, found, host) ? found : secure
    return home && this.#mayAnswer(home, host, protocol) ? home : undefined
  }

  /** On all nodes, only the account with the nearest name answers for a host. */
  #mayAnswer(route: Route, host: string, protocol: EndpointProtocol): boolean {
    if (route.host === host) return true
    const entrance = ingressTypeOf(protocol)
    const other = entrance === 'http' ? 'https' : 'http'
    const homes = [this.#homes.find(entrance, host), this.#homes.find(other, host)]
    for (const name of [this.#registry.nearest(host, protocol), ...homes]) {
      if (isNearer(name, route, host) && name?.ownerId !== route.ownerId) return false
    }
    return this.#owners?.mayAnswer(host, route) ?? true
  }

  matchInternal(url: URL, ownerId: string | null, network?: string): Route | undefined {
    const own = this.#registry.matchInternal(url, ownerId, network)
    if (own && own.type !== 'disconnected' && own.ownerId === ownerId) return this.#lead(own)
    // The account's own endpoint may be on another node, and comes before a shared one.
    if (own?.ownerId !== ownerId && !this.#areHomesKnown) {
      const address = internalAddressOf(url)
      return address && unknownName(address.protocol, address.host)
    }
    const elsewhere = this.#findInternal(url, ownerId)
    // Shared endpoints come after the account's own endpoints, on any node.
    const isOwn = elsewhere?.ownerId === ownerId
    return elsewhere && (!own || own.type === 'disconnected' || isOwn)
      ? elsewhere
      : (this.#lead(own) ?? this.#awaitInternal(url, ownerId))
  }

  hasInternal(url: URL, ownerId: string | null): boolean {
    return (
      this.#registry.hasInternal(url, ownerId) ||
      this.#findInternal(url, ownerId) !== undefined ||
      !this.#areHomesKnown
    )
  }

  /** A name that was lost here may have come back on another node. */
  successorOf(endpoint: Endpoint, network?: string): Route | undefined {
    const own = this.#registry.successorOf(endpoint, network)
    if (own && own.type !== 'disconnected') return this.#lead(own)
    const { protocol, host, ownerId } = endpoint
    if (isInternal(host)) {
      return this.#homes.findInternal(ingressTypeOf(protocol), host, ownerId) ?? own
    }
    const elsewhere = this.#homes.find(ingressTypeOf(protocol), host)
    return elsewhere?.host === host && elsewhere.ownerId === ownerId ? elsewhere : own
  }

  wait(name: DisconnectedName, request: HeldRequest): boolean {
    return this.#unreached.has(name)
      ? this.#unreached.wait(name, request, this.#clock.monotonic())
      : this.#registry.wait(name, request)
  }

  cancel(name: DisconnectedName, request: HeldRequest): void {
    if (this.#unreached.has(name)) this.#unreached.cancel(name, request)
    else this.#registry.cancel(name, request)
  }

  holdHome(home: RemoteEndpoint): DisconnectedName {
    return this.#unreached.hold(home, this.#clock.monotonic())
  }

  /** Call this when the set of endpoints that this node may serve has changed. */
  onSettled(): void {
    this.onNodeUp(this.#ownerships.nodeId)
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
    const entrance = ingressTypeOf(protocol)
    const home =
      this.#homes.coming?.(entrance, host, ownerId) ??
      // As in `match`: plain HTTP also leads to an HTTPS endpoint.
      (entrance === 'http' ? this.#homes.coming?.('https', host, ownerId) : undefined)
    return home && this.holdHome(home)
  }

  #awaitInternal(url: URL, ownerId: string | null): DisconnectedName | undefined {
    const address = internalAddressOf(url)
    if (!address) return undefined
    const home = this.#homes.coming?.(ingressTypeOf(address.protocol), address.host, ownerId)
    return home && this.holdHome(home)
  }

  #admit(own: NameState | undefined): NameState | undefined {
    if (!own || own.type === 'disconnected') return own
    const ownership = this.#ownerships.of(own)
    if (ownership === 'foreign') return undefined
    return ownership === 'unknown' ? this.#holdHere(own) : own
  }

  /**
   * Routes to the local endpoint if this node may serve it. Otherwise routes to its serving node, or makes
   * the request wait.
   */
  #lead(own: NameState | undefined): Route | undefined {
    if (!own || own.type === 'disconnected' || this.#ownerships.of(own) === 'owned') return own
    return this.#homeOf(own) ?? this.#holdHere(own)
  }

  #holdHere({ protocol, host, url, ownerId }: Endpoint): DisconnectedName {
    const { nodeId } = this.#ownerships
    return this.holdHome({
      ...{ type: 'remote', nodeId, protocol, host, url, ownerId, endsTls: false },
    })
  }

  #homeOf({ protocol, host, ownerId }: Endpoint): RemoteEndpoint | undefined {
    const entrance = ingressTypeOf(protocol)
    const home = isInternal(host)
      ? this.#homes.findInternal(entrance, host, ownerId)
      : this.#homes.find(entrance, host)
    return home?.host === host && home.ownerId === ownerId ? home : undefined
  }

  #findInternal(url: URL, ownerId: string | null): RemoteEndpoint | undefined {
    const address = internalAddressOf(url)
    if (!address) return undefined
    const { protocol, host } = address
    const home = this.#homes.findInternal(ingressTypeOf(protocol), host, ownerId)
    // The HTTPS ingress may also have a TLS endpoint.
    return home?.protocol === protocol ? home : undefined
  }
}

/**
 * A name that may be on another node, before the names of the other nodes are known. Requests get 503 at
 * once: they have waited until this node began to listen.
 */
function unknownName(protocol: EndpointProtocol, host: string): DisconnectedName {
  const facts = { protocol, host, url: '', ownerId: null, isShared: false, credentialId: '' }
  return new DisconnectedName(facts, Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY)
}

/** Whether the remote endpoint serves a host, instead of the local name. */
function isElsewhere(
  elsewhere: RemoteEndpoint,
  own: NameState | undefined,
  host: string,
  clock: Clock,
): boolean {
  if (!own || elsewhere.host === host || elsewhere.host.length > own.host.length) return true
  // A held name hides the wildcards above it, as on a single node.
  if (own.type === 'disconnected')
    return elsewhere.host === own.host || !own.isHeld(clock.monotonic())
  return false
}

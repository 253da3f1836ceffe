import { isInternal } from '../records/domain-name.ts'
import type { Endpoint } from './endpoint.ts'

/** Thrown by `add`: the host has an endpoint already. */
export class EndpointConflictError extends Error {
  override readonly name = 'EndpointConflictError'
  readonly holder: Endpoint

  constructor(holder: Endpoint) {
    super(`${holder.host} is online already`)
    this.holder = holder
  }
}

/**
 * Which endpoint answers for a host: the exact name, else the longest wildcard above it.
 * Internal endpoints stand apart: visitors never find them, policies that forward do. Each account
 * has internal names of its own, so that nobody takes, finds or guesses those of others; what is
 * shared is found by all, after what they have themselves.
 */
export class EndpointRegistry {
  readonly #public = new HostTable()
  /** By account; one without internal endpoints has no table. */
  readonly #internal = new Map<string | null, HostTable>()
  readonly #shared = new HostTable()
  readonly #byId = new Map<string, Endpoint>()

  get size(): number {
    return this.#byId.size
  }

  /** Throws EndpointConflictError when the account has that host, or somebody shares it already. */
  add(endpoint: Endpoint, { isShared = false } = {}): void {
    const { host, ownerId } = endpoint
    const holder = this.holderOf(host, ownerId) ?? (isShared ? this.sharerOf(host) : undefined)
    if (holder) throw new EndpointConflictError(holder)
    this.#tableFor(endpoint).add(endpoint)
    if (isShared) this.#shared.add(endpoint)
    this.#byId.set(endpoint.id, endpoint)
  }

  find(id: string): Endpoint | undefined {
    return this.#byId.get(id)
  }

  /** The endpoint on exactly this host; an internal one of this account. */
  holderOf(host: string, ownerId: string | null): Endpoint | undefined {
    return (isInternal(host) ? this.#internal.get(ownerId) : this.#public)?.holderOf(host)
  }

  /** The internal endpoint on exactly this host that all accounts find. */
  sharerOf(host: string): Endpoint | undefined {
    return this.#shared.holderOf(host)
  }

  isShared(endpoint: Endpoint): boolean {
    return this.#shared.holderOf(endpoint.host) === endpoint
  }

  /** Shares an internal endpoint, or no longer. False when another account shares that name. */
  setShared(endpoint: Endpoint, isShared: boolean): boolean {
    if (this.isShared(endpoint) === isShared) return true
    if (!isShared) return this.#shared.remove(endpoint)
    if (this.sharerOf(endpoint.host)) return false
    this.#shared.add(endpoint)
    return true
  }

  /**
   * Puts a changed endpoint of the same account in the place of what it was, shared as that was.
   * Throws like `add` when its host is taken.
   */
  replace(before: Endpoint, after: Endpoint): void {
    const isShared = this.isShared(before)
    if (before.host !== after.host) this.add(after, { isShared })
    this.remove(before)
    if (before.host === after.host) this.add(after, { isShared })
  }

  /** False when this very endpoint was not there; another holder of its host stays. */
  remove(endpoint: Endpoint): boolean {
    const { id, host, ownerId } = endpoint
    if (this.#byId.get(id) === endpoint) this.#byId.delete(id)
    if (!isInternal(host)) return this.#public.remove(endpoint)
    this.#shared.remove(endpoint)
    const own = this.#internal.get(ownerId)
    const isRemoved = own?.remove(endpoint) ?? false
    if (own?.size === 0) this.#internal.delete(ownerId)
    return isRemoved
  }

  /** Finds the public endpoint for a lower-case host without port. */
  match(host: string): Endpoint | undefined {
    return this.#public.match(host)
  }

  /**
   * Finds the internal endpoint that a policy of an account names, such as `https://cam.internal`:
   * its own, else one that is shared. That of another account is not there.
   */
  matchInternal({ protocol, hostname, port }: URL, ownerId: string | null): Endpoint | undefined {
    const endpoint = this.#internal.get(ownerId)?.match(hostname) ?? this.#shared.match(hostname)
    // The URL parser drops a port that is the scheme's own; no internal endpoint has another.
    return endpoint && protocol === `${endpoint.protocol}:` && port === '' ? endpoint : undefined
  }

  *all(): Generator<Endpoint> {
    yield* this.#public.all()
    for (const own of this.#internal.values()) yield* own.all()
  }

  #tableFor({ host, ownerId }: Endpoint): HostTable {
    if (!isInternal(host)) return this.#public
    const own = this.#internal.get(ownerId) ?? new HostTable()
    this.#internal.set(ownerId, own)
    return own
  }
}

class HostTable {
  readonly #exact = new Map<string, Endpoint>()
  /** Keyed by the part after `*`, with its dot: `.example.com`. */
  readonly #wildcards = new Map<string, Endpoint>()

  get size(): number {
    return this.#exact.size + this.#wildcards.size
  }

  add(endpoint: Endpoint): void {
    const [hosts, key] = this.#placeOf(endpoint.host)
    hosts.set(key, endpoint)
  }

  holderOf(host: string): Endpoint | undefined {
    const [hosts, key] = this.#placeOf(host)
    return hosts.get(key)
  }

  remove(endpoint: Endpoint): boolean {
    const [hosts, key] = this.#placeOf(endpoint.host)
    return hosts.get(key) === endpoint && hosts.delete(key)
  }

  match(host: string): Endpoint | undefined {
    const endpoint = this.#exact.get(host)
    if (endpoint || this.#wildcards.size === 0) return endpoint
    // A dot at 0 would leave nothing for the star to stand for.
    for (let dot = host.indexOf('.', 1); dot !== -1; dot = host.indexOf('.', dot + 1)) {
      const wildcard = this.#wildcards.get(host.slice(dot))
      if (wildcard) return wildcard
    }
    return undefined
  }

  *all(): Generator<Endpoint> {
    yield* this.#exact.values()
    yield* this.#wildcards.values()
  }

  #placeOf(host: string): [Map<string, Endpoint>, string] {
    return host.startsWith('*.') ? [this.#wildcards, host.slice(1)] : [this.#exact, host]
  }
}

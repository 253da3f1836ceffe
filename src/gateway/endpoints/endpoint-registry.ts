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
 * Internal endpoints stand apart: visitors never find them, policies that forward do.
 */
export class EndpointRegistry {
  readonly #public = new HostTable()
  readonly #internal = new HostTable()
  readonly #byId = new Map<string, Endpoint>()

  get size(): number {
    return this.#public.size + this.#internal.size
  }

  add(endpoint: Endpoint): void {
    this.#tableOf(endpoint).add(endpoint)
    this.#byId.set(endpoint.id, endpoint)
  }

  find(id: string): Endpoint | undefined {
    return this.#byId.get(id)
  }

  /** The endpoint on exactly this host. */
  holderOf(host: string): Endpoint | undefined {
    return (isInternal(host) ? this.#internal : this.#public).holderOf(host)
  }

  /** Puts a changed endpoint in the place of what it was; throws like `add` when its host is taken. */
  replace(before: Endpoint, after: Endpoint): void {
    if (before.host !== after.host) this.add(after)
    this.remove(before)
    if (before.host === after.host) this.add(after)
  }

  /** False when this very endpoint was not there; another holder of its host stays. */
  remove(endpoint: Endpoint): boolean {
    if (this.#byId.get(endpoint.id) === endpoint) this.#byId.delete(endpoint.id)
    return this.#tableOf(endpoint).remove(endpoint)
  }

  /** Finds the public endpoint for a lower-case host without port. */
  match(host: string): Endpoint | undefined {
    return this.#public.match(host)
  }

  /** Finds the internal endpoint that `forward-internal` names, such as `https://cam.internal`. */
  matchInternal({ protocol, hostname, port }: URL): Endpoint | undefined {
    const endpoint = this.#internal.match(hostname)
    // The URL parser drops a port that is the scheme's own; no internal endpoint has another.
    return endpoint && protocol === `${endpoint.protocol}:` && port === '' ? endpoint : undefined
  }

  *all(): Generator<Endpoint> {
    yield* this.#public.all()
    yield* this.#internal.all()
  }

  #tableOf({ host }: Endpoint): HostTable {
    return isInternal(host) ? this.#internal : this.#public
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
    const holder = hosts.get(key)
    if (holder) throw new EndpointConflictError(holder)
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

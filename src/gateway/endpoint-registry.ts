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

/** Which endpoint answers for a host: the exact name, else the longest wildcard above it. */
export class EndpointRegistry {
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

  /** False when this very endpoint was not there; another holder of its host stays. */
  remove(endpoint: Endpoint): boolean {
    const [hosts, key] = this.#placeOf(endpoint.host)
    return hosts.get(key) === endpoint && hosts.delete(key)
  }

  /** Finds the endpoint for a lower-case host without port. */
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

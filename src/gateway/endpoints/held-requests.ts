import { mayWait } from '../streams/shares.ts'
import { type DisconnectedName, HeldLoad, type HeldRequest } from './disconnected-name.ts'

export interface HeldRequestsLimits {
  /** Requests that may wait at once, for all names. */
  readonly requests: number
  /** Memory that waiting requests may use, in bytes. */
  readonly bytes: number
}

export const HELD_REQUESTS_LIMITS: HeldRequestsLimits = { requests: 4_096, bytes: 67_108_864 }

/**
 * Requests that wait for devices to come back. A name gets up to two thirds of the places and bytes, a client
 * up to half. So there is always room for others, as with streams (`shares.ts`).
 */
export class HeldRequests {
  readonly #limits: HeldRequestsLimits
  readonly #all = new HeldLoad()
  /** Clients without waiting requests have no entry. */
  readonly #byNetwork = new Map<string, HeldLoad>()
  readonly #names = new Set<DisconnectedName>()

  constructor(limits: Partial<HeldRequestsLimits> = {}) {
    this.#limits = { ...HELD_REQUESTS_LIMITS, ...limits }
  }

  get size(): number {
    return this.#all.requests
  }

  get bytes(): number {
    return this.#all.bytes
  }

  /** Number of clients with waiting requests. */
  get clients(): number {
    return this.#byNetwork.size
  }

  /** Names that requests wait for, in the order of their first request. */
  get names(): Iterable<DisconnectedName> {
    return this.#names
  }

  /** Returns false if there is no room, or the name or the client has used its share. */
  add(name: DisconnectedName, request: HeldRequest): boolean {
    const client = this.#byNetwork.get(request.network) ?? new HeldLoad()
    const { requests, bytes } = this.#limits
    const size = request.bytes
    const hasPlace = mayWait(requests - this.#all.requests, name.load.requests, client.requests)
    const hasBytes = mayWait(
      bytes - this.#all.bytes - size,
      name.load.bytes + size,
      client.bytes + size,
    )
    if (!hasPlace || !hasBytes) return false
    this.#byNetwork.set(request.network, client)
    name.waiting.add(request)
    this.#names.add(name)
    for (const load of [this.#all, name.load, client]) count(load, 1, size)
    return true
  }

  remove(name: DisconnectedName, request: HeldRequest): void {
    if (!name.waiting.delete(request)) return
    if (name.waiting.size === 0) this.#names.delete(name)
    const client = this.#byNetwork.get(request.network)
    for (const load of [this.#all, name.load]) count(load, -1, request.bytes)
    if (!client) return
    count(client, -1, request.bytes)
    if (client.requests === 0) this.#byNetwork.delete(request.network)
  }

  /** Releases all requests that wait for a name. Each looks the name up again. */
  release(name: DisconnectedName): void {
    for (const request of [...name.waiting]) {
      this.remove(name, request)
      request.onNameChange()
    }
  }
}

function count(load: HeldLoad, change: 1 | -1, bytes: number): void {
  load.requests += change
  load.bytes += change * bytes
}

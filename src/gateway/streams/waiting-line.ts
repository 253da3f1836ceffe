import type { ProxyStream, StreamClient, StreamWaiter } from './proxy-stream.ts'
import type { ServiceConnections } from './service-connections.ts'
import { type Alone, type ClientHolding, type Holding, mayWait } from './shares.ts'

/**
 * Items by a small whole number, lowest first; equal numbers in order of arrival. A bucket queue: moving an
 * item takes constant time, because the caller knows its number.
 */
export class LeastFirst<Item> {
  /** By number; empty numbers are holes. */
  readonly #buckets: Set<Item>[] = []

  add(item: Item, at: number): void {
    const bucket = this.#buckets[at]
    if (bucket) bucket.add(item)
    else this.#buckets[at] = new Set([item])
  }

  remove(item: Item, at: number): void {
    this.#buckets[at]?.delete(item)
  }

  move(item: Item, from: number, to: number): void {
    this.remove(item, from)
    this.add(item, to)
  }

  get first(): Item | undefined {
    for (const item of this) return item
    return undefined
  }

  *[Symbol.iterator](): Generator<Item> {
    for (const bucket of this.#buckets) if (bucket) yield* bucket
  }
}

/** A user of the shared slots: the pool of an endpoint, or of a visitor on a link. */
export interface SlotUser {
  readonly holding: Holding
  /** Service behind it; undefined without one. */
  readonly service: ServiceConnections | undefined
  /** Its streams that are with an exchange. */
  readonly busy: Iterable<ProxyStream>
  /** Opens a stream in a free slot; undefined when the session has ended over it. */
  open(client: StreamClient): ProxyStream | undefined
  /** The idle stream that was used last. */
  takeIdle(): ProxyStream | undefined
  /** Tick at which its oldest idle stream became unused; infinite if there is none. */
  readonly oldestIdle: number
}

/** An exchange that asks for a stream. */
export interface Asking {
  readonly waiter: StreamWaiter
  readonly user: SlotUser
  readonly client: StreamClient
  readonly clientHolding: ClientHolding
  /** It wants a stream that no exchange has used before. */
  readonly isFresh: boolean
}

/** One in the line. */
export interface Waiting extends Asking {
  /** Monotonic. */
  readonly since: number
}

/** Requests for the same endpoint and client, in order of arrival. */
interface ClientQueue {
  readonly clientHolding: ClientHolding
  readonly waiting: Set<Waiting>
}

/**
 * Requests that wait for a stream of a device. The holder of the fewest streams is served first, by endpoint
 * and then by client: so a holder of many does not block others. Holdings are counted only here, because they
 * decide the order. The cost of a step does not depend on the number of waiting exchanges.
 */
export class WaitingLine {
  readonly #places: number
  readonly #all = new Map<StreamWaiter, Waiting>()
  /** Pools with waiting requests, by their holdings; the same for their clients. */
  readonly #users = new LeastFirst<SlotUser>()
  readonly #clientsOf = new Map<SlotUser, LeastFirst<ClientQueue>>()
  /** Queues of each client with waiting requests. */
  readonly #queuesOf = new WeakMap<ClientHolding, Map<SlotUser, ClientQueue>>()
  /** Clients with exchanges in the line. */
  #clients = 0

  /** `places`: how many exchanges may wait at once. */
  constructor(places: number) {
    this.#places = places
  }

  get length(): number {
    return this.#all.size
  }

  /** In the order they came. */
  all(): IterableIterator<Waiting> {
    return this.#all.values()
  }

  /** False when there is no place, or its endpoint or client has its share of them. */
  add(waiting: Waiting): boolean {
    const { user, clientHolding } = waiting
    const { holding } = user
    const places = this.#places - this.#all.size
    if (!mayWait(places, holding.waiting, clientHolding.waiting)) return false
    this.#users.add(user, holding.held)
    this.#queueOf(user, clientHolding).waiting.add(waiting)
    holding.waiting += 1
    if (clientHolding.waiting === 0) this.#clients += 1
    clientHolding.waiting += 1
    this.#all.set(waiting.waiter, waiting)
    return true
  }

  /** Undefined when the waiter is not in the line. */
  remove(waiter: StreamWaiter): Waiting | undefined {
    const waiting = this.#all.get(waiter)
    if (!waiting) return undefined
    const { user, clientHolding } = waiting
    const { holding } = user
    this.#all.delete(waiter)
    holding.waiting -= 1
    clientHolding.waiting -= 1
    if (clientHolding.waiting === 0) this.#clients -= 1
    const queue = this.#queueOf(user, clientHolding)
    queue.waiting.delete(waiting)
    if (queue.waiting.size === 0) {
      this.#queuesOf.get(clientHolding)?.delete(user)
      this.#clientsOf.get(user)?.remove(queue, clientHolding.held)
    }
    if (holding.waiting === 0) {
      this.#clientsOf.delete(user)
      this.#users.remove(user, holding.held)
    }
    return waiting
  }

  /** The next request that may be served. The condition may depend only on holdings and on `isFresh`. */
  next(mayHave: (waiting: Waiting) => boolean): Waiting | undefined {
    for (const user of this.#users) {
      for (const waiting of this.#waitingFor(user)) {
        if (mayHave(waiting)) return waiting
        // Later requests hold as much or more, so they may not have one either, unless only the stream of
        // this one is missing.
        if (!waiting.isFresh) break
      }
    }
    return undefined
  }

  /** Whether no others wait besides a client and an endpoint, at endpoints for which `counts` is true. */
  aloneness(client: ClientHolding, own: SlotUser, counts: (user: SlotUser) => boolean): Alone {
    const areOthers = this.#clients > (client.waiting > 0 ? 1 : 0)
    const alone = { client: true, endpoint: true }
    for (const user of this.#users) {
      if (!counts(user)) continue
      if (user !== own) alone.endpoint = false
      if (areOthers && alone.client) alone.client = !this.#hasOther(user, client)
      if (!alone.endpoint && (!alone.client || !areOthers)) break
    }
    return alone
  }

  #hasOther(user: SlotUser, client: ClientHolding): boolean {
    for (const { clientHolding } of this.#clientsOf.get(user) ?? []) {
      if (clientHolding !== client) return true
    }
    return false
  }

  /** In the order in which they are served. */
  *inOrder(): Generator<Waiting> {
    for (const user of this.#users) yield* this.#waitingFor(user)
  }

  /** Counts a stream that an endpoint takes (1) or gives back (-1). */
  countEndpoint(user: SlotUser, change: 1 | -1): void {
    const { holding } = user
    const from = holding.held
    holding.held += change
    if (holding.waiting > 0) this.#users.move(user, from, holding.held)
  }

  /** The same for a client. */
  countClient(client: ClientHolding, change: 1 | -1): void {
    const from = client.held
    client.held += change
    if (client.waiting === 0) return
    for (const [user, queue] of this.#queuesOf.get(client) ?? []) {
      this.#clientsOf.get(user)?.move(queue, from, client.held)
    }
  }

  *#waitingFor(user: SlotUser): Generator<Waiting> {
    for (const { waiting } of this.#clientsOf.get(user) ?? []) yield* waiting
  }

  #queueOf(user: SlotUser, clientHolding: ClientHolding): ClientQueue {
    let queues = this.#queuesOf.get(clientHolding)
    if (!queues) {
      queues = new Map()
      this.#queuesOf.set(clientHolding, queues)
    }
    let queue = queues.get(user)
    if (!queue) {
      queue = { clientHolding, waiting: new Set() }
      queues.set(user, queue)
      let clients = this.#clientsOf.get(user)
      if (!clients) {
        clients = new LeastFirst()
        this.#clientsOf.set(user, clients)
      }
      clients.add(queue, clientHolding.held)
    }
    return queue
  }
}

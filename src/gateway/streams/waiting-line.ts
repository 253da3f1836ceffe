import type { ProxyStream, StreamClient, StreamWaiter } from './proxy-stream.ts'
import type { ServiceConnections } from './service-connections.ts'
import { type Alone, type ClientHolding, type Holding, mayWait } from './shares.ts'

/**
 * Items in the order of a small whole number that each of them has, the least first; among equals in
 * the order in which they came to it. A bucket queue: to move an item costs the same however many
 * there are, because who moves one knows where it is.
 */
export class LeastFirst<Item> {
  /** By number; a hole where nobody has been. */
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

/** One of those that share the slots: the pool of an endpoint, or of a visitor on a link. */
export interface SlotUser {
  readonly holding: Holding
  /** Of the service behind it; undefined for what leads to none. */
  readonly service: ServiceConnections | undefined
  /** Its streams that are with an exchange. */
  readonly busy: Iterable<ProxyStream>
  /** Opens a stream in a free slot; undefined when the session has ended over it. */
  open(client: StreamClient): ProxyStream | undefined
  /** The idle stream that was used last. */
  takeIdle(): ProxyStream | undefined
  /** The tick since which its oldest idle stream is unused; infinite when there is none. */
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

/** Those who wait for the same endpoint on behalf of the same client, in the order they came. */
interface ClientQueue {
  readonly clientHolding: ClientHolding
  readonly waiting: Set<Waiting>
}

/**
 * Who waits for a stream of a device. It serves who holds least, the endpoint first, then the client:
 * whoever holds many does not keep others waiting. Holdings are counted here alone, because they
 * decide about the order. What a step costs does not depend on how many exchanges wait.
 */
export class WaitingLine {
  readonly #places: number
  readonly #all = new Map<StreamWaiter, Waiting>()
  /** Those with exchanges in the line, by what they hold; so are the clients of each. */
  readonly #users = new LeastFirst<SlotUser>()
  readonly #clientsOf = new Map<SlotUser, LeastFirst<ClientQueue>>()
  /** Where each client with exchanges in the line has them. */
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

  /** Who is served next of those who may be; it may depend on what they hold and on `isFresh` alone. */
  next(mayHave: (waiting: Waiting) => boolean): Waiting | undefined {
    for (const user of this.#users) {
      for (const waiting of this.#waitingFor(user)) {
        if (mayHave(waiting)) return waiting
        // Those behind hold as much or more: they may not either, unless it is the stream of this one
        // alone that is missing.
        if (!waiting.isFresh) break
      }
    }
    return undefined
  }

  /** Who waits beside a client and an endpoint, at endpoints of which `counts` is true. */
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

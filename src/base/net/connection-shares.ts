import { peerNetwork } from './network.ts'

/** Size of the random sample from which the connection to close is chosen. */
const DRAWN = 128

/**
 * Effect of closing a connection. `idle`: nothing is lost. `awaited`: a request in progress is lost, which
 * waits for its client. `busy`: work for it is in progress, so it is never closed for another.
 */
export type ConnectionStage = 'idle' | 'awaited' | 'busy'

export interface SharedConnection {
  readonly stage: ConnectionStage
  /** Smaller for a longer idle time. Any unit. */
  readonly idleSince: number
  /** Closes the connection at once. */
  yieldPlace(): void
}

interface ConnectionSharesOptions {
  /** Maximum number of connections. */
  readonly capacity: number
  /** Returns a random integer below a bound. */
  readonly draw?: (below: number) => number
}

/**
 * Connection slots of a listener. While there is room, addresses have no limit, because all clients behind a
 * NAT or a proxy share one address.
 *
 * When the listener is full, a new connection takes the slot of one that waits for its client. That
 * connection is from the same address, or from an address with more slots. The address with the most slots
 * comes first, and of its connections the one that is idle for longest.
 */
export class ConnectionShares<T extends SharedConnection> {
  readonly #capacity: number
  readonly #draw: (below: number) => number
  readonly #connections: T[] = []
  readonly #places = new Map<T, { index: number; readonly network: string }>()
  readonly #held = new Map<string, number>()

  constructor({ capacity, draw = drawAtRandom }: ConnectionSharesOptions) {
    this.#capacity = capacity
    this.#draw = draw
  }

  get size(): number {
    return this.#connections.length
  }

  /**
   * Gives the connection a slot, which has to be released. Returns false if there is no slot for its address.
   */
  admit(connection: T, address: string | undefined): boolean {
    const network = peerNetwork(address)
    if (this.size >= this.#capacity) {
      const victim = this.#victimFor(network)
      if (!victim) return false
      this.release(victim)
      victim.yieldPlace()
    }
    this.#places.set(connection, { index: this.size, network })
    this.#connections.push(connection)
    this.#held.set(network, this.#heldBy(network) + 1)
    return true
  }

  /** Frees the slot. Further calls do nothing. */
  release(connection: T): void {
    const place = this.#places.get(connection)
    if (!place) return
    const { index, network } = place
    this.#places.delete(connection)
    const last = this.#connections.pop() as T
    const moved = this.#places.get(last)
    if (moved) {
      this.#connections[index] = last
      moved.index = index
    }
    const left = this.#heldBy(network) - 1
    if (left === 0) this.#held.delete(network)
    else this.#held.set(network, left)
  }

  #victimFor(newcomer: string): T | undefined {
    const own = this.#heldBy(newcomer)
    let best: { readonly connection: T; readonly rank: Rank } | undefined
    for (const connection of this.#drawn()) {
      const network = this.#places.get(connection)?.network ?? ''
      const held = this.#heldBy(network)
      const { stage, idleSince } = connection
      if (stage === 'busy' || (network !== newcomer && held <= own)) continue
      const rank: Rank = [-held, stage === 'idle' ? 0 : 1, idleSince]
      if (!best || isBefore(rank, best.rank)) best = { connection, rank }
    }
    return best?.connection
  }

  *#drawn(): Generator<T> {
    const all = this.#connections
    if (all.length <= DRAWN) yield* all
    else for (let n = 0; n < DRAWN; n += 1) yield all[this.#draw(all.length)] as T
  }

  #heldBy(network: string): number {
    return this.#held.get(network) ?? 0
  }
}

type Rank = readonly [number, number, number]

/** Compares by the first element that differs. */
function isBefore(a: Rank, b: Rank): boolean {
  const at = a.findIndex((part, index) => part !== b[index])
  return at !== -1 && (a[at] as number) < (b[at] as number)
}

function drawAtRandom(below: number): number {
  return Math.floor(Math.random() * below)
}

import { peerNetwork } from './network.ts'

/** Of so many connections, drawn at random, the one is chosen that has to go. */
const DRAWN = 128

/**
 * What would be lost with a connection. `idle`: nothing. `awaited`: something that is under way, and
 * it is the client's turn. `busy`: somebody works for it; it is never closed for another.
 */
export type ConnectionStage = 'idle' | 'awaited' | 'busy'

export interface SharedConnection {
  readonly stage: ConnectionStage
  /** The longer it has done nothing the smaller; any unit. */
  readonly idleSince: number
  /** Closes it at once. */
  yieldPlace(): void
}

interface ConnectionSharesOptions {
  /** Connections at once. */
  readonly capacity: number
  /** Whole numbers below a bound. */
  readonly draw?: (below: number) => number
}

/**
 * The places of a listener. Nobody has a limit of its own while there is room: behind a NAT or a
 * proxy everybody is one address. When it is full a newcomer gets the place of a connection that
 * waits for its client: of its own address, or of one that holds more places than it, the greediest
 * first, and of those the one that has been idle for longest.
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

  /** Gives it a place; false when there is none for its address. It has to be released. */
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

  /** Its place is free; further calls do nothing. */
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

/** The first place in which they differ decides. */
function isBefore(a: Rank, b: Rank): boolean {
  const at = a.findIndex((part, index) => part !== b[index])
  return at !== -1 && (a[at] as number) < (b[at] as number)
}

function drawAtRandom(below: number): number {
  return Math.floor(Math.random() * below)
}

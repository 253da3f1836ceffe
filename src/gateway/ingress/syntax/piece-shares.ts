import type { Clock } from '../../../base/clock.ts'

/** Tiny pieces of content from one client at once, and so many more each second. */
export const PIECE_LIMITS = { pieces: 1_500, piecesPerSecond: 10_000 }
/** The work of a stream that is broken off, and of a connection closed for a flood, in pieces. */
export const BROKEN_STREAM_PIECES = 20
export const FLOOD_PIECES = 5_000
/** So many clients may go to their limit; more of them share the processor time of these. */
const CLIENTS_AT_LIMIT = 4
/** Debts that are kept at once; the oldest is forgotten first. */
const MAX_CLIENTS = 10_000
/** A shorter rest costs more than it saves. */
const MIN_REST_MS = 10
const MAX_REST_MS = 5_000
/** Until the next connection of a client is read: by then it is known what the last one costs. */
export const TURN_MS = 50

interface Debt {
  owed: number
  paidAt: number
}

/**
 * How much work without use each client may cause, over all its connections, counted in tiny pieces
 * of content: each is work, however small. A client beyond that is not cut off, because honest
 * programs send tiny messages in bulk. Its connections rest until the debt is paid, then they are
 * read one after the other: all at once would hold up everybody else.
 */
export class PieceShares {
  readonly #clock: Pick<Clock, 'monotonic' | 'sleep'>
  readonly #debts = new Map<string, Debt>()
  /** Connections at rest, by client: how each is read again. */
  readonly #lines = new Map<string, Set<() => void>>()
  /** Connections that rest as soon as another one of their client has to. */
  readonly #suspects = new Map<string, Set<() => void>>()

  constructor(clock: Pick<Clock, 'monotonic' | 'sleep'>) {
    this.#clock = clock
  }

  /** True when nothing more should be read from the client for now. */
  charge(client: string, pieces: number): boolean {
    const debt = this.#debtOf(client)
    if (debt) debt.owed += pieces
    else this.#begin(client, { owed: pieces, paidAt: this.#clock.monotonic() })
    const isInLine = this.#lines.has(client)
    if (!this.mustRest(client)) return false
    // What has arrived on the others would be read in this very turn of the event loop.
    if (!isInLine) for (const rest of this.#suspects.get(client) ?? []) rest()
    return true
  }

  /** A connection of which it is not known that it causes no such work; until the returned function is called. */
  suspect(client: string, rest: () => void): () => void {
    const suspects = this.#suspects.get(client) ?? new Set()
    this.#suspects.set(client, suspects.add(rest))
    return () => {
      suspects.delete(rest)
      if (suspects.size === 0 && this.#suspects.get(client) === suspects) {
        this.#suspects.delete(client)
      }
    }
  }

  /** True when the client is in debt, or connections of it wait for their turn. */
  mustRest(client: string): boolean {
    return this.#lines.has(client) || this.restMs(client) > 0
  }

  restMs(client: string): number {
    const { pieces, piecesPerSecond } = PIECE_LIMITS
    const excess = (this.#debtOf(client)?.owed ?? 0) - pieces
    if (excess <= 0) return 0
    const crowd = Math.max(1, this.#lines.size / CLIENTS_AT_LIMIT)
    const ms = (excess / piecesPerSecond) * 1_000 * crowd
    return Math.min(MAX_REST_MS, Math.max(MIN_REST_MS, ms))
  }

  /** A connection of the client rests until `wake` is called, or the returned function. */
  rest(client: string, wake: () => void): () => void {
    const line = this.#lines.get(client)
    if (line) {
      line.add(wake)
      return () => line.delete(wake)
    }
    const begun = new Set([wake])
    this.#lines.set(client, begun)
    void this.#serve(client, begun)
    return () => begun.delete(wake)
  }

  async #serve(client: string, line: Set<() => void>): Promise<void> {
    while (line.size > 0) {
      await this.#clock.sleep(Math.max(MIN_REST_MS, this.restMs(client)))
      if (this.restMs(client) > 0) continue
      const [wake] = line
      if (!wake) break
      line.delete(wake)
      wake()
      if (line.size > 0) await this.#clock.sleep(TURN_MS)
    }
    this.#lines.delete(client)
  }

  /** With what time has paid of it; undefined: nothing is owed. */
  #debtOf(client: string): Debt | undefined {
    const debt = this.#debts.get(client)
    if (!debt) return undefined
    const now = this.#clock.monotonic()
    debt.owed -= ((now - debt.paidAt) / 1_000) * PIECE_LIMITS.piecesPerSecond
    debt.paidAt = now
    if (debt.owed > 0) return debt
    this.#debts.delete(client)
    return undefined
  }

  #begin(client: string, debt: Debt): void {
    this.#debts.set(client, debt)
    const [oldest] = this.#debts.keys()
    if (this.#debts.size > MAX_CLIENTS && oldest !== undefined) this.#debts.delete(oldest)
  }
}

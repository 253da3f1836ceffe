import type { Clock } from '../../../base/clock.ts'

/** Tiny pieces of content that one client may send at once, and per second after that. */
export const PIECE_LIMITS = { pieces: 1_500, piecesPerSecond: 10_000 }
/** Cost of a broken stream, and of a connection closed because of a flood, in pieces. */
export const BROKEN_STREAM_PIECES = 20
export const FLOOD_PIECES = 5_000
/** Number of clients that may use their full limit. More clients share the processor time of these. */
const CLIENTS_AT_LIMIT = 4
/** Maximum number of stored debts. The oldest is forgotten first. */
const MAX_CLIENTS = 10_000
/** A shorter pause costs more than it saves. */
const MIN_REST_MS = 10
const MAX_REST_MS = 5_000
/** Delay before the next connection of a client is read. By then the cost of the last is known. */
export const TURN_MS = 50

interface Debt {
  owed: number
  paidAt: number
}

/**
 * Limits the useless work that each client may cause over all its connections. The unit is a tiny piece of
 * content: each costs work, however small it is. A client above the limit is not disconnected, because honest
 * programs send tiny messages in bulk. Its connections pause until the debt is paid. Then they are read one
 * after the other, because all at once would delay other clients.
 */
export class PieceShares {
  readonly #clock: Pick<Clock, 'monotonic' | 'sleep'>
  readonly #debts = new Map<string, Debt>()
  /** Paused connections by client: functions that resume reading. */
  readonly #lines = new Map<string, Set<() => void>>()
  /** Connections that pause as soon as another connection of their client must. */
  readonly #suspects = new Map<string, Set<() => void>>()

  constructor(clock: Pick<Clock, 'monotonic' | 'sleep'>) {
    this.#clock = clock
  }

  /** Adds a cost. Returns true if nothing more should be read from the client for now. */
  charge(client: string, pieces: number): boolean {
    const debt = this.#debtOf(client)
    if (debt) debt.owed += pieces
    else this.#begin(client, { owed: pieces, paidAt: this.#clock.monotonic() })
    const isInLine = this.#lines.has(client)
    if (!this.mustRest(client)) return false
    // Otherwise data that has arrived on the other connections would be read in this turn of the event loop.
    if (!isInLine) for (const rest of this.#suspects.get(client) ?? []) rest()
    return true
  }

  /**
   * Registers a connection that may turn out to cause useless work, until the returned function is called.
   */
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

  /** Whether the client is in debt, or its connections wait for their turn. */
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

  /**
   * Pauses a connection of the client until `wake` is called. The returned function removes it from the line.
   */
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

  /** Returns the debt, reduced by the time that has passed; undefined without debt. */
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

/** Tiny pieces of content from one client at once, and so many more each second. */
export const PIECE_LIMITS = { pieces: 1_500, piecesPerSecond: 10_000 }
/** So many clients may go to their limit; more of them share the processor time of these. */
const CLIENTS_AT_LIMIT = 4
/** Debts that are kept at once; the oldest is forgotten first. */
const MAX_CLIENTS = 10_000
/** A shorter rest costs more than it saves. */
const MIN_REST_MS = 10
const MAX_REST_MS = 5_000

interface Debt {
  owed: number
  paidAt: number
}

/**
 * How many tiny pieces of content each client may send, over all its connections: each piece is work,
 * however small. A client beyond that is not cut off, because honest programs send tiny messages
 * in bulk. Its connections rest until the debt is paid.
 */
export class PieceShares {
  readonly #debts = new Map<string, Debt>()
  /** Connections at rest, by client. */
  readonly #resting = new Map<string, number>()

  /** Answers for how long nothing more should be read from the client; `now` is monotonic. */
  charge(client: string, pieces: number, now: number): number {
    const debt = this.#debts.get(client)
    if (debt) debt.owed += pieces
    else this.#begin(client, { owed: pieces, paidAt: now })
    return this.restMs(client, now)
  }

  restMs(client: string, now: number): number {
    const debt = this.#debts.get(client)
    if (!debt) return 0
    const { pieces, piecesPerSecond } = PIECE_LIMITS
    debt.owed -= ((now - debt.paidAt) / 1_000) * piecesPerSecond
    debt.paidAt = now
    if (debt.owed <= 0) this.#debts.delete(client)
    const excess = debt.owed - pieces
    if (excess <= 0) return 0
    const crowd = Math.max(1, this.#resting.size / CLIENTS_AT_LIMIT)
    const ms = (excess / piecesPerSecond) * 1_000 * crowd
    return Math.min(MAX_REST_MS, Math.max(MIN_REST_MS, ms))
  }

  /** A connection of the client rests from now on. */
  rest(client: string): void {
    this.#resting.set(client, (this.#resting.get(client) ?? 0) + 1)
  }

  wake(client: string): void {
    const left = (this.#resting.get(client) ?? 0) - 1
    if (left > 0) this.#resting.set(client, left)
    else this.#resting.delete(client)
  }

  #begin(client: string, debt: Debt): void {
    this.#debts.set(client, debt)
    const [oldest] = this.#debts.keys()
    if (this.#debts.size > MAX_CLIENTS && oldest !== undefined) this.#debts.delete(oldest)
  }
}

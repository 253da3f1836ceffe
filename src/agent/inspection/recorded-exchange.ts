/** Bytes kept of each body. The rest is only counted. */
export const MAX_BODY_BYTES = 64 * 1024
/** Maximum number and size of the exchanges of a tunnel. The oldest are dropped. */
export const MAX_EXCHANGES = 200
export const MAX_BYTES = 4 * 1024 * 1024
/** Memory of an exchange without headers and bodies, and of a header without its text. */
const OVERHEAD_BYTES = 1024
const FIELD_BYTES = 64

export type Fields = readonly (readonly [name: string, value: string])[]

/** The beginning of a body, and its total length. */
export class RecordedBody {
  /**
   * Doubles when full. A body may arrive byte by byte, and one buffer for each would cost a hundred times as
   * much.
   */
  #memory = Buffer.alloc(0)
  #kept = 0
  #total = 0
  readonly #onMemory: (bytes: number) => void

  /** `onMemory` is called with the number of additional bytes. */
  constructor(onMemory: (bytes: number) => void) {
    this.#onMemory = onMemory
  }

  get totalBytes(): number {
    return this.#total
  }

  /** False if the body is longer than the kept part. */
  get isWhole(): boolean {
    return this.#kept === this.#total
  }

  get bytes(): Buffer {
    return this.#memory.subarray(0, this.#kept)
  }

  add(chunk: Buffer): void {
    this.#total += chunk.length
    const kept = Math.min(this.#kept + chunk.length, MAX_BODY_BYTES)
    if (kept > this.#memory.length) this.#grow(kept)
    chunk.copy(this.#memory, this.#kept, 0, kept - this.#kept)
    this.#kept = kept
  }

  #grow(atLeast: number): void {
    const before = this.#memory
    const size = Math.min(Math.max(atLeast, 2 * before.length), MAX_BODY_BYTES)
    // Not from the pool of small buffers, where each slice keeps the whole pool in memory.
    this.#memory = Buffer.alloc(size)
    before.copy(this.#memory)
    this.#onMemory(size - before.length)
  }
}

/** State of an exchange. `switched`: upgraded, for example to WebSocket, and passed through. */
export type ExchangeState = 'open' | 'answered' | 'switched' | 'failed'

export interface RecordedHead {
  /** Names are unchanged. */
  readonly fields: Fields
  readonly httpVersion: string
}

export interface RecordedRequest extends RecordedHead {
  readonly method: string
  readonly target: string
  readonly body: RecordedBody
}

export interface RecordedResponse extends RecordedHead {
  readonly status: number
  readonly reason: string
  readonly body: RecordedBody
}

/** A request and its answer. Kept only in memory, with all data including secrets. */
export interface RecordedExchange {
  /** Starts at 1 for each inspection and increases by one. */
  readonly number: number
  /** Milliseconds since the epoch. */
  readonly startedAt: number
  readonly request: RecordedRequest
  /** Number of the repeated exchange. */
  readonly replayOf: number | undefined
  readonly state: ExchangeState
  readonly response: RecordedResponse | undefined
  /** Time until the answer was complete, undefined before that. */
  readonly durationMs: number | undefined
  readonly error: string | undefined
}

type Change = Partial<Pick<RecordedExchange, 'state' | 'response' | 'durationMs' | 'error'>>

/** The newest exchanges of a tunnel, limited in number and bytes. */
export class ExchangeLog {
  /** Oldest first. */
  readonly #exchanges = new Map<number, RecordedExchange>()
  readonly #bytes = new Map<number, number>()
  #total = 0
  #last = 0

  get last(): number {
    return this.#last
  }

  /** Oldest first. */
  list(): RecordedExchange[] {
    return [...this.#exchanges.values()]
  }

  find(number: number): RecordedExchange | undefined {
    return this.#exchanges.get(number)
  }

  begin(
    exchange: Pick<RecordedExchange, 'startedAt' | 'replayOf'> & {
      readonly request: Omit<RecordedRequest, 'body'>
    },
  ): RecordedExchange {
    this.#last += 1
    const number = this.#last
    const request = { ...exchange.request, body: this.bodyOf(number) }
    const begun: RecordedExchange = {
      ...exchange,
      number,
      request,
      state: 'open',
      response: undefined,
      durationMs: undefined,
      error: undefined,
    }
    this.#exchanges.set(number, begun)
    this.#count(number, OVERHEAD_BYTES + sizeOf(request.fields) + request.target.length)
    return begun
  }

  /** Creates a body whose bytes are counted for this exchange. */
  bodyOf(number: number): RecordedBody {
    return new RecordedBody((bytes) => this.#count(number, bytes))
  }

  /** Does nothing for an exchange that was dropped. */
  change(number: number, change: Change): void {
    const exchange = this.#exchanges.get(number)
    if (!exchange) return
    this.#exchanges.set(number, { ...exchange, ...change })
    if (change.response) this.#count(number, sizeOf(change.response.fields))
  }

  #count(number: number, bytes: number): void {
    if (!this.#exchanges.has(number)) return
    this.#bytes.set(number, (this.#bytes.get(number) ?? 0) + bytes)
    this.#total += bytes
    for (const oldest of this.#exchanges.keys()) {
      if (this.#exchanges.size <= MAX_EXCHANGES && this.#total <= MAX_BYTES) return
      this.#total -= this.#bytes.get(oldest) ?? 0
      this.#bytes.delete(oldest)
      this.#exchanges.delete(oldest)
    }
  }
}

function sizeOf(fields: Fields): number {
  return fields.reduce((sum, [name, value]) => sum + name.length + value.length + FIELD_BYTES, 0)
}

/** Of each body this much is kept; the rest is counted. */
export const MAX_BODY_BYTES = 64 * 1024
/** Of one tunnel; the oldest make room. */
export const MAX_EXCHANGES = 200
export const MAX_BYTES = 4 * 1024 * 1024
/** What an exchange costs beside heads and bodies, and a field beside its letters. */
const OVERHEAD_BYTES = 1024
const FIELD_BYTES = 64

export type Fields = readonly (readonly [name: string, value: string])[]

/** The beginning of a body, and how long it was. */
export class RecordedBody {
  /** Doubles as it fills: a body may come byte by byte, and a buffer for each would cost a hundred times that. */
  #memory = Buffer.alloc(0)
  #kept = 0
  #total = 0
  readonly #onMemory: (bytes: number) => void

  /** `onMemory` is called with what it takes up more. */
  constructor(onMemory: (bytes: number) => void) {
    this.#onMemory = onMemory
  }

  get totalBytes(): number {
    return this.#total
  }

  /** False when there was more than is kept. */
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
    // Not from the pool of small buffers, of which a part keeps the whole.
    this.#memory = Buffer.alloc(size)
    before.copy(this.#memory)
    this.#onMemory(size - before.length)
  }
}

/** What becomes of an exchange; `switched` is a WebSocket or its like, which is passed through. */
export type ExchangeState = 'open' | 'answered' | 'switched' | 'failed'

export interface RecordedHead {
  /** Names as they came. */
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

/** One request and what was answered. In memory alone, with all that was sent, secrets too. */
export interface RecordedExchange {
  /** Counts up, from 1 at the start of the inspection. */
  readonly number: number
  /** Milliseconds since the epoch. */
  readonly startedAt: number
  readonly request: RecordedRequest
  /** The number of the one that this repeats. */
  readonly replayOf: number | undefined
  readonly state: ExchangeState
  readonly response: RecordedResponse | undefined
  /** Until the answer was whole; undefined while it is not. */
  readonly durationMs: number | undefined
  readonly error: string | undefined
}

type Change = Partial<Pick<RecordedExchange, 'state' | 'response' | 'durationMs' | 'error'>>

/** The newest exchanges of one tunnel, bounded in number and in bytes. */
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

  /** A body whose bytes count for this exchange. */
  bodyOf(number: number): RecordedBody {
    return new RecordedBody((bytes) => this.#count(number, bytes))
  }

  /** Nothing happens to one that has made room by now. */
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

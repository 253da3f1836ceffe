import { ChunkedBody } from './chunked-body.ts'
import { type BodyFraming, CHUNKED, UNTIL_CLOSE } from './http-syntax.ts'

/** Knows where a body ends while its bytes pass by. */
export class BodyTracker {
  #remaining: number
  readonly #chunked: ChunkedBody | undefined

  /** `kind`: how strictly chunks are read, see ChunkedBody. */
  constructor(framing: BodyFraming, kind: 'request' | 'response' = 'request') {
    this.#remaining = framing === UNTIL_CLOSE ? Number.POSITIVE_INFINITY : Math.max(0, framing)
    this.#chunked = framing === CHUNKED ? new ChunkedBody(kind) : undefined
  }

  /** Never true for a body that lasts until the connection closes. */
  get isDone(): boolean {
    return this.#chunked ? this.#chunked.isDone : this.#remaining === 0
  }

  /** Chunks that have begun so far; none in a body of another framing. */
  get chunks(): number {
    return this.#chunked?.chunks ?? 0
  }

  /** Trailers of a chunked body, name and value in turn. */
  get trailers(): readonly string[] {
    return this.#chunked?.trailers ?? []
  }

  /**
   * Answers the offset behind the last byte of `chunk` that belongs to the body; its content,
   * without chunk lines, is added to `content`, when given. Throws HttpSyntaxError.
   */
  advance(chunk: Buffer, from: number, content?: Buffer[]): number {
    if (this.#chunked) return this.#chunked.advance(chunk, from, content)
    const end = Math.min(chunk.length, from + this.#remaining)
    this.#remaining -= end - from
    if (end > from) content?.push(chunk.subarray(from, end))
    return end
  }

  /**
   * As `advance`, with the bytes that go on: those of the body, with chunk lines in strict form.
   * They may be empty while a line is not complete.
   */
  passOn(chunk: Buffer, from: number): { end: number; bytes: Buffer } {
    if (this.#chunked) {
      const strict: Buffer[] = []
      const end = this.#chunked.advance(chunk, from, undefined, strict)
      return { end, bytes: joined(strict) }
    }
    const end = this.advance(chunk, from)
    return { end, bytes: end - from === chunk.length ? chunk : chunk.subarray(from, end) }
  }

  /** The content of a chunk that belongs to the body as a whole, in one piece. */
  decode(chunk: Buffer): Buffer {
    const content: Buffer[] = []
    this.advance(chunk, 0, content)
    return joined(content)
  }
}

/** One buffer instead of many: a body may come in chunks of a byte each. */
export function joined(parts: readonly Buffer[]): Buffer {
  const [only] = parts
  return only && parts.length === 1 ? only : Buffer.concat(parts)
}

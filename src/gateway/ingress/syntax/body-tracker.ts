import { ChunkedBody } from './chunked-body.ts'
import { type BodyFraming, CHUNKED, UNTIL_CLOSE } from './http-syntax.ts'

/** Finds the end of a body while its bytes pass. */
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

  /** Number of chunks that have begun; 0 for other framings. */
  get chunks(): number {
    return this.#chunked?.chunks ?? 0
  }

  /** Trailers of a chunked body; alternates name and value. */
  get trailers(): readonly string[] {
    return this.#chunked?.trailers ?? []
  }

  /**
   * Returns the offset after the last byte of the body in `chunk`. Adds the content without chunk lines to
   * `content`, if given. Throws HttpSyntaxError.
   */
  advance(chunk: Buffer, from: number, content?: Buffer[]): number {
    if (this.#chunked) return this.#chunked.advance(chunk, from, content)
    const end = Math.min(chunk.length, from + this.#remaining)
    this.#remaining -= end - from
    if (end > from) content?.push(chunk.subarray(from, end))
    return end
  }

  /**
   * Like `advance`, but also returns the bytes to send on: the body, with chunk lines in strict form. They
   * may be empty while a line is incomplete.
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

  /** Returns the content of a chunk that belongs entirely to the body, as one buffer. */
  decode(chunk: Buffer): Buffer {
    const content: Buffer[] = []
    this.advance(chunk, 0, content)
    return joined(content)
  }
}

/** Joins many buffers: a body may arrive in chunks of one byte. */
export function joined(parts: readonly Buffer[]): Buffer {
  const [only] = parts
  return only && parts.length === 1 ? only : Buffer.concat(parts)
}

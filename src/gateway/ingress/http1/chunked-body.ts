import { BYTE_CLASS, TOKEN } from './byte-class.ts'
import { type HeadLimits, HeadScanner } from './head-scanner.ts'
import { HttpSyntaxError } from './http-syntax-error.ts'
import { mayTrail } from './trailer-field.ts'

/** Hexadecimal digits of a chunk size; 48 bits are counted exactly. */
const MAX_SIZE_DIGITS = 12
/** Above it a server that counts with 32 bits sees another end of the chunk. */
const MAX_CHUNK_BYTES = 2 ** 31 - 1
/** Bytes of size and extensions of one chunk. */
const MAX_CHUNK_LINE_BYTES = 1_024
const TRAILER_LIMITS: HeadLimits = { maxBytes: 16_384, maxFields: 64 }

/** What the next byte belongs to. */
const AT_SIZE = 0
const IN_SIZE = 1
const AT_EXTENSION = 2
const IN_EXTENSION = 3
const AT_EXTENSION_VALUE = 4
const IN_EXTENSION_VALUE = 5
const AFTER_SIZE_CR = 6
const IN_CONTENT = 7
const AFTER_CONTENT = 8
const AFTER_CONTENT_CR = 9
const IN_TRAILERS = 10
const DONE = 11

const CR = 0x0d
const LF = 0x0a
const SEMICOLON = 0x3b
const EQUALS = 0x3d

/**
 * Follows a chunked body (RFC 9112 7.1) as it passes by. Strict: an extension is `;name` or
 * `;name=token`, and a trailer is not what should have come before.
 */
export class ChunkedBody {
  #state = AT_SIZE
  #size = 0
  #lineBytes = 0
  readonly #scanner = new HeadScanner(TRAILER_LIMITS, 'trailers')
  #trailers: readonly string[] = []

  /** Name and value in turn; known when it is done. */
  get trailers(): readonly string[] {
    return this.#trailers
  }

  get isDone(): boolean {
    return this.#state === DONE
  }

  /**
   * Answers the offset behind the last byte of `chunk` that belongs to the body; what stands
   * between the chunk lines is added to `content`, when given. Throws HttpSyntaxError.
   */
  advance(chunk: Buffer, from: number, content?: Buffer[]): number {
    let at = from
    while (at < chunk.length && this.#state !== DONE) {
      if (this.#state === IN_CONTENT) {
        const end = Math.min(chunk.length, at + this.#size)
        content?.push(chunk.subarray(at, end))
        this.#size -= end - at
        if (this.#size === 0) this.#state = AFTER_CONTENT
        at = end
      } else if (this.#state === IN_TRAILERS) {
        at = this.#readTrailers(chunk, at)
      } else {
        this.#state = this.#next(chunk[at] as number)
        at += 1
      }
    }
    return at
  }

  /** The state after one byte outside of content and trailers. */
  #next(byte: number): number {
    switch (this.#state) {
      case AT_SIZE:
        this.#size = hexValue(byte)
        this.#lineBytes = 1
        return IN_SIZE
      case AFTER_SIZE_CR:
        expect(byte, LF)
        if (this.#size > MAX_CHUNK_BYTES) throw new HttpSyntaxError('a chunk of 2 GiB or more')
        return this.#size === 0 ? IN_TRAILERS : IN_CONTENT
      case AFTER_CONTENT:
        expect(byte, CR)
        return AFTER_CONTENT_CR
      case AFTER_CONTENT_CR:
        expect(byte, LF)
        return AT_SIZE
      default:
        this.#lineBytes += 1
        return this.#nextInLine(byte)
    }
  }

  #nextInLine(byte: number): number {
    const isSize = this.#state === IN_SIZE
    if (this.#lineBytes > (isSize ? MAX_SIZE_DIGITS + 1 : MAX_CHUNK_LINE_BYTES)) {
      throw new HttpSyntaxError('a chunk line that is too long')
    }
    const isPartDone = isSize || this.#state === IN_EXTENSION || this.#state === IN_EXTENSION_VALUE
    if (isPartDone && byte === CR) return AFTER_SIZE_CR
    if (isPartDone && byte === SEMICOLON) return AT_EXTENSION
    if (isSize) {
      this.#size = this.#size * 16 + hexValue(byte)
      return IN_SIZE
    }
    if (this.#state === IN_EXTENSION && byte === EQUALS) return AT_EXTENSION_VALUE
    if (((BYTE_CLASS[byte] as number) & TOKEN) === 0) {
      throw new HttpSyntaxError('a chunk extension that is no token')
    }
    return this.#state <= IN_EXTENSION ? IN_EXTENSION : IN_EXTENSION_VALUE
  }

  #readTrailers(chunk: Buffer, from: number): number {
    const end = this.#scanner.scan(chunk, from)
    if (end === -1) return chunk.length
    const { fields } = this.#scanner.take()
    for (let at = 0; at < fields.length; at += 2) {
      const name = fields[at] as string
      if (!mayTrail(name)) throw new HttpSyntaxError(`${name} as a trailer`)
    }
    this.#trailers = fields
    this.#state = DONE
    return end
  }
}

function expect(byte: number, wanted: number): void {
  if (byte !== wanted) throw new HttpSyntaxError('a chunk that does not end where it said')
}

function hexValue(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30
  const letter = byte | 0x20
  if (letter >= 0x61 && letter <= 0x66) return letter - 0x57
  throw new HttpSyntaxError('a chunk size that is no number')
}

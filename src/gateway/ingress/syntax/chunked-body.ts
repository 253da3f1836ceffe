import { type HeadLimits, HeadScanner } from './head-scanner.ts'
import { BYTE_CLASS, HttpSyntaxError, TOKEN, VALUE } from './http-syntax.ts'
import { formatFields, mayTrail } from './message-fields.ts'

/** Hexadecimal digits of a chunk size; 48 bits are counted exactly. */
const MAX_SIZE_DIGITS = 12
/** Above it a server that counts with 32 bits sees another end of the chunk. */
const MAX_CHUNK_BYTES = 2 ** 31 - 1
/** Bytes of size and extensions of one chunk. */
const MAX_CHUNK_LINE_BYTES = 1_024
const TRAILER_LIMITS: HeadLimits = { maxBytes: 16_384, maxFields: 64 }

/** Meaning of the next byte. */
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
/** Only in a response: between a padded size and the end of its line. */
const AFTER_SIZE = 12
/** Only in a response: an extension is skipped. */
const IN_SKIPPED_EXTENSION = 13

const CR = 0x0d
const LF = 0x0a
const SEMICOLON = 0x3b
const EQUALS = 0x3d
const SPACE = 0x20
const TAB = 0x09
const CRLF = Buffer.from('\r\n')
const NOTHING = Buffer.alloc(0)

/**
 * Follows a chunked body (RFC 9112 7.1) as it passes by.
 *
 * A request is read strictly: an extension is `;name` or `;name=token`, and a trailer is not a
 * field that belongs before the body. A response of a device is read leniently, as nginx and curl
 * do: blanks after a size, lines that end with a bare LF, any extension. It goes on in strict form
 * (see `advance`), so that no later reader sees another end of the body.
 */
export class ChunkedBody {
  readonly #isLenient: boolean
  #state = AT_SIZE
  #size = 0
  #lineBytes = 0
  /** The line so far is the size alone, as the strict form has it. */
  #isPlainLine = true
  #chunks = 0
  readonly #scanner: HeadScanner
  #trailers: readonly string[] = []
  readonly #strict = new StrictForm()

  constructor(kind: 'request' | 'response' = 'request') {
    this.#isLenient = kind === 'response'
    this.#scanner = new HeadScanner(
      TRAILER_LIMITS,
      this.#isLenient ? 'response-trailers' : 'trailers',
    )
  }

  /** Name and value in turn; known when it is done. */
  get trailers(): readonly string[] {
    return this.#trailers
  }

  /** Chunks that have begun so far. */
  get chunks(): number {
    return this.#chunks
  }

  get isDone(): boolean {
    return this.#state === DONE
  }

  /**
   * Returns the offset after the last byte of the body in `chunk`. Content between chunk lines is added to
   * `content`, and the same with strict chunk lines to `strict`, if given. Throws HttpSyntaxError.
   */
  advance(chunk: Buffer, from: number, content?: Buffer[], strict?: Buffer[]): number {
    this.#strict.begin(chunk, from, strict)
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
        this.#state = this.#next(chunk[at] as number, at)
        at += 1
      }
    }
    this.#strict.end(at)
    return at
  }

  /** The state after one byte outside of content and trailers; `at` is its place. */
  #next(byte: number, at: number): number {
    switch (this.#state) {
      case AT_SIZE:
        this.#size = hexValue(byte)
        this.#lineBytes = 1
        this.#isPlainLine = true
        this.#strict.holdBack(at)
        return IN_SIZE
      case AFTER_SIZE_CR:
        expect(byte, LF)
        return this.#endSizeLine(at)
      case AFTER_CONTENT:
        if (byte === LF && this.#isLenient) {
          this.#strict.holdBack(at)
          this.#strict.replaceWith(CRLF, at + 1)
          return AT_SIZE
        }
        expect(byte, CR)
        return AFTER_CONTENT_CR
      case AFTER_CONTENT_CR:
        expect(byte, LF)
        return AT_SIZE
      default:
        this.#lineBytes += 1
        return this.#nextInLine(byte, at)
    }
  }

  #nextInLine(byte: number, at: number): number {
    const isSize = this.#state === IN_SIZE
    if (this.#lineBytes > (isSize ? MAX_SIZE_DIGITS + 1 : MAX_CHUNK_LINE_BYTES)) {
      throw new HttpSyntaxError('a chunk line over the size limit')
    }
    if (isSize && this.#isLenient && !isEndOfSize(byte)) return this.#addDigit(byte)
    if (this.#isLenient) return this.#nextInLenientLine(byte, at)
    const isPartDone = isSize || this.#state === IN_EXTENSION || this.#state === IN_EXTENSION_VALUE
    if (isPartDone && byte === CR) return AFTER_SIZE_CR
    if (isPartDone && byte === SEMICOLON) return AT_EXTENSION
    if (isSize) return this.#addDigit(byte)
    if (this.#state === IN_EXTENSION && byte === EQUALS) return AT_EXTENSION_VALUE
    if (((BYTE_CLASS[byte] as number) & TOKEN) === 0) {
      throw new HttpSyntaxError('an invalid chunk extension')
    }
    return this.#state <= IN_EXTENSION ? IN_EXTENSION : IN_EXTENSION_VALUE
  }

  /** After the digits of a size: blanks, then an extension of any form, then the end of the line. */
  #nextInLenientLine(byte: number, at: number): number {
    if (byte === CR) return AFTER_SIZE_CR
    this.#isPlainLine = false
    if (byte === LF) return this.#endSizeLine(at)
    if (this.#state === IN_SKIPPED_EXTENSION || byte === SEMICOLON) {
      if (((BYTE_CLASS[byte] as number) & VALUE) === 0) {
        throw new HttpSyntaxError('a control character in a chunk extension')
      }
      return IN_SKIPPED_EXTENSION
    }
    if (byte !== SPACE && byte !== TAB) throw new HttpSyntaxError('an invalid chunk size')
    return AFTER_SIZE
  }

  #addDigit(byte: number): number {
    this.#size = this.#size * 16 + hexValue(byte)
    return IN_SIZE
  }

  /** The line with the size ends at `at`. */
  #endSizeLine(at: number): number {
    if (this.#size > MAX_CHUNK_BYTES) throw new HttpSyntaxError('a chunk of 2 GiB or more')
    const isKept = this.#isPlainLine && this.#strict.keep()
    if (!isKept) this.#strict.replaceWith(Buffer.from(`${this.#size.toString(16)}\r\n`), at + 1)
    this.#chunks += 1
    if (this.#size > 0) return IN_CONTENT
    this.#strict.holdBack(at + 1)
    return IN_TRAILERS
  }

  #readTrailers(chunk: Buffer, from: number): number {
    const end = this.#scanner.scan(chunk, from)
    if (end === -1) return chunk.length
    const { fields } = this.#scanner.takeHead()
    for (let at = 0; at < fields.length; at += 2) {
      const name = fields[at] as string
      if (!mayTrail(name)) throw new HttpSyntaxError(`${name} as a trailer`)
    }
    this.#trailers = fields
    this.#state = DONE
    // Only the empty line, complete and in strict form: it stays with the preceding data.
    const isKept = fields.length === 0 && end - from === CRLF.length && this.#strict.keep()
    if (!isKept) this.#strict.replaceWith(Buffer.from(`${formatFields(fields)}\r\n`, 'latin1'), end)
    return end
  }
}

/**
 * Bytes of a body to send on: unchanged, except for lines that were held back and replaced. Without a target
 * it does nothing.
 */
class StrictForm {
  #target: Buffer[] | undefined
  #chunk: Buffer = NOTHING
  /** Offset after which nothing of the chunk has been passed on. */
  #from = 0
  /** Start of the held line; -1: in an earlier chunk, or none. */
  #heldFrom = -1
  #isHolding = false

  begin(chunk: Buffer, from: number, target: Buffer[] | undefined): void {
    this.#target = target
    this.#chunk = chunk
    this.#from = from
    this.#heldFrom = -1
  }

  /** Holds back the data from `at` until it is known to be in strict form. */
  holdBack(at: number): void {
    this.#heldFrom = at
    this.#isHolding = true
  }

  /** Passes the held data on unchanged. False if a part of it is in an earlier chunk. */
  keep(): boolean {
    if (this.#heldFrom === -1) return false
    this.#isHolding = false
    return true
  }

  /** Replaces the held data, which ends before `until`, by `bytes`. */
  replaceWith(bytes: Buffer, until: number): void {
    if (this.#heldFrom !== -1) this.#pass(this.#heldFrom)
    this.#target?.push(bytes)
    this.#from = until
    this.#isHolding = false
  }

  /** Marks the chunk as read up to `at`. */
  end(at: number): void {
    if (!this.#isHolding) this.#pass(at)
    else if (this.#heldFrom !== -1) this.#pass(this.#heldFrom)
    this.#chunk = NOTHING
    this.#target = undefined
  }

  #pass(until: number): void {
    if (until > this.#from) this.#target?.push(this.#chunk.subarray(this.#from, until))
    this.#from = until
  }
}

function isEndOfSize(byte: number): boolean {
  return byte === CR || byte === LF || byte === SEMICOLON || byte === SPACE || byte === TAB
}

function expect(byte: number, wanted: number): void {
  if (byte !== wanted) throw new HttpSyntaxError('a chunk longer than its declared size')
}

function hexValue(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30
  const letter = byte | 0x20
  if (letter >= 0x61 && letter <= 0x66) return letter - 0x57
  throw new HttpSyntaxError('an invalid chunk size')
}

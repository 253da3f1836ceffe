import { GrowingBuffer } from './growing-buffer.ts'
import {
  BYTE_CLASS,
  HttpSyntaxError,
  LINE,
  MAX_KEPT_BYTES,
  ownBytes,
  TOKEN,
  VALUE,
} from './http-syntax.ts'

export interface HeadLimits {
  readonly maxBytes: number
  readonly maxFields: number
}

export const HEAD_LIMITS: HeadLimits = { maxBytes: 65_536, maxFields: 256 }

export type HeadKind = 'request' | 'response' | 'trailers' | 'response-trailers'

/** Start line and fields of a message. */
export interface ScannedHead {
  readonly line: string
  /** Alternates name and value as they came. */
  readonly fields: readonly string[]
  /** Whether the scanner returns this same array for the next head with the same bytes of fields. */
  readonly recurs?: boolean
  /** Whether the scanner returns this same object for the next head with the same bytes. */
  readonly repeats?: boolean
}

/** After as many heads in turn that look as if they recurred, the scanner compares no more. */
const MAX_MISSES = 4

/** The bytes after a start line, with the fields that they contain. */
interface KeptFields {
  readonly bytes: Buffer
  readonly fields: readonly string[]
  /** The last head with these fields that came twice, and the bytes of its start line. */
  repeated: { readonly lineBytes: Buffer; readonly head: ScannedHead } | undefined
}

/** What the scanners of one sender's messages keep for each other. */
interface SharedFields {
  kept: KeptFields | undefined
  /** Of the last fields that a scanner read. */
  lastLength: number
  lastSum: number | undefined
}

const SHARED = new WeakMap<object, SharedFields>()

/** Meaning of the next byte. */
const AT_START = 0
const AFTER_LEADING_CR = 1
const IN_LINE = 2
const AFTER_LINE_CR = 3
const AT_FIELD = 4
const IN_NAME = 5
const BEFORE_VALUE = 6
const IN_VALUE = 7
const AFTER_VALUE_CR = 8
const AFTER_LAST_CR = 9
const AT_END = 10
const AFTER_NAME = 11

const CR = 0x0d
const LF = 0x0a
const COLON = 0x3a
const SPACE = 0x20
const TAB = 0x09

/**
 * Finds the parts of a message head (RFC 9112 2 to 5), each byte once however the chunks are cut.
 * Fields with the same bytes as those before are not read again: most clients and services repeat them.
 * Strict: no bare CR or LF, no control characters, no folding, no space before a colon. A response
 * of a device may end its lines with a bare LF (RFC 9112 2.2) and have blanks before a colon, which
 * a proxy removes (RFC 9112 5.1): servers of small devices do both. It goes on in strict form.
 */
export class HeadScanner {
  readonly #limits: HeadLimits
  readonly #firstState: number
  readonly #isLenient: boolean
  #state: number
  /** Offsets into the head: begin and end of the line, then of each name and value in turn. */
  readonly #marks: number[] = []
  /** The head so far, when it comes in more than one chunk. */
  readonly #held = new GrowingBuffer()
  #text = ''
  #kept: KeptFields | undefined
  /** Start line of the last head whose fields were the kept ones; empty if it was long. */
  #lastLine = ''
  /** The head that was found by the kept fields. */
  #known: ScannedHead | undefined
  /** Length of the last fields, and their sum if the fields before had the same length. */
  #lastLength = 0
  #lastSum: number | undefined
  #misses = 0
  #sender: object | undefined

  /** `trailers` have no start line: the fields come at once (RFC 9112 7.1.2). */
  constructor(limits: HeadLimits = HEAD_LIMITS, kind: HeadKind = 'request') {
    this.#limits = limits
    const isTrailers = kind === 'trailers' || kind === 'response-trailers'
    this.#isLenient = kind === 'response' || kind === 'response-trailers'
    this.#firstState = isTrailers ? AT_FIELD : AT_START
    this.#state = this.#firstState
    if (isTrailers) this.#marks.push(0, 0)
  }

  /** True between the first chunk of a head and its last. */
  get isPartial(): boolean {
    return this.heldBytes > 0
  }

  /** Bytes of a head that has not come as a whole. */
  get heldBytes(): number {
    return this.#held.length
  }

  /**
   * Reads `chunk` from `from`. Answers the offset behind the head, which `takeHead()` then returns, or -1
   * when the head goes on in the next chunk. Throws HttpSyntaxError. Scanners with the same `sender` also
   * know the fields that another one has kept: a service gives the same ones to all its clients.
   */
  scan(chunk: Buffer, from: number, sender?: object): number {
    this.#sender = sender
    if (this.#held.length > 0) return this.#resume(chunk, from)
    if (this.#kept) {
      const end = this.#scanLine(chunk, from, this.#kept)
      if (end !== -1) return end
    }
    const shared = sender && SHARED.get(sender)?.kept
    if (shared && shared !== this.#kept) {
      const end = this.#scanLine(chunk, from, shared)
      if (end !== -1) {
        this.#kept = shared
        this.#misses = 0
        return end
      }
    }
    const until = Math.min(chunk.length, from + this.#limits.maxBytes)
    const end = this.#advance(chunk, from, from, until)
    if (end === -1) this.#held.append(chunk, from, until)
    else this.#text = chunk.toString('latin1', from, end)
    return end
  }

  /** The head that `scan` has completed; the scanner is ready for the next one. */
  takeHead(): ScannedHead {
    const known = this.#known
    if (known !== undefined) {
      this.#known = undefined
      return known
    }
    const text = this.#text
    const marks = this.#marks
    const fields: string[] = []
    for (let at = 2; at < marks.length; at += 2) {
      fields.push(text.slice(marks[at], marks[at + 1]))
    }
    const line = text.slice(marks[0], marks[1])
    const kept = this.#keep()
    this.reset()
    if (!kept) return { line, fields, recurs: false }
    this.#lastLine = line.length <= MAX_KEPT_BYTES ? line : ''
    return { line, fields: kept.fields, recurs: true }
  }

  /** Drops what it keeps for the next head. */
  forget(): void {
    this.#sender = undefined
    this.#kept = undefined
    this.#lastLine = ''
    this.#lastLength = 0
    this.#lastSum = undefined
  }

  /** Discards a partial head. */
  reset(): void {
    this.#state = this.#firstState
    this.#text = ''
    this.#known = undefined
    if (this.#held.length > 0) this.#held.clear()
    this.#marks.length = 0
  }

  /**
   * Keeps the fields of the scanned head if those of the two heads before were probably the same: at first
   * their length is compared, then a sum of the bytes. The heads before are those of this scanner, or of all
   * scanners of the sender.
   */
  #keep(): KeptFields | undefined {
    const text = this.#text
    const marks = this.#marks
    if (this.#firstState !== AT_START || this.#misses >= MAX_MISSES) return undefined
    const lineEnd = marks[1] as number
    const length = text.length - lineEnd
    const shared = this.#shared()
    const isLike = length === this.#lastLength || length === shared?.lastLength
    const sum = isLike && length <= MAX_KEPT_BYTES ? sumOf(text, lineEnd) : undefined
    const before = this.#lastSum
    const isSame = sum !== undefined && (sum === before || sum === shared?.lastSum)
    this.#lastLength = length
    this.#lastSum = sum
    if (shared) {
      shared.lastLength = length
      shared.lastSum = sum
    }
    if (!isSame) {
      if (sum !== undefined && before !== undefined) this.#misses += 1
      return undefined
    }
    this.#misses = 0
    // Slices of the scanned text would keep all of it, with a long start line.
    const bytes = ownBytes(text.slice(lineEnd))
    const own = bytes.toString('latin1')
    const fields: string[] = []
    for (let at = 2; at < marks.length; at += 2) {
      fields.push(own.slice((marks[at] as number) - lineEnd, (marks[at + 1] as number) - lineEnd))
    }
    this.#kept = { bytes, fields, repeated: undefined }
    if (shared) shared.kept = this.#kept
    return this.#kept
  }

  #shared(): SharedFields | undefined {
    const sender = this.#sender
    if (!sender) return undefined
    const known = SHARED.get(sender)
    if (known) return known
    const shared = { kept: undefined, lastLength: 0, lastSum: undefined }
    SHARED.set(sender, shared)
    return shared
  }

  /**
   * Reads a start line that `kept` follows, which begins with the end of that line. Returns -1 for any other
   * head, also for one with a fault.
   */
  #scanLine(chunk: Buffer, from: number, kept: KeptFields): number {
    const { bytes, repeated } = kept
    const lineEnd = skip(chunk, from, chunk.length, LINE)
    const end = lineEnd + bytes.length
    if (lineEnd === from || end > chunk.length || end - from > this.#limits.maxBytes) return -1
    if (!isAt(bytes, chunk, lineEnd)) return -1
    const isSame =
      repeated?.lineBytes.length === lineEnd - from && isAt(repeated.lineBytes, chunk, from)
    this.#known = isSame
      ? repeated.head
      : this.#headOf(chunk.toString('latin1', from, lineEnd), kept)
    return end
  }

  /** Keeps the head if the start line before was the same. */
  #headOf(line: string, kept: KeptFields): ScannedHead {
    const repeats = line === this.#lastLine
    const head = { line, fields: kept.fields, recurs: true, repeats }
    if (repeats) kept.repeated = { lineBytes: ownBytes(line), head }
    this.#lastLine = line.length <= MAX_KEPT_BYTES ? line : ''
    return head
  }

  #resume(chunk: Buffer, from: number): number {
    const before = this.#held.length
    const until = Math.min(chunk.length, from + this.#limits.maxBytes - before)
    this.#held.append(chunk, from, until)
    const { bytes, length } = this.#held
    const end = this.#advance(bytes, 0, before, length)
    if (end === -1) return -1
    this.#text = bytes.toString('latin1', 0, end)
    return from + end - before
  }

  /** Runs the states over `bytes`, where the head begins at `start`. Answers its end, or -1. */
  #advance(bytes: Buffer, start: number, from: number, until: number): number {
    const marks = this.#marks
    let state = this.#state
    let at = from
    while (at < until) {
      switch (state) {
        case IN_LINE:
          at = skip(bytes, at, until, LINE)
          if (at < until) state = this.#endLine(bytes, start, at++)
          break
        case IN_NAME:
          at = skip(bytes, at, until, TOKEN)
          if (at < until) state = this.#endName(bytes, start, at++)
          break
        case BEFORE_VALUE:
          while (at < until && isBlank(bytes[at])) at += 1
          if (at === until) break
          marks.push(at - start)
          state = IN_VALUE
          break
        case IN_VALUE:
          at = skip(bytes, at, until, VALUE)
          if (at < until) state = this.#endValue(bytes, start, at++)
          break
        case AFTER_NAME:
          while (at < until && isBlank(bytes[at])) at += 1
          if (at === until) break
          if (bytes[at] !== COLON) throw new HttpSyntaxError(`${name(bytes[at])} in a field name`)
          at += 1
          state = BEFORE_VALUE
          break
        case AT_START:
          state = this.#startLine(bytes, start, at)
          if (state === AFTER_LEADING_CR) at += 1
          break
        case AT_FIELD:
          state = this.#startField(bytes, start, at++)
          if (state === AT_END) return at
          break
        default:
          if (bytes[at++] !== LF) throw new HttpSyntaxError('a bare CR')
          if (state === AFTER_LAST_CR) return at
          state = state === AFTER_LEADING_CR ? IN_LINE : AT_FIELD
          if (state === IN_LINE) marks.push(at - start)
      }
    }
    this.#state = state
    if (until - start >= this.#limits.maxBytes) {
      throw new HttpSyntaxError(`more than ${this.#limits.maxBytes} bytes`, 'too-large')
    }
    return -1
  }

  /** One empty line before a start line is ignored (RFC 9112 2.2). */
  #startLine(bytes: Buffer, start: number, at: number): number {
    if (bytes[at] === CR) return AFTER_LEADING_CR
    this.#marks.push(at - start)
    return IN_LINE
  }

  #endLine(bytes: Buffer, start: number, at: number): number {
    const next = this.#lineEnd(bytes[at], AFTER_LINE_CR)
    if (next === undefined) throw new HttpSyntaxError(`${name(bytes[at])} in the start line`)
    this.#marks.push(at - start)
    return next
  }

  #startField(bytes: Buffer, start: number, at: number): number {
    const byte = bytes[at] as number
    if (byte === CR) return AFTER_LAST_CR
    if (byte === LF && this.#isLenient) return AT_END
    if (isBlank(byte)) throw new HttpSyntaxError('a folded field')
    if (((BYTE_CLASS[byte] as number) & TOKEN) === 0) {
      throw new HttpSyntaxError(`${name(byte)} at the start of a field`)
    }
    if (this.#marks.length >= 2 + 4 * this.#limits.maxFields) {
      throw new HttpSyntaxError(`more than ${this.#limits.maxFields} fields`, 'too-large')
    }
    this.#marks.push(at - start)
    return IN_NAME
  }

  #endName(bytes: Buffer, start: number, at: number): number {
    const isPadded = this.#isLenient && isBlank(bytes[at])
    if (bytes[at] !== COLON && !isPadded) {
      throw new HttpSyntaxError(`${name(bytes[at])} in a field name`)
    }
    this.#marks.push(at - start)
    return isPadded ? AFTER_NAME : BEFORE_VALUE
  }

  #endValue(bytes: Buffer, start: number, at: number): number {
    const next = this.#lineEnd(bytes[at], AFTER_VALUE_CR)
    if (next === undefined) throw new HttpSyntaxError(`${name(bytes[at])} in a field value`)
    const begin = this.#marks[this.#marks.length - 1] as number
    let end = at
    while (end > start + begin && isBlank(bytes[end - 1])) end -= 1
    this.#marks.push(end - start)
    return next
  }

  /** State after the byte that ends a line; undefined if it does not. */
  #lineEnd(byte: number | undefined, afterCr: number): number | undefined {
    if (byte === CR) return afterCr
    return byte === LF && this.#isLenient ? AT_FIELD : undefined
  }
}

function skip(bytes: Buffer, from: number, until: number, bits: number): number {
  let at = from
  while (at < until && ((BYTE_CLASS[bytes[at] as number] as number) & bits) !== 0) at += 1
  return at
}

/** Whether `bytes` are in `chunk` at this offset. For so few bytes, a loop is faster than a call of Node. */
function isAt(bytes: Buffer, chunk: Buffer, at: number): boolean {
  for (let index = 0; index < bytes.length; index += 1) {
    if (bytes[index] !== chunk[at + index]) return false
  }
  return true
}

/** Sum of the characters from `from` on (FNV-1a, 32 bits). */
function sumOf(text: string, from: number): number {
  let sum = 0x811c9dc5
  for (let at = from; at < text.length; at += 1) {
    sum = Math.imul(sum ^ text.charCodeAt(at), 0x01000193)
  }
  return sum
}

function isBlank(byte: number | undefined): boolean {
  return byte === SPACE || byte === TAB
}

/** Name of a refused byte for the response, which never contains the byte itself. */
function name(byte: number | undefined): string {
  switch (byte) {
    case 0:
      return 'a NUL'
    case LF:
      return 'a bare LF'
    case CR:
      return 'a line without a colon'
    case SPACE:
    case TAB:
      return 'a space'
    case COLON:
      return 'a colon'
    default:
      return 'an invalid character'
  }
}

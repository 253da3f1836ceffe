import { MuxadoError } from './error-code.ts'

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d
const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d
const WHITE_SPACE = [0x20, 0x09, 0x0a, 0x0d]

/**
 * Reads one JSON object (RFC 8259) from chunks and knows by its braces where it ends, because the
 * sender does not say so. Each byte is looked at once, however the text is cut.
 */
export class JsonReader {
  readonly #maxBytes: number
  readonly #chunks: Buffer[] = []
  #bytes = 0
  #depth = 0
  #inString = false
  #escaped = false

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  /**
   * The object once it is whole, undefined before; what follows it is ignored. Throws MuxadoError
   * 'message-too-large' or 'message-invalid'.
   */
  push(chunk: Buffer): unknown {
    const end = this.#findEnd(chunk)
    const part = chunk.subarray(0, end)
    this.#bytes += part.length
    if (this.#bytes > this.#maxBytes) {
      throw new MuxadoError('message-too-large', `the message exceeds ${this.#maxBytes} bytes`)
    }
    this.#chunks.push(part)
    if (end === undefined) return undefined
    try {
      return JSON.parse(Buffer.concat(this.#chunks).toString())
    } catch (cause) {
      throw new MuxadoError('message-invalid', 'the message is not JSON', { cause })
    }
  }

  /** The offset behind the object's last byte. */
  #findEnd(chunk: Buffer): number | undefined {
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at] ?? 0
      if (this.#depth === 0) this.#begin(byte)
      else if (this.#inString) this.#stepString(byte)
      else if (byte === QUOTE) this.#inString = true
      else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) this.#depth += 1
      else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        this.#depth -= 1
        if (this.#depth === 0) return at + 1
      }
    }
    return undefined
  }

  #begin(byte: number): void {
    if (byte === OPEN_BRACE) this.#depth = 1
    else if (!WHITE_SPACE.includes(byte)) {
      throw new MuxadoError('message-invalid', 'the message is not a JSON object')
    }
  }

  #stepString(byte: number): void {
    if (this.#escaped) this.#escaped = false
    else if (byte === BACKSLASH) this.#escaped = true
    else if (byte === QUOTE) this.#inString = false
  }
}

import type { Clock } from '../base/clock.ts'
import { ErrorCode, MuxadoError } from './error-code.ts'
import { openTyped, type Session } from './session.ts'
import { DEAF, type Stream } from './stream.ts'

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d
const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d
const WHITE_SPACE = [0x20, 0x09, 0x0a, 0x0d]

/**
 * Reads one JSON object (RFC 8259) from chunks. Finds its end by counting brackets, because the sender does
 * not mark it. Looks at each byte once, however the text is split.
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
   * Returns the object when it is complete, undefined before that. Ignores later bytes. Throws MuxadoError
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

  /** Returns the offset after the object's last byte. */
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

/**
 * Bytes dropped of a message that was answered before its end. The stream is reset if the peer sends more.
 */
const MAX_DROPPED_BYTES = 16_777_216

interface MessageLimits {
  readonly maxBytes: number
  readonly deadlineMs: number
  readonly clock: Clock
}

/**
 * Reads one JSON object without waiting for a FIN, which the SDK does not send.
 *
 * Rejects with MuxadoError 'message-too-large', 'message-invalid', 'message-timeout', or the reason why the
 * stream closed. The stream can then still be answered or retired.
 */
export async function readMessage(stream: Stream, limits: MessageLimits): Promise<unknown> {
  const { maxBytes, deadlineMs, clock } = limits
  const settled = new AbortController()
  const late = clock.sleep(deadlineMs, settled.signal).then(() => {
    throw new MuxadoError('message-timeout', `no complete message within ${deadlineMs} ms`)
  })
  try {
    return await Promise.race([receiveMessage(stream, maxBytes), late])
  } finally {
    stream.handler = DEAF
    // An explicit reason, because the default one costs a stack trace.
    settled.abort('settled')
  }
}

function receiveMessage(stream: Stream, maxBytes: number): Promise<unknown> {
  const reader = new JsonReader(maxBytes)
  return new Promise((resolve, reject) => {
    stream.handler = {
      ...DEAF,
      onData(chunk) {
        stream.release(chunk.length)
        try {
          const message = reader.push(chunk)
          if (message !== undefined) resolve(message)
        } catch (error) {
          reject(error)
        }
      },
      onEnd: () => reject(new MuxadoError('message-invalid', 'the message is incomplete')),
      onClose: reject,
    }
  })
}

/**
 * Answers with JSON and FIN. Returns the size of the answer in bytes, which wait for the peer to read them.
 *
 * The SDK reads to the end, then closes its side, which calls `onClosed`. It reads nothing before it has sent
 * its whole message. So the rest of the message is granted credit and dropped.
 */
export function answer(stream: Stream, message: unknown, onClosed = () => {}): number {
  let dropped = 0
  const onData = ({ length }: Buffer) => {
    dropped += length
    if (dropped > MAX_DROPPED_BYTES) stream.reset(ErrorCode.streamCancelled)
    else stream.release(length)
  }
  stream.handler = { ...DEAF, onData, onClose: onClosed }
  const bytes = encode(message)
  stream.write(bytes)
  stream.end()
  return bytes.length
}

/** Sends one JSON object on a new stream and reads the answer. */
export async function call(
  session: Session,
  type: number,
  message: unknown,
  limits: MessageLimits,
): Promise<unknown> {
  const stream = openTyped(session, type, DEAF, encode(message))
  try {
    return await readMessage(stream, limits)
  } finally {
    stream.retire()
  }
}

/** Sends one JSON object without expecting an answer. */
export function notify(session: Session, type: number, message: unknown): void {
  openTyped(session, type, DEAF, encode(message)).end()
}

function encode(message: unknown): Buffer {
  return Buffer.from(JSON.stringify(message))
}

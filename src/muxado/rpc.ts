import type { Clock } from '../base/clock.ts'
import { ErrorCode, MuxadoError } from './error-code.ts'
import { JsonReader } from './json-reader.ts'
import type { Session } from './session.ts'
import { DEAF, type Stream } from './stream.ts'
import { openTyped } from './typed-session.ts'

/** What is dropped of a message that was answered before its end; a peer that sends more is cut off. */
const MAX_DROPPED_BYTES = 16_777_216

export interface MessageLimits {
  readonly maxBytes: number
  readonly deadlineMs: number
  readonly clock: Clock
}

/**
 * Reads one JSON object without waiting for a FIN, which the SDK does not send. Rejects with a
 * MuxadoError: 'message-too-large', 'message-invalid', 'message-timeout', or why the stream closed.
 * The stream then still takes an answer, or `retire()`.
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
    // A reason of our own: the default one costs a stack trace.
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
 * Answers with JSON and FIN. A peer that reads to the end, as the SDK does, ends its side when it has
 * the answer: `onClosed` hears of that. It reads nothing before it has sent its message, so what is
 * left of that gets credit and is dropped. Returns the bytes of the answer, which wait for the peer.
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

/** Sends one JSON object on a stream of its own and reads the one that comes back. */
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

/** Sends one JSON object that gets no answer. */
export function notify(session: Session, type: number, message: unknown): void {
  openTyped(session, type, DEAF, encode(message)).end()
}

function encode(message: unknown): Buffer {
  return Buffer.from(JSON.stringify(message))
}

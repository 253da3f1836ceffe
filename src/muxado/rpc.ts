import type { Clock } from '../base/clock.ts'
import type { Session } from './session.ts'
import type { Stream } from './stream.ts'

export interface MessageLimits {
  readonly maxBytes: number
  readonly deadlineMs: number
  readonly clock: Clock
}

/**
 * Reads one JSON object without waiting for a FIN, which the SDK does not send. Rejects with a
 * MuxadoError ('message-too-large', 'message-invalid', 'message-timeout', or why the stream closed);
 * the stream then still takes an answer, or `retire()`.
 */
export function readMessage(_stream: Stream, _limits: MessageLimits): Promise<unknown> {
  return Promise.reject(new Error('not written yet'))
}

/** Answers with JSON and FIN. */
export function answer(stream: Stream, message: unknown): void {
  stream.write(Buffer.from(JSON.stringify(message)))
  stream.end()
}

/** Sends one JSON object on a stream of its own and reads the one that comes back. */
export function call(
  _session: Session,
  _type: number,
  _message: unknown,
  _limits: MessageLimits,
): Promise<unknown> {
  return Promise.reject(new Error('not written yet'))
}

/** Sends one JSON object that gets no answer. */
export function notify(_session: Session, _type: number, _message: unknown): void {}

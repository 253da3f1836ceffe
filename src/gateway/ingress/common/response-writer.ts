import type { BodyTransform } from '../../../policy/exchange/policy-exchange.ts'
import type { BodyFraming } from '../syntax/body-framing.ts'
import type { LocalReply } from './local-reply.ts'

/** A final response as it is to reach the client; `fields` say nothing of the connection yet. */
export interface OutgoingResponse {
  readonly status: number
  readonly reason: string | undefined
  readonly fields: readonly string[]
  /** Of the body that comes. */
  readonly framing: BodyFraming
  /** See `ResponseHead`. */
  readonly contentLength?: number | undefined
  /** What is to be done to the body on the way. */
  readonly transforms: readonly BodyTransform[]
}

export interface ResponseOwner {
  /** After `write()` answered false. */
  onWriterRoom(): void
  /** After `finish()`: all of it is with the client's socket. */
  onWritten(): void
  onTransformError(error: Error): void
}

/** Writes the response to one request, in the form that its client speaks. */
export interface ResponseWriter {
  /** Of the final response; 0 until it is known. */
  readonly status: number
  /** Something of the final response has gone to the client, or is about to. */
  readonly hasBegun: boolean
  /** The client has heard nothing of a device so far. */
  readonly isSilent: boolean
  /** Bytes of the final response so far. */
  readonly bytes: number
  /** Bytes that have come and are not with the client's socket. */
  readonly heldBytes: number
  /** Whether the rest of a request body is worth reading: the connection goes on behind it. */
  readonly keepAlive: boolean
  /** Passes a 1xx on, to a client that can know it (RFC 9110 15.2). */
  interim(status: number, reason: string | undefined, fields: readonly string[]): void
  /** Begins the final response. With `isMore` the head waits for the next `write()` or `finish()`. */
  begin(response: OutgoingResponse, isMore: boolean): void
  /** Takes a part of the body as framed; false: wait for `onWriterRoom`. */
  write(chunk: Buffer): boolean
  /** The body is complete. */
  finish(): void
  /** Sends an answer of the gateway itself, instead of any other. */
  reply(reply: LocalReply, keepAlive: boolean, now: number): void
  /** The client's socket has taken what it was given. */
  onClientRoom(): void
  /** Nobody wants the response any more. */
  abandon(): void
}

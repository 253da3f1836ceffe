import type { BodyTransform, Connection } from '../../../policy/exchange/policy-exchange.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import type { BufferAccount } from '../../streams/buffer-account.ts'
import type { LoginStreams } from '../../streams/login-streams.ts'
import type { StreamPool } from '../../streams/stream-pool.ts'
import type { StreamSlots } from '../../streams/stream-slots.ts'
import type { InternalFacts } from '../../streams/visitor-facts.ts'
import type { HeadScanner } from '../syntax/head-scanner.ts'
import type { BodyFraming } from '../syntax/http-syntax.ts'
import type { ExchangeTraffic } from './exchange-traffic.ts'
import type { IncomingRequest, RequestSource } from './incoming-request.ts'
import type { IngressListener, RefusalReason } from './ingress-listener.ts'
import type { LocalReply } from './local-reply.ts'

/** A final response as it is to reach the client; `fields` say nothing of the connection yet. */
export interface OutgoingResponse {
  readonly status: number
  readonly reason: string | undefined
  readonly fields: readonly string[]
  /** Framing of the received body. */
  readonly framing: BodyFraming
  /** See `ResponseHead`. */
  readonly contentLength?: number | undefined
  /** Changes of the body on its way. */
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
  /** Status of the final response; 0 until it is known. */
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
  /**
   * Takes a part of the body as framed; false: wait for `onWriterRoom`. `isLent`: the bytes are valid only
   * during the call.
   */
  write(chunk: Buffer, isLent: boolean): boolean
  /** The body is complete. */
  finish(): void
  /** Sends an answer of the gateway itself, instead of any other. */
  reply(reply: LocalReply, keepAlive: boolean, now: number): void
  /** The client's socket has room again. */
  onClientRoom(): void
  /** The response is no longer needed. */
  abandon(): void
}

/** The ways of a client's connection to other gateways. */
export interface Hops {
  /** For requests that come in by a listener. */
  to(link: StreamSlots, listener: IngressListener): StreamPool
  /** For one request that a policy has handed on. */
  handOn(link: StreamSlots, listener: IngressListener, internal: InternalFacts): StreamPool
}

/** The client's side of an exchange, as its connection offers it. */
export interface Client extends RequestSource {
  readonly listener: IngressListener
  readonly ip: string
  /** `ip:port`. */
  readonly address: string
  /** Network that its shares are counted for: the IPv4 address, or the /64 of an IPv6 address. */
  readonly network: string
  /** See `StreamClient`. */
  readonly logins: LoginStreams
  /** The connection closes after this exchange, also if the client wants to keep it. */
  readonly isStopping: boolean
  /** Accepts no request after the current requests: the client has to reconnect. */
  stopAccepting(): void
  /** For policies; made when first asked for. */
  readonly facts: Connection
  /** Its ways to other nodes; made when first asked for. */
  readonly hops: Hops
  /** For the heads of responses; there is one exchange at a time. */
  readonly responseScanner: HeadScanner
  /** Whether the endpoint's policy has let this connection in. */
  isAdmitted(endpoint: Endpoint): boolean
  admit(endpoint: Endpoint): void
  /** Bytes that were written and that it has not taken. */
  readonly unreadBytes: number
  /** Bytes that it has taken. */
  readonly takenBytes: number
  /** Moves the bytes that wait for this client or the device to an account. */
  charge(account: BufferAccount): void
  /** The bytes held by the exchange have changed. */
  countHeld(): void
  /** Makes the writer of the response to a request of this client. */
  writerFor(
    request: IncomingRequest,
    traffic: ExchangeTraffic,
    owner: ResponseOwner,
  ): ResponseWriter
  /** Accepts all bytes; false: wait for `onClientRoom()`. Only used after a switch of protocol. */
  write(chunk: Buffer): boolean
  /** Half-closes towards the client, after earlier writes. */
  end(): void
  /** Breaks the connection off, so that the client sees that something is missing. */
  abort(): void
  /** The same for a reason that another node has to know, where one stands between. */
  refuse(reason: RefusalReason): void
  /** All further data belongs to the exchange, including data received after its request. */
  switched(): void
  /** Runs code that was not called by the connection. A bug there ends only this connection. */
  guard(step: () => void): void
  /** The exchange is over; without `keepAlive` the connection is too. */
  exchangeDone(keepAlive: boolean): void
}

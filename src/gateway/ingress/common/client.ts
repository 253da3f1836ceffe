import type { Connection } from '../../../policy/exchange/policy-exchange.ts'
import type { Endpoint } from '../../endpoints/endpoint.ts'
import type { BufferAccount } from '../../streams/buffer-account.ts'
import type { LoginStreams } from '../../streams/login-streams.ts'
import type { StreamPool } from '../../streams/stream-pool.ts'
import type { StreamSlots } from '../../streams/stream-slots.ts'
import type { InternalFacts } from '../../streams/visitor-facts.ts'
import type { HeadScanner } from '../syntax/head-scanner.ts'
import type { ExchangeTraffic } from './exchange-traffic.ts'
import type { IncomingRequest, RequestSource } from './incoming-request.ts'
import type { IngressListener, RefusalReason } from './ingress-listener.ts'
import type { ResponseOwner, ResponseWriter } from './response-writer.ts'

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
  /** Whose shares its exchanges come from: the IPv4 address, or the /64 of an IPv6 one. */
  readonly network: string
  /** See `StreamClient`. */
  readonly logins: LoginStreams
  /** The connection closes after this exchange, whatever the client wants. */
  readonly isStopping: boolean
  /** Takes no request after those that are under way: the client has to connect anew. */
  leave(): void
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
  /** Whose account the bytes are on that wait for this client, or for the device. */
  charge(account: BufferAccount): void
  /** What the exchange holds has changed. */
  countHeld(): void
  /** Makes what writes the response to a request of this client. */
  writerFor(
    request: IncomingRequest,
    traffic: ExchangeTraffic,
    owner: ResponseOwner,
  ): ResponseWriter
  /** Takes all bytes; false: wait for `onClientRoom()`. Only what was switched writes here. */
  write(chunk: Buffer): boolean
  /** Half-closes towards the client, after what was written. */
  end(): void
  /** Breaks the connection off, so that the client sees that something is missing. */
  abort(): void
  /** The same for a reason that another node has to know, where one stands between. */
  refuse(reason: RefusalReason): void
  /** All that comes belongs to the exchange from now on, also what came behind its request. */
  switched(): void
  /** Runs what others than the connection have called; a mistake of ours costs it, not all of them. */
  guard(step: () => void): void
  /** The exchange is over; without `keepAlive` the connection is too. */
  exchangeDone(keepAlive: boolean): void
}

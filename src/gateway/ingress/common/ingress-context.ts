import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import type { SharedReads } from '../../../base/net/shared-reads.ts'
import type { TrustedProxies } from '../../../base/net/trusted-proxies.ts'
import type { AddressTables } from '../../../policy/exchange/address-tables.ts'
import { TIMEOUT_DEFAULTS, type TimeoutSettings } from '../../../settings/gateway-settings.ts'
import type { ServedCertificate } from '../../certificates/certificate-file.ts'
import type { EndpointRegistry } from '../../endpoints/endpoint-registry.ts'
import type { OwnRoutes, Routes } from '../../endpoints/routes.ts'
import type { VisitorLinks } from '../../ports/membership.ts'
import type { BufferAccount } from '../../streams/buffer-account.ts'
import type { PieceShares } from '../syntax/piece-shares.ts'
import type { RequestHead } from '../syntax/request-head.ts'
import type { AskSeal } from './ask-seal.ts'
import type { WriteCoalescer } from './client-socket.ts'
import type { ErrorLog } from './error-log.ts'
import type { ErrorPages } from './error-reply.ts'

/** Limits of a client in size and time. */
export interface IngressLimits extends TimeoutSettings {
  /** Start line and fields of a request; above it 431. */
  readonly headBytes: number
  readonly headFields: number
  /** From the first byte of a head to its last, or from the connection to its first byte. */
  readonly headMs: number
  /** How long a connection may stay open between two requests. */
  readonly keepAliveMs: number
  /** In each window a request body has to grow by so many bytes while the device takes them. */
  readonly bodyWindowMs: number
  readonly bodyWindowBytes: number
  /** How long an exchange may stand still that is neither an upgraded connection nor a stream. */
  readonly silenceMs: number
  /** Bytes of later requests that are read while a response is due. */
  readonly pipelinedBytes: number
  /** Bytes of an unwanted body that are read and dropped to keep the connection. */
  readonly discardedBytes: number
  /** How long a connection that has ended, and was flushed, waits for the client to end as well. */
  readonly lingerMs: number
  /** Per listener; when it is full, each address has its share (`ConnectionShares`). */
  readonly connections: number
  /** Requests at once over all connections of HTTP/2; beyond, each connection has one. */
  readonly http2Streams: number
  /** How often deadlines are looked at; they are late by as much. */
  readonly sweepMs: number
  /** How often clients are looked at that send much and ask nothing. */
  readonly floodMs: number
}

export const INGRESS_LIMITS: IngressLimits = {
  ...TIMEOUT_DEFAULTS,
  headBytes: 65_536,
  headFields: 256,
  headMs: 15_000,
  keepAliveMs: 75_000,
  bodyWindowMs: 30_000,
  bodyWindowBytes: 1_024,
  silenceMs: 300_000,
  pipelinedBytes: 65_536,
  discardedBytes: 65_536,
  lingerMs: 2_000,
  connections: 16_384,
  http2Streams: 16_384,
  sweepMs: 1_000,
  floodMs: 100,
}

/** Answers to challenges of an ACME authority. Undefined: not for this gateway, so visitors go on as usual. */
export interface IngressChallenges {
  http(
    request: Pick<RequestHead, 'method' | 'hostname' | 'target'>,
  ): string | undefined | Promise<string | undefined>
  tls(serverName: string): Promise<ServedCertificate | undefined>
}

/** State that all connections of an ingress share. */
export interface IngressContext {
  readonly registry: EndpointRegistry
  /** The registry itself, where there is one node alone. */
  readonly routes: Routes
  /** Routes for requests from other nodes, which are served here or not at all. */
  readonly ownRoutes: OwnRoutes
  /** The ways to other nodes. */
  readonly peers?: VisitorLinks | undefined
  readonly log: Logger
  readonly clock: Clock
  readonly limits: IngressLimits
  /** Buffered bytes of the whole gateway. */
  readonly buffers: BufferAccount
  readonly coalescer: WriteCoalescer
  readonly reads: SharedReads
  readonly askSeal: AskSeal
  /** Tables of visitors' addresses. */
  readonly addresses?: AddressTables | undefined
  /** Proxies in front, which may name the client; undefined if no proxy is trusted. */
  readonly proxies?: TrustedProxies | undefined
  /** Requests of HTTP/2 that are under way, of all connections. */
  readonly http2Streams: { open: number }
  /** Shares of visitors that send their content in tiny pieces. */
  readonly pieceShares: PieceShares
  readonly challenges?: IngressChallenges | undefined
  readonly errorPages: ErrorPages
  readonly errorLog: ErrorLog
  /** Monotonic time of the last sweep: near enough for deadlines, and free. */
  readonly now: number
}

import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import type { TrustedProxies } from '../../../base/net/trusted-proxies.ts'
import type { AddressTables } from '../../../policy/exchange/address-tables.ts'
import type { EndpointRegistry } from '../../endpoints/endpoint-registry.ts'
import type { OwnRoutes, Routes } from '../../endpoints/routes.ts'
import type { VisitorLinks } from '../../ports/membership.ts'
import type { BufferAccount } from '../../streams/buffer-account.ts'
import type { PieceShares } from '../syntax/piece-shares.ts'
import type { AskSeal } from './ask-seal.ts'
import type { IngressLimits } from './ingress-limits.ts'
import type { WriteCoalescer } from './write-coalescer.ts'

/** What the connections of an ingress share. */
export interface IngressContext {
  readonly registry: EndpointRegistry
  /** The registry itself, where there is one node alone. */
  readonly routes: Routes
  /** For whoever is to be served here, or not at all: those who come by another node. */
  readonly ownRoutes: OwnRoutes
  /** The ways to other nodes. */
  readonly peers?: VisitorLinks | undefined
  readonly log: Logger
  readonly clock: Clock
  readonly limits: IngressLimits
  /** For bytes of the whole gateway that wait for somebody. */
  readonly buffers: BufferAccount
  readonly coalescer: WriteCoalescer
  readonly askSeal: AskSeal
  /** What is known of the addresses of visitors. */
  readonly addresses?: AddressTables | undefined
  /** Those in front, which may name the client; undefined where none is trusted. */
  readonly proxies?: TrustedProxies | undefined
  /** Requests of HTTP/2 that are under way, of all connections. */
  readonly http2Streams: { open: number }
  /** Of visitors who send their content in tiny pieces. */
  readonly pieceShares: PieceShares
  /** Monotonic time of the last sweep: near enough for deadlines, and free. */
  readonly now: number
}

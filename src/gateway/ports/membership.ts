import type { Clock } from '../../base/clock.ts'
import type { ListenAddress } from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import type { Stream } from '../../muxado/stream.ts'
import type { Authority } from '../access/authority.ts'
import type { NameClaims, NameHolder } from '../access/name-claims.ts'
import type { OrderBook } from '../certificates/acme/order-book.ts'
import type { AgentEndpoint, SessionEnd } from '../endpoints/endpoint.ts'
import type { EndpointPolicies } from '../endpoints/endpoint-policies.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import type { OwnRoutes, Routes } from '../endpoints/routes.ts'
import type { GatewayDatabase } from '../records/gateway-database.ts'
import type { IdSource } from '../records/resource-id.ts'
import type { BufferAccount } from '../streams/buffer-account.ts'
import type { StreamSlots } from '../streams/stream-slots.ts'
import type { Drain, SendAway } from './drain.ts'
import type { Duties } from './duties.ts'
import type { OtherGateways } from './other-gateways.ts'

/**
 * Whether visitors and devices should come to a gateway. `degraded`: they should, although not all goes as
 * it does otherwise: no other gateway could do better. `away`: another gateway should have them.
 */
export type Readiness =
  | { readonly state: 'ready' }
  | { readonly state: 'degraded' | 'away'; readonly reasons: readonly string[] }

/** A session of an agent, as far as it matters when its device moves to another gateway. */
export interface MovingSession extends NameHolder {
  answers(withinMs: number): Promise<boolean>
  giveWay(endpoint: AgentEndpoint, successor: undefined, withinMs?: number): void
  stopTunnel(endpoint: AgentEndpoint, code: number, message: string): void
  end(reason: string, why?: SessionEnd): void
}

/** What is served here: the other gateways ask for it, or send their visitors. */
export interface LocalWork {
  readonly ingress: {
    acceptPeer(stream: Stream, origin: { readonly nodeId: string }): void
    openAddress(address: string): Promise<void>
  }
  readonly sessions: {
    find(id: string): MovingSession | undefined
    all(): Iterable<{ readonly id: string }>
  }
  readonly policies: Pick<EndpointPolicies, 'last' | 'remember'>
  readonly sendAway: SendAway
}

/** Streams of visitors to another gateway; undefined where it cannot be reached now. */
export interface VisitorLinks {
  find(id: string): { readonly slots: StreamSlots | undefined } | undefined
}

/** This gateway among all that serve the same names. */
export interface Membership {
  readonly names: NameClaims
  readonly routes: Routes
  /** For visitors that another gateway has sent here. */
  readonly ownRoutes: OwnRoutes
  readonly links: VisitorLinks
  readonly others: OtherGateways
  readonly duties: Duties
  readonly drain: Drain
  readonly readiness: Readiness
  /** Takes up its work among the others. Throws a StartError. */
  start(work: LocalWork): Promise<void>
  /** Gives up all names; call it when nothing is served any more. */
  stop(): Promise<void>
}

/** What has to be there before this gateway can be one of several. */
export interface Places {
  readonly registry: EndpointRegistry
  readonly authority: Pick<Authority, 'mayBind' | 'owners'>
  readonly buffers: BufferAccount
  readonly ids: IdSource
}

/** The records of a gateway, before it serves. */
export interface OpenRecords {
  readonly stores: GatewayDatabase
  /** Orders of certificates that several gateways share; undefined where this one orders by itself. */
  readonly orders: OrderBook | undefined
  /** Adds to the name of what a start makes: it replaces what this gateway has lost, and no other's. */
  named(text: string): string
  /** To be called once, before anything is served. */
  join(places: Places): Membership
}

export interface RecordsOptions {
  /** Data directory of the gateway. */
  readonly dataDir: string
  readonly httpListen: ListenAddress
  readonly httpsListen: ListenAddress
  readonly version?: string | undefined
  readonly holdMs?: number | undefined
  /** Set where certificates are ordered. */
  readonly acme?: object | undefined
  readonly onRestartNeeded?: ((reason: string) => void) | undefined
  readonly log: Logger
  readonly clock: Clock
}

import type { Stream } from '../../muxado/stream.ts'
import type { Authority } from '../access/authority.ts'
import type { NameClaims, NameHolder } from '../access/name-claims.ts'
import type { AgentEndpoint, SessionEnd } from '../endpoints/endpoint.ts'
import type { EndpointPolicies } from '../endpoints/endpoint-policies.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import type { OwnRoutes, Routes } from '../endpoints/routes.ts'
import type { IdSource } from '../records/resource-id.ts'
import type { BufferAccount } from '../streams/buffer-account.ts'
import type { StreamSlots } from '../streams/stream-slots.ts'
import type { Drain, SendAway } from './drain.ts'
import type { OtherGateways } from './other-gateways.ts'
import type { SingletonJobs } from './singleton-jobs.ts'

/**
 * Whether visitors and devices should use this gateway. `degraded`: they should, because no other gateway
 * works better, although there are problems. `away`: they should use another gateway.
 */
export type Readiness =
  | { readonly state: 'ready' }
  | { readonly state: 'degraded' | 'away'; readonly reasons: readonly string[] }

/** A session of an agent, as needed when its device moves to another gateway. */
export interface MovingSession extends NameHolder {
  answers(withinMs: number): Promise<boolean>
  giveWay(endpoint: AgentEndpoint, successor: undefined, withinMs?: number): void
  stopTunnel(endpoint: AgentEndpoint, code: number, message: string): void
  end(reason: string, why?: SessionEnd): void
}

/** Parts of this gateway that other gateways call or send visitors to. */
export interface LocalWork {
  readonly ingress: {
    acceptPeer(stream: Stream, origin: { readonly nodeId: string }): void
    openAddress(address: string): Promise<void>
  }
  readonly sessions: {
    find(id: string): MovingSession | undefined
    all(): Iterable<{ readonly id: string; retryNames?(): void }>
  }
  readonly policies: Pick<EndpointPolicies, 'last' | 'remember'>
  readonly sendAway: SendAway
}

/** Streams for visitors to another gateway; undefined while it cannot be reached. */
export interface VisitorLinks {
  find(id: string): { readonly slots: StreamSlots | undefined } | undefined
}

/** Membership of this gateway in the cluster. */
export interface Membership {
  readonly names: NameClaims
  readonly routes: Routes
  /** For visitors that another gateway has sent here. */
  readonly ownRoutes: OwnRoutes
  readonly links: VisitorLinks
  readonly others: OtherGateways
  readonly duties: SingletonJobs
  readonly drain: Drain
  readonly readiness: Readiness
  /** Joins the other gateways. Throws a StartError. */
  start(work: LocalWork): Promise<void>
  /** Releases all names. Call it when this gateway serves no more requests. */
  stop(): Promise<void>
}

/** Parts that a gateway needs before it can join a cluster. */
export interface Places {
  readonly registry: EndpointRegistry
  readonly authority: Pick<Authority, 'mayBind' | 'owners'>
  readonly buffers: BufferAccount
  readonly ids: IdSource
}

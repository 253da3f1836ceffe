import process from 'node:process'
import * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import { formatListenAddress } from '../../../base/listen-address.ts'
import type { Route } from '../../../http/routes.ts'
import type { Database } from '../../../store/database.ts'
import type { NameClaims } from '../../access/name-claims.ts'
import type { SecretSeal } from '../../access/secret-seal.ts'
import type { CertificateKeeper } from '../../certificates/certificate-keeper.ts'
import type { DomainCertificates } from '../../certificates/domain-certificates.ts'
import { ownCertificateProblem } from '../../certificates/own-certificate.ts'
import type { EndpointRegistry } from '../../endpoints/endpoint-registry.ts'
import type { Drain, DrainGivenUp, DrainLeft, DrainProgress } from '../../ports/drain.ts'
import type { Membership } from '../../ports/membership.ts'
import { NoAnswerError, type OtherGateways, type SeenGateway } from '../../ports/other-gateways.ts'
import { ServiceError } from '../../records/service-error.ts'
import { ownedByGateway } from '../common/caller.ts'
import { Timestamp, timestamp } from '../common/request.ts'
import type { ItemOfRequest, Resource } from '../common/resource.ts'
import { livePage } from '../common/resource-lists.ts'

const ReadinessView = z.strictObject({
  ready: z.boolean(),
  degraded: z.boolean().describe('the gateway serves, but has a problem'),
  reasons: z.array(z.string()).describe('reasons, one sentence each'),
})

export interface ReadinessDeps {
  readonly member: Pick<Membership, 'readiness'>
  readonly domainCertificates: Pick<DomainCertificates, 'failed' | 'expiring'>
  readonly certificates: Pick<CertificateKeeper, 'ownEndsAt'>
  readonly seal: Pick<SecretSeal, 'problem'>
  readonly clock: Clock
}

/**
 * `/readyz`: whether visitors and agents should use this gateway, else 503, with reasons. Open to all callers
 * at any rate: it reads nothing from disk.
 */
export function readinessRoute(deps: ReadinessDeps): Route {
  return {
    route: 'GET /readyz',
    id: 'ready',
    summary: 'Readiness: send visitors and agents to this gateway',
    about: 'Readiness check for load balancers, without an API key.',
    answers: {
      200: {
        means: 'Ready, also while no gateway reaches PostgreSQL.',
        schema: { Readiness: ReadinessView },
      },
      503: { means: 'Not ready, with reasons.', schema: { Readiness: ReadinessView } },
    },
    isOpen: true,
    handle: (_request, response) => {
      const now = deps.member.readiness
      const ready = now.state !== 'away'
      const reasons = [...(now.state === 'ready' ? [] : now.reasons), ...otherProblems(deps)]
      const view: z.infer<typeof ReadinessView> = {
        ready,
        degraded: ready && reasons.length > 0,
        reasons,
      }
      response.status(ready ? 200 : 503).json(view)
    },
  }
}

/** Problems that do not make the gateway unready. Without a key, names are not shown. */
function otherProblems(deps: ReadinessDeps): string[] {
  const { failed, expiring } = deps.domainCertificates
  const own = ownCertificateProblem(deps.certificates.ownEndsAt, deps.clock.now())
  const { problem: key } = deps.seal
  return [
    ...(key === undefined ? [] : [key]),
    ...(own === undefined ? [] : [own]),
    ...(expiring === 0
      ? []
      : [
          `Uploaded certificates that expire soon or have expired: ${expiring}. See GET /reserved_domains.`,
        ]),
    ...(failed === 0
      ? []
      : [`Certificates that could not be issued: ${failed}. See GET /reserved_domains.`]),
  ]
}

const LEFT = { agents: z.number(), endpoints: z.number(), requests: z.number() }

const NodeView = z.strictObject({
  id: z.string(),
  uri: z.string(),
  /** Host name. */
  name: z.string(),
  version: z.string(),
  /**
   * `draining`: accepts nothing new. `gone`: stopped, or given up by the others. A given-up node that still
   * answers is not gone: its lease is `lost`.
   */
  state: z.enum(['live', 'draining', 'gone']),
  /** Since when it is in that state. */
  since: Timestamp,
  started_at: Timestamp,
  /** Whether this node answers the request. */
  is_self: z.boolean(),
  /** Address for other gateways; empty for a gateway without others. */
  peer_address: z.string(),
  agent_addresses: z
    .array(z.string())
    .describe('addresses for `SVC_SERVER_ADDR`: GATEWAY_PUBLIC_NAMES, or the known addresses'),
  /** Whether it answered this request; otherwise its own figures are null. */
  is_reached: z.boolean(),
  /** Round trip of the last heartbeat on the link to it. */
  latency_ms: z.number().nullable(),
  /** Null for a gateway that is the only one. */
  lease: z
    .strictObject({
      /** `overdue`: its beat is late, and the others may give it up. */
      state: z.enum(['held', 'overdue', 'lost', 'left']),
      epoch: z.number(),
      /** For how long its beat has stood still, as this node sees it. */
      silent_ms: z.number(),
    })
    .nullable(),
  /** Sessions of agents. */
  agents: z.number().nullable(),
  /** Endpoints of agents, and cloud endpoints that it serves. */
  endpoints: z.number().nullable(),
  /** Sums count from its start. */
  load: z
    .strictObject({
      requests: z.number(),
      requests_active: z.number(),
      bytes_in: z.number(),
      bytes_out: z.number(),
      memory_bytes: z.number(),
      processor_seconds: z.number(),
    })
    .nullable(),
  /** During a drain: initial and remaining work. */
  drain: z
    .strictObject({
      since: Timestamp,
      from: z.strictObject(LEFT),
      left: z.strictObject(LEFT),
      /** Whether a stop would affect no visitor. */
      is_done: z.boolean(),
    })
    .nullable(),
  /** Set if its last drain ended because no other gateway served; else null. */
  drain_given_up: z.strictObject({ at: Timestamp, reason: z.string() }).nullable(),
})

const count = z.number().int().min(0)

/** How much there is to do at a node. Sums count from its start. */
const NodeFiguresSchema = z.object({
  /** Sessions of agents. */
  agents: count,
  /** Endpoints of agents, and cloud endpoints that are at home here. */
  endpoints: count,
  requests: count,
  /** Under way. */
  requests_active: count,
  bytes_in: z.number(),
  bytes_out: z.number(),
  memory_bytes: z.number(),
  /** Time of the processor that its process has used. */
  processor_seconds: z.number(),
})
type NodeFigures = z.infer<typeof NodeFiguresSchema>

const DrainSchema = z.object({
  since: z.number(),
  from: z.object(LEFT),
  left: z.object(LEFT),
})
const AnswerSchema = z.object({
  figures: NodeFiguresSchema,
  drain: DrainSchema.nullable(),
  /** A node of the previous version does not send it. */
  given_up: z.object({ at: z.number(), reason: z.string() }).nullable().default(null),
})

export interface NodesDeps {
  readonly registry: EndpointRegistry
  readonly sessions: { readonly size: number }
  readonly names: Pick<NameClaims, 'isHome'>
  readonly others: OtherGateways
  readonly drain: Drain
  /** Database of the audit trail. */
  readonly database: Pick<Database, 'change'>
}

/** A gateway of the site in this API. */
interface Node extends SeenGateway {
  readonly figures: NodeFigures | undefined
  readonly drain: DrainProgress | undefined
  readonly givenUp: DrainGivenUp | undefined
}

const QUESTION = 'node'
const DRAIN = 'drain'

/** Registers the calls of other nodes for its figures and for a drain. */
export function answerForNode(deps: Omit<NodesDeps, 'database'>): void {
  const { others, drain } = deps
  others.on(QUESTION, () => ({
    figures: nodeFigures(deps),
    drain: drain.progress ?? null,
    given_up: drain.givenUp ?? null,
  }))
  others.on(DRAIN, async (of) => {
    const { undo } = z.object({ undo: z.boolean() }).parse(of)
    await (undo ? drain.undo() : drain.start())
  })
}

/** The gateways of the site; a gateway that is the only one is one, too. */
export function nodes(deps: NodesDeps): Resource<Node> {
  const { others, drain: own } = deps
  const look = async (seen: SeenGateway): Promise<Node> => {
    const { id, isSelf } = seen
    if (isSelf) {
      const { progress, givenUp } = own
      return { ...seen, figures: nodeFigures(deps), drain: progress, givenUp }
    }
    const nothing = { ...seen, figures: undefined, drain: undefined, givenUp: undefined }
    if (!seen.serves) return nothing
    try {
      const said = AnswerSchema.parse(await others.ask(id, QUESTION))
      const { figures, drain, given_up: givenUp } = said
      return { ...seen, figures, drain: drain ?? undefined, givenUp: givenUp ?? undefined }
    } catch (error) {
      if (error instanceof NoAnswerError) return nothing
      throw error
    }
  }
  const drain = async ({ item: it, baseUrl }: ItemOfRequest<Node>, undo: boolean) => {
    const { id, name, isSelf } = it
    if (!it.serves) {
      throw new ServiceError(842, `The gateway ${name} is not running. Start it first.`)
    }
    if (!undo && it.standing === 'lost' && !isSelf) {
      throw new ServiceError(
        843,
        `The gateway ${name} does not reach PostgreSQL, so its names cannot move to other gateways now.`,
      )
    }
    if (isSelf) await (undo ? own.undo() : own.start())
    else await ask(others, it, undo)
    return view(await look(others.find(id) ?? it), baseUrl)
  }
  const remove = async (it: Node) => {
    const isThere = it.standing === 'serving' || it.standing === 'draining'
    if (it.isSelf || isThere) throw stillThere(it)
    if (others.find(it.id)?.isLinked) throw stillLinked(it)
    // Gateways have no records, so the audit entry is written first.
    await deps.database.change(() => {}, { withoutBackup: true })
    if (!(await others.forget(it.id))) throw stillThere(it)
  }
  const view = (it: Node, baseUrl: string) => viewNode(it, baseUrl)
  return {
    path: 'nodes',
    noun: 'Node',
    about: 'Gateways of the cluster.',
    collection: 'nodes',
    prefix: 'nd',
    schema: NodeView,
    page: (request) => Promise.all(livePage(others.all(), request).map(look)),
    get: async (id) => {
      const seen = others.find(id)
      return seen && look(seen)
    },
    remove,
    removal: 'Remove a lost node; it can only return as a new node',
    view,
    ownerOf: ownedByGateway,
    actions: {
      drain: {
        summary: 'Drain a node',
        answer: { Node: NodeView },
        run: (_body, of) => drain(of, false),
      },
      undrain: {
        summary: 'Cancel the drain of a node',
        answer: { Node: NodeView },
        run: (_body, of) => drain(of, true),
      },
    },
  }
}

function stillThere({ name }: Node): ServiceError {
  return new ServiceError(
    844,
    `The gateway ${name} is still running. Stop it first, or wait until the others mark it as lost.`,
  )
}

function stillLinked({ name }: Node): ServiceError {
  return new ServiceError(
    844,
    `The gateway ${name} does not reach PostgreSQL but still serves. Stop it first, or wait until its links to the other gateways close.`,
  )
}

async function ask(others: OtherGateways, { id, name }: Node, undo: boolean): Promise<void> {
  try {
    await others.ask(id, DRAIN, { undo })
  } catch (error) {
    if (!(error instanceof NoAnswerError)) throw error
    throw new ServiceError(
      840,
      `The gateway ${name} does not answer. Try again, or send the request to it directly.`,
    )
  }
}

/** Figures of this node. */
function nodeFigures({ registry, sessions, names }: Omit<NodesDeps, 'database'>): NodeFigures {
  const figures = { requests: 0, requests_active: 0, bytes_in: 0, bytes_out: 0 }
  for (const { requests, active, bytesIn, bytesOut } of registry.totals.byProtocol().values()) {
    figures.requests += requests
    figures.requests_active += active
    figures.bytes_in += bytesIn
    figures.bytes_out += bytesOut
  }
  let endpoints = 0
  for (const endpoint of registry.all()) {
    if (endpoint.type === 'agent' || names.isHome(endpoint)) endpoints += 1
  }
  const { user, system } = process.cpuUsage()
  return {
    agents: sessions.size,
    endpoints,
    ...figures,
    memory_bytes: process.memoryUsage.rss(),
    processor_seconds: (user + system) / 1_000_000,
  }
}

function viewNode(it: Node, baseUrl: string) {
  const { id, figures, drain, givenUp, lease } = it
  const view: z.infer<typeof NodeView> = {
    id,
    uri: `${baseUrl}/nodes/${id}`,
    name: it.name,
    version: it.version,
    state: stateOf(it),
    since: timestamp(it.since),
    started_at: timestamp(it.startedAt),
    is_self: it.isSelf,
    peer_address: it.address ? formatListenAddress(it.address) : '',
    agent_addresses: [...it.agentAddresses],
    is_reached: figures !== undefined,
    latency_ms: latencyOf(it.latencyMs),
    lease: lease && { state: lease.state, epoch: lease.epoch, silent_ms: lease.silentMs },
    ...viewFigures(figures),
    drain: drain
      ? { ...drain, since: timestamp(drain.since), is_done: sum(drain.left) === 0 }
      : null,
    drain_given_up: givenUp ? { ...givenUp, at: timestamp(givenUp.at) } : null,
  }
  return view
}

/** As it says itself where it does: others hear of it a moment later. */
function stateOf({ serves, standing, figures, drain }: Node): z.infer<typeof NodeView>['state'] {
  if (!serves) return 'gone'
  const isDraining = figures ? drain !== undefined : standing === 'draining'
  return isDraining ? 'draining' : 'live'
}

function viewFigures(figures: NodeFigures | undefined) {
  if (!figures) return { agents: null, endpoints: null, load: null }
  const { agents, endpoints, ...load } = figures
  return { agents, endpoints, load }
}

const sum = ({ agents, endpoints, requests }: DrainLeft) => agents + endpoints + requests

const latencyOf = (ms: number | undefined) =>
  ms === undefined ? null : Math.round(ms * 1_000) / 1_000

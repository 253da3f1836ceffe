import { hostname } from 'node:os'
import type { Request, RequestHandler, Response } from 'express'
import * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import { formatListenAddress } from '../../../base/listen-address.ts'
import type { Database } from '../../../store/database.ts'
import { describeFault } from '../../../store/storage-state.ts'
import type { CertificateKeeper } from '../../certificates/certificate-keeper.ts'
import type { DomainCertificates } from '../../certificates/domain-certificates.ts'
import { ownCertificateProblem } from '../../certificates/own-certificate.ts'
import type { ClusterNode } from '../../cluster/cluster-node.ts'
import type { DrainGivenUp, DrainProgress } from '../../cluster/node-drain.ts'
import {
  type FiguresSource,
  type NodeFigures,
  NodeFiguresSchema,
  nodeFigures,
} from '../../cluster/node-figures.ts'
import type { Readiness } from '../../cluster/node-readiness.ts'
import { isThere, type NodeRow } from '../../cluster/nodes/node-facts.ts'
import { DatabaseError } from '../../cluster/postgres/database-error.ts'
import { NoAnswerError } from '../../cluster/questions.ts'
import { ServiceError } from '../../records/service-error.ts'
import { ownedByGateway } from '../common/caller.ts'
import { Timestamp, timestamp } from '../common/request.ts'
import type { Resource } from '../common/resource.ts'
import { livePage } from '../common/resource-lists.ts'

export const ReadinessView = z.strictObject({
  ready: z.boolean(),
  degraded: z.boolean().describe('the gateway serves, but has a problem'),
  reasons: z.array(z.string()).describe('reasons, one sentence each'),
})

export interface ReadinessDeps {
  readonly database: Pick<Database, 'fault'>
  readonly node?: Pick<ClusterNode, 'readiness'> | undefined
  readonly domainCertificates: Pick<DomainCertificates, 'failed'>
  readonly certificates: Pick<CertificateKeeper, 'ownEndsAt'>
  readonly clock: Clock
}

/**
 * `/readyz`: whether visitors and agents should come to this gateway, else 503; and why. Anybody may ask, as
 * often as they like: it reads nothing from a disk.
 */
export function readinessRoute(deps: ReadinessDeps): RequestHandler {
  return (_request: Request, response: Response) => {
    const now = deps.node?.readiness ?? ofOne(deps.database)
    const ready = now.state !== 'away'
    const reasons = [...(now.state === 'ready' ? [] : now.reasons), ...certificateProblems(deps)]
    const view: z.infer<typeof ReadinessView> = {
      ready,
      degraded: ready && reasons.length > 0,
      reasons,
    }
    response.status(ready ? 200 : 503).json(view)
  }
}

/** They keep nobody from coming. Who asks has no key, so no names. */
function certificateProblems(deps: ReadinessDeps): string[] {
  const { failed } = deps.domainCertificates
  const own = ownCertificateProblem(deps.certificates.ownEndsAt, deps.clock.now())
  return [
    ...(own === undefined ? [] : [own]),
    ...(failed === 0
      ? []
      : [`Certificates that could not be issued: ${failed}. See GET /reserved_domains.`]),
  ]
}

/** Of a gateway that is the only one. */
function ofOne({ fault }: Pick<Database, 'fault'>): Readiness {
  return fault === undefined
    ? { state: 'ready' }
    : { state: 'away', reasons: [describeFault(fault)] }
}

/** The id of a gateway that is the only one. */
export const ONLY_NODE = `nd_${'0'.repeat(27)}`

const LEFT = { agents: z.number(), endpoints: z.number(), requests: z.number() }

export const NodeView = z.strictObject({
  id: z.string(),
  uri: z.string(),
  /** Of its machine. */
  name: z.string(),
  version: z.string(),
  /**
   * `draining`: it takes nothing new. `gone`: it was stopped, or the others have given it up. One that was
   * given up and answers is not gone: its lease says `lost`.
   */
  state: z.enum(['live', 'draining', 'gone']),
  /** Since when it is in that state. */
  since: Timestamp,
  started_at: Timestamp,
  /** Whether it is the one that answers this. */
  is_self: z.boolean(),
  /** Where the others reach it; empty for a gateway that is the only one. */
  peer_address: z.string(),
  /** Whether it has answered just now; what only it knows is null otherwise. */
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
  /** Those of agents, and cloud endpoints that are at home there. */
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
  /** While it drains: what there was at first, and what is left. */
  drain: z
    .strictObject({
      since: Timestamp,
      from: z.strictObject(LEFT),
      left: z.strictObject(LEFT),
      /** Nobody notices its end any more. */
      is_done: z.boolean(),
    })
    .nullable(),
  /** When its last drain ended by itself because no other gateway served any more; else null. */
  drain_given_up: z.strictObject({ at: Timestamp, reason: z.string() }).nullable(),
})

/** A beat every 3 s; one that is missed twice is late. */
const OVERDUE_MS = 7_000

const DrainSchema = z.object({
  since: z.number(),
  from: z.object(LEFT),
  left: z.object(LEFT),
})
const AnswerSchema = z.object({
  figures: NodeFiguresSchema,
  drain: DrainSchema.nullable(),
  /** Of a node of the version before, nothing is known. */
  given_up: z.object({ at: z.number(), reason: z.string() }).nullable().default(null),
})

export interface NodesDeps extends FiguresSource {
  readonly node?: ClusterNode | undefined
  /** Of the audit trail. */
  readonly database: Pick<Database, 'change'>
  readonly version: string
}

/** A gateway of the site as it is told of. */
interface Node {
  readonly id: string
  readonly row: NodeRow | undefined
  readonly figures: NodeFigures | undefined
  readonly drain: DrainProgress | undefined
  readonly givenUp: DrainGivenUp | undefined
}

const QUESTION = 'node'
const DRAIN = 'drain'

/** Lets the other nodes ask this one how it is, and to drain. */
export function answerForNode(
  deps: FiguresSource & { readonly node?: ClusterNode | undefined },
): void {
  const { node } = deps
  node?.questions.on(QUESTION, () => ({
    figures: nodeFigures(deps),
    drain: node.drain.progress ?? null,
    given_up: node.drain.givenUp ?? null,
  }))
  node?.questions.on(DRAIN, async (of) => {
    const { undo } = z.object({ undo: z.boolean() }).parse(of)
    await (undo ? node.drain.undo() : node.drain.start())
  })
}

/** The gateways of the site; a gateway that is the only one is one, too. */
export function nodes(deps: NodesDeps): Resource<Node> {
  const { node } = deps
  const look = async (id: string): Promise<Node> => {
    const row = node?.cluster.nodes.find(id)
    if (!node || id === node.nodeId) {
      const { progress, givenUp } = node?.drain ?? {}
      return { id, row, figures: nodeFigures(deps), drain: progress, givenUp }
    }
    const nothing = { id, row, figures: undefined, drain: undefined, givenUp: undefined }
    if (!row || !node.serves(id)) return nothing
    try {
      const said = AnswerSchema.parse(await node.questions.ask(id, QUESTION))
      const { figures, drain, given_up: givenUp } = said
      return { id, row, figures, drain: drain ?? undefined, givenUp: givenUp ?? undefined }
    } catch (error) {
      if (error instanceof NoAnswerError) return nothing
      throw error
    }
  }
  const drain = (undo: boolean) => async (it: Node, _body: unknown, baseUrl: string) => {
    if (!node)
      throw new ServiceError(841, 'This gateway is not part of a cluster. Stop it without a drain.')
    if (isGone(it, node)) {
      throw new ServiceError(842, `The gateway ${nameOf(it)} is not running. Start it first.`)
    }
    if (!undo && it.row?.standing === 'lost' && it.id !== node.nodeId) {
      throw new ServiceError(
        843,
        `The gateway ${nameOf(it)} does not reach PostgreSQL, so its names cannot move to other gateways now.`,
      )
    }
    if (it.id === node.nodeId) await (undo ? node.drain.undo() : node.drain.start())
    else await ask(node, it, undo)
    return view(await look(it.id), baseUrl)
  }
  const remove = async (it: Node) => {
    if (!node || it.id === node.nodeId || (it.row && isThere(it.row))) throw stillThere(it)
    if (node.links.find(it.id)?.session) throw stillLinked(it)
    // Gateways are in no records: the trail knows of it before it is done, whatever happens after that.
    await deps.database.change(() => {}, { withoutBackup: true })
    const outcome = await node.cluster.forget(it.id).catch((cause: unknown) => {
      if (!(cause instanceof DatabaseError)) throw cause
      throw new ServiceError(843, 'PostgreSQL does not answer. Try again when it is back.', {
        cause,
      })
    })
    if (outcome === 'there') throw stillThere(it)
  }
  const view = (it: Node, baseUrl: string) => viewNode(it, baseUrl, deps)
  /** This one, too, when it has not been able to look for the others yet. */
  const all = () => {
    const own = node?.nodeId ?? ONLY_NODE
    const seen = node?.cluster.nodes.all().map(({ id }) => id) ?? []
    return Array.from(new Set([own, ...seen]), (id) => ({ id }))
  }
  return {
    path: 'nodes',
    collection: 'nodes',
    prefix: 'nd',
    schema: NodeView,
    page: (request) => Promise.all(livePage(all(), request).map(({ id }) => look(id))),
    get: async (id) => (all().some((it) => it.id === id) ? look(id) : undefined),
    remove,
    view,
    ownerOf: ownedByGateway,
    actions: { drain: drain(false), undrain: drain(true) },
  }
}

function stillThere(it: Node): ServiceError {
  return new ServiceError(
    844,
    `The gateway ${nameOf(it)} is still running. Stop it first, or wait until the others mark it as lost.`,
  )
}

function stillLinked(it: Node): ServiceError {
  return new ServiceError(
    844,
    `The gateway ${nameOf(it)} does not reach PostgreSQL but still serves. Stop it first, or wait until its links to the other gateways close.`,
  )
}

async function ask(node: ClusterNode, it: Node, undo: boolean): Promise<void> {
  try {
    await node.questions.ask(it.id, DRAIN, { undo })
  } catch (error) {
    if (!(error instanceof NoAnswerError)) throw error
    throw new ServiceError(
      840,
      `The gateway ${nameOf(it)} does not answer. Try again, or send the request to it directly.`,
    )
  }
}

const nameOf = ({ id, row }: Node) => row?.facts.name ?? id

function viewNode(it: Node, baseUrl: string, { node, version }: NodesDeps) {
  const { id, row, figures, drain, givenUp } = it
  const startedAt = row?.facts.startedAt ?? performance.timeOrigin
  const isSelf = id === (node?.nodeId ?? ONLY_NODE)
  const view: z.infer<typeof NodeView> = {
    id,
    uri: `${baseUrl}/nodes/${id}`,
    name: row?.facts.name ?? hostname(),
    version: row?.facts.version ?? version,
    state: stateOf(it, node),
    since: timestamp(row?.since ?? startedAt),
    started_at: timestamp(startedAt),
    is_self: isSelf,
    peer_address: row ? formatListenAddress(row.facts.peer) : '',
    is_reached: figures !== undefined,
    latency_ms: latencyOf(node?.links.find(id)?.latencyMs),
    lease: node ? viewLease(it, isSelf, node.cluster) : null,
    ...viewFigures(figures),
    drain: drain
      ? { ...drain, since: timestamp(drain.since), is_done: sum(drain.left) === 0 }
      : null,
    drain_given_up: givenUp ? { ...givenUp, at: timestamp(givenUp.at) } : null,
  }
  return view
}

const isGone = ({ id, row }: Node, node: ClusterNode | undefined) =>
  row !== undefined && !node?.serves(id)

/** As it says itself where it does: others hear of it a moment later. */
function stateOf(it: Node, node: ClusterNode | undefined): z.infer<typeof NodeView>['state'] {
  const { row, figures, drain } = it
  if (isGone(it, node)) return 'gone'
  const isDraining = figures ? drain !== undefined : row?.standing === 'draining'
  return isDraining ? 'draining' : 'live'
}

function viewFigures(figures: NodeFigures | undefined) {
  if (!figures) return { agents: null, endpoints: null, load: null }
  const { agents, endpoints, ...load } = figures
  return { agents, endpoints, load }
}

const sum = ({ agents, endpoints, requests }: DrainProgress['left']) =>
  agents + endpoints + requests

const latencyOf = (ms: number | undefined) =>
  ms === undefined ? null : Math.round(ms * 1_000) / 1_000

/** Of itself a node knows more than the others: what they see may be old. */
const OWN_LEASE = {
  none: 'overdue',
  held: 'held',
  overdue: 'overdue',
  unsure: 'overdue',
  fenced: 'lost',
  unfit: 'lost',
  replaced: 'lost',
  forgotten: 'lost',
  left: 'left',
} as const

function viewLease({ id, row }: Node, isSelf: boolean, { lease, nodes }: ClusterNode['cluster']) {
  const { standing, epoch = 0 } = row ?? {}
  const silentMs = Math.round(nodes.silentMsOf(id) ?? 0)
  const isOver = standing === 'lost' || standing === 'left'
  const seen = isOver ? standing : silentMs >= OVERDUE_MS ? 'overdue' : 'held'
  return { state: isSelf ? OWN_LEASE[lease.state] : seen, epoch, silent_ms: silentMs } as const
}

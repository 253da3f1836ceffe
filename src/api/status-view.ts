import * as z from 'zod'
import type { AgentStatus, LinkStatus, OwnEndpointStatus } from '../agent/agent-status.ts'
import type { StandbyStatus } from '../agent/sessions/standby.ts'
import { causeIn, MAX_HEADLINE, type Verdict, verdictFrom } from '../agent/verdict.ts'
import type { StorageReport } from '../store/database.ts'
import type { StorageFault } from '../store/storage-state.ts'
import { StorageView, storageProblems, storageView } from '../store/storage-view.ts'
import { IsoTime, isoTime, isoTimeOrNull } from './iso-time.ts'
import { ProblemView, problemFields, problemView } from './problem-view.ts'
import { ReachableView } from './tunnel-view.ts'
import { UpdateView } from './update-view.ts'

const Count = z.number().min(0)

/** The state of the device in one object, with remedies for problems. */
export const StatusView = z.strictObject({
  verdict: z
    .string()
    .max(MAX_HEADLINE)
    .describe('how many tunnels work for visitors, and the most important problem'),
  advice: z
    .array(z.strictObject({ problem: z.string(), remedy: z.string() }))
    .readonly()
    .describe('up to three problems with their fixes, the most important first'),
  healthy: z.boolean().describe('true if every tunnel is online and no problem needs attention'),
  ready: z.boolean(),
  unverified: z.array(z.string()).readonly().describe('facts that the device cannot verify'),
  started_at: IsoTime,
  device_id: z.string(),
  link: z.strictObject({
    state: z.enum([
      'connecting',
      'up',
      'suspect',
      'waiting',
      'refused',
      'duplicate',
      'parked',
      'stopped',
    ]),
    since: IsoTime,
    ...problemFields,
    latency_ms: z.number().nullable(),
    server_addr: z
      .string()
      .nullable()
      .describe('address that is connected or being tried; null for the hosted service'),
    renewal: ProblemView.nullable().describe(
      'why the session cannot be renewed, for example because a new authtoken is refused',
    ),
    duplicate: z
      .strictObject({ ip: z.string(), seen_at: IsoTime })
      .nullable()
      .describe('another device that tries to connect with the same identity'),
    standby: z
      .strictObject({
        state: z.enum(['idle', 'connecting', 'ready', 'waiting', 'refused', 'stopped']),
        server_addr: z.string().nullable(),
        ...problemFields,
      })
      .nullable()
      .describe('standby session, if SVC_SERVER_ADDR has several addresses'),
  }),
  tunnels: z.strictObject({
    opening: Count,
    online: Count,
    waiting: Count,
    refused: Count,
    closing: Count,
    total: Count,
  }),
  damaged_rows: z.array(z.string()).readonly(),
  own_endpoint: z
    .strictObject({
      domain: z.string(),
      url: z.string(),
      state: z.enum(['opening', 'online', 'waiting', 'refused', 'closing']),
      since: IsoTime,
      reason: z
        .string()
        .nullable()
        .describe('why it is not online; if online, why the device cannot reach it'),
      remedy: z.string().nullable(),
      last_error: z.string().nullable(),
      reachable: ReachableView,
      last_probe_at: IsoTime.nullable(),
    })
    .nullable(),
  default_policy: z.strictObject({
    source: z.enum(['file', 'kept']),
    loaded_at: IsoTime,
    problem: z.string().nullable(),
  }),
  storage: StorageView,
  resources: z
    .strictObject({
      state: z.enum(['enough', 'descriptors', 'memory']),
      last_error: z.string().nullable(),
      remedy: z.string().nullable(),
    })
    .describe('exhausted resource'),
  versions: z.strictObject({ agent: z.string(), node: z.string(), sdk: z.string() }),
  update: UpdateView.nullable().describe('state of the last device-agent update'),
  clock: z.strictObject({
    now: IsoTime,
    skew_ms: z.number().nullable().describe('clock of the device minus clock of the gateway'),
  }),
})
export type StatusView = z.infer<typeof StatusView>

/** Forms for the headline, which has no room for the path of a folder. */
const STORAGE_TEXTS: Readonly<Record<StorageFault, string>> = {
  full: 'the disk is full',
  unwritable: 'the disk is not writable',
  damaged: 'the database is damaged',
}

const COMMANDS = { confirm: 'device-agent storage confirm', restore: 'device-agent restore' }

/** Combines the status of the agent with that of its storage. */
export function verdictOf(
  { serving, causes, notes }: AgentStatus,
  storage: StorageReport,
): Verdict {
  const short = storage.fault && { short: STORAGE_TEXTS[storage.fault] }
  const ofStorage = storageProblems(storage, COMMANDS).map((text, at) => ({
    ...causeIn(text),
    // The fault comes before the losses.
    ...(at === 0 && short),
  }))
  const { risk } = storage
  const risks = risk ? [{ ...causeIn(risk.text), short: risk.short }] : []
  return verdictFrom(serving, [...causes, ...ofStorage, ...risks, ...notes])
}

export function statusView(
  status: AgentStatus,
  storage: StorageReport,
  update?: UpdateView,
): StatusView {
  const { defaultPolicy, clock } = status
  const { headline, advice } = verdictOf(status, storage)
  const { problem, lossProblem, risk } = storage
  const isStorageWell = problem === undefined && lossProblem === undefined && !risk?.isProblem
  return {
    verdict: headline,
    advice,
    healthy: status.healthy && isStorageWell,
    ready: status.ready && problem === undefined,
    unverified: status.unverified,
    started_at: isoTime(status.startedAt),
    device_id: status.deviceId,
    link: linkView(status.link),
    tunnels: status.tunnels,
    damaged_rows: status.damagedRows.map(({ id }) => id),
    own_endpoint: status.ownEndpoint ? ownEndpointView(status.ownEndpoint) : null,
    default_policy: {
      source: defaultPolicy.source,
      loaded_at: isoTime(defaultPolicy.loadedAt),
      problem: defaultPolicy.problem ?? null,
    },
    storage: storageView(storage),
    resources: resourcesView(status.resources),
    versions: status.versions,
    update: update ?? null,
    clock: { now: isoTime(clock.now), skew_ms: clock.skewMs ?? null },
  }
}

function linkView(link: LinkStatus): StatusView['link'] {
  return {
    state: link.state,
    since: isoTime(link.since),
    ...problemView(link),
    latency_ms: link.latencyMs ?? null,
    server_addr: link.serverAddr ?? null,
    renewal: link.renewal ? problemView(link.renewal) : null,
    duplicate: link.duplicate
      ? { ip: link.duplicate.ip, seen_at: isoTime(link.duplicate.seenAt) }
      : null,
    standby: link.standby ? standbyView(link.standby) : null,
  }
}

function standbyView(standby: StandbyStatus): StatusView['link']['standby'] {
  return {
    state: standby.state,
    server_addr: standby.serverAddr ?? null,
    ...problemView(standby),
  }
}

function ownEndpointView(own: OwnEndpointStatus): StatusView['own_endpoint'] {
  return {
    domain: own.domain,
    url: own.url,
    state: own.state,
    since: isoTime(own.since),
    reason: own.reason ?? null,
    remedy: own.remedy ?? null,
    last_error: own.lastError ?? null,
    reachable: own.reachable,
    last_probe_at: isoTimeOrNull(own.lastProbeAt),
  }
}

function resourcesView(resources: AgentStatus['resources']): StatusView['resources'] {
  const problem = 'problem' in resources ? resources.problem : undefined
  return {
    state: resources.name,
    last_error: problem?.detail ?? null,
    remedy: problem?.remedy ?? null,
  }
}

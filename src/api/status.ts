import { Router } from 'express'
import type { Agent } from '../agent/agent.ts'
import type { AgentStatus, LinkStatus, OwnEndpointStatus } from '../agent/agent-status.ts'
import { methodNotAllowed } from '../http/no-route.ts'
import type { Database, StorageReport } from '../store/database.ts'
import { isoTime, isoTimeOrNull } from './iso-time.ts'
import { problemView } from './problem-view.ts'

/** `/status`: one object that says whether the device is fine, and if not, what to do. */
export function statusRoutes(agent: Agent, database: Database): Router {
  const router = Router()
  router
    .route('/status')
    .get((_request, response) => {
      response.json(statusView(agent.status(), database.report()))
    })
    .all(methodNotAllowed('GET', 'HEAD'))
  return router
}

function statusView(status: AgentStatus, storage: StorageReport) {
  const { defaultPolicy, clock } = status
  return {
    verdict: storage.problem ? `${status.verdict}; ${storage.problem}` : status.verdict,
    healthy: status.healthy && storage.problem === undefined,
    ready: status.ready && storage.problem === undefined,
    started_at: isoTime(status.startedAt),
    device_id: status.deviceId,
    link: linkView(status.link),
    tunnels: status.tunnels,
    damaged_rows: status.damagedRows,
    own_endpoint: status.ownEndpoint ? ownEndpointView(status.ownEndpoint) : null,
    default_policy: {
      source: defaultPolicy.source,
      loaded_at: isoTime(defaultPolicy.loadedAt),
      problem: defaultPolicy.problem ?? null,
    },
    storage: storageView(storage),
    versions: status.versions,
    clock: { now: isoTime(clock.now), skew_ms: clock.skewMs ?? null },
  }
}

function linkView(link: LinkStatus) {
  return {
    state: link.state,
    since: isoTime(link.since),
    ...problemView(link),
    latency_ms: link.latencyMs ?? null,
  }
}

function ownEndpointView(own: OwnEndpointStatus) {
  return {
    domain: own.domain,
    url: own.url,
    state: own.state,
    since: isoTime(own.since),
    reason: own.reason ?? null,
    last_error: own.lastError ?? null,
    reachable: own.reachable,
    last_probe_at: isoTimeOrNull(own.lastProbeAt),
  }
}

function storageView({ fault, problem, healing, lastBackupAt, putAside }: StorageReport) {
  return {
    fault: fault ?? null,
    problem: problem ?? null,
    healed: healing
      ? { damage: healing.damage, restored_from: isoTimeOrNull(healing.restoredFrom) }
      : null,
    last_backup_at: isoTimeOrNull(lastBackupAt),
    put_aside: putAside,
  }
}

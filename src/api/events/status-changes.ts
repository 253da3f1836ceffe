import type { DefaultPolicyStatus, LinkStatus } from '../../agent/agent-status.ts'
import type { Tunnel } from '../../agent/tunnel.ts'
import type { StorageFault } from '../../store/storage-state.ts'
import { isoTime } from '../iso-time.ts'
import { problemView } from '../problem-view.ts'
import type { AgentChange } from './event-log.ts'

/** The state that is compared for changes. */
export interface Snapshot {
  readonly tunnels: readonly Tunnel[]
  readonly link: LinkStatus
  readonly defaultPolicy: DefaultPolicyStatus
  readonly storage: { readonly fault: StorageFault | undefined }
}

interface SeenTunnel {
  /** The same object is the same status. */
  readonly tunnel: Tunnel
  readonly spec: string
  readonly state: string
  readonly view: Readonly<Record<string, unknown>>
}

/** Finds the changes between two snapshots. */
export class StatusChanges {
  #tunnels: Map<string, SeenTunnel>
  #link: string
  #policy: string
  #storage: StorageFault | undefined

  /** The first snapshot produces no events. */
  constructor(snapshot: Snapshot) {
    this.#tunnels = seenTunnels(snapshot, new Map())
    this.#link = linkMark(snapshot.link)
    this.#policy = policyMark(snapshot.defaultPolicy)
    this.#storage = snapshot.storage.fault
  }

  /** Changes since the last call. Changes of tunnels come last. */
  changesIn(snapshot: Snapshot): AgentChange[] {
    return [
      ...this.#storageChange(snapshot),
      ...this.#linkChange(snapshot),
      ...this.#policyChange(snapshot),
      ...this.#tunnelChanges(snapshot),
    ]
  }

  #storageChange({ storage: { fault } }: Snapshot): AgentChange[] {
    if (fault === this.#storage) return []
    this.#storage = fault
    return [
      { type: 'storage.state', data: { writable: fault === undefined, fault: fault ?? null } },
    ]
  }

  #linkChange({ link }: Snapshot): AgentChange[] {
    const mark = linkMark(link)
    if (mark === this.#link) return []
    this.#link = mark
    const { state, since, serverAddr = null, duplicate } = link
    const data = {
      state,
      since: isoTime(since),
      server_addr: serverAddr,
      ...problemView(link),
      duplicate: duplicate ? { ip: duplicate.ip } : null,
    }
    return [{ type: 'link.state', data }]
  }

  #policyChange({ defaultPolicy }: Snapshot): AgentChange[] {
    const mark = policyMark(defaultPolicy)
    if (mark === this.#policy) return []
    this.#policy = mark
    const { source, loadedAt, problem = null } = defaultPolicy
    return [{ type: 'policy.default', data: { source, loaded_at: isoTime(loadedAt), problem } }]
  }

  #tunnelChanges(snapshot: Snapshot): AgentChange[] {
    const before = this.#tunnels
    const now = seenTunnels(snapshot, before)
    this.#tunnels = now
    const changes: AgentChange[] = []
    for (const [id, { view }] of before) {
      if (!now.has(id)) changes.push({ type: 'tunnel.deleted', data: view })
    }
    for (const [id, seen] of now) {
      const old = before.get(id)
      if (old === seen) continue
      if (!old) changes.push({ type: 'tunnel.created', data: seen.view })
      else if (old.spec !== seen.spec) changes.push({ type: 'tunnel.changed', data: seen.view })
      else if (old.state !== seen.state) changes.push({ type: 'tunnel.state', data: seen.view })
    }
    return changes
  }
}

function linkMark({ state, reason, lastError, serverAddr, duplicate }: LinkStatus): string {
  return JSON.stringify([state, reason, lastError, serverAddr, duplicate?.ip])
}

function policyMark({ source, loadedAt, problem }: DefaultPolicyStatus): string {
  return JSON.stringify([source, loadedAt, problem])
}

function seenTunnels(
  { tunnels }: Snapshot,
  before: ReadonlyMap<string, SeenTunnel>,
): Map<string, SeenTunnel> {
  const now = new Map<string, SeenTunnel>()
  for (const tunnel of tunnels) {
    const old = before.get(tunnel.id)
    now.set(tunnel.id, old?.tunnel === tunnel ? old : seenTunnel(tunnel))
  }
  return now
}

function seenTunnel(tunnel: Tunnel): SeenTunnel {
  const { id, url, spec, status, updatedAt } = tunnel
  const { state, since, upstream, reason, lastError } = status
  const view = {
    id,
    url_part: spec.domain || id,
    url,
    protocol: spec.protocol,
    forwards_to: spec.forwardsTo,
    state,
    since: isoTime(since),
    upstream,
    ...problemView(status),
  }
  return {
    tunnel,
    spec: String(updatedAt),
    state: JSON.stringify([state, url, upstream, reason, lastError]),
    view,
  }
}

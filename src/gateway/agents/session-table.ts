import type { Clock } from '../../base/clock.ts'
import { SlidingLog } from '../../base/limiter.ts'
import {
  claimClientId,
  NO_USAGE,
  type OnlineName,
  type UsageElsewhere,
} from '../access/name-claims.ts'
import type { NameFacts } from '../endpoints/away-name.ts'
import type {
  AgentEndpoint,
  AgentIdentity,
  ConnectedAgent,
  SessionEnd,
} from '../endpoints/endpoint.ts'
import { ServiceError } from '../records/service-error.ts'

const MINUTE_MS = 60_000
const TURN_MS = 1_000
/** Connections of one process: twice as many as it opens, for those that another set replaces. */
const MAX_OF_PROCESS = 40

/** What one credential may use at once, and how fast. */
export interface CredentialLimits {
  /** Several connections of one process count as one. */
  readonly sessions: number
  readonly sessionsPerMinute: number
  readonly endpoints: number
  readonly bindsPerMinute: number
}

export const DEFAULT_CREDENTIAL_LIMITS: CredentialLimits = {
  sessions: 1_000,
  sessionsPerMinute: 600,
  endpoints: 10_000,
  bindsPerMinute: 10_000,
}

/** An authenticated session as the table sees it. */
export interface TableEntry extends ConnectedAgent {
  /** Given to the agent, which presents it again when it reconnects. */
  readonly clientId: string
  readonly endpointCount: number
  /** Whether the agent answers a heartbeat in time; one goes out at once. */
  answers(withinMs: number): Promise<boolean>
  /** Another process with the identity of the device was refused. Returns whether that is news. */
  noteDuplicate(ip: string): boolean
  /**
   * One of its names is served by `successor` from now on, which may be itself, or at another node. What
   * is under way has `withinMs` when nothing else is left.
   */
  giveWay(endpoint: AgentEndpoint, successor: TableEntry | undefined, withinMs?: number): void
  /** Another account's session of the same process is to have an endpoint of this one, once that is unbound. */
  leaveTo(endpoint: AgentEndpoint, heir: Heir): void
  /** Ends the session as soon as nothing is under way on it, after `withinMs` in any case. */
  retire(withinMs: number): void
  /** Another connection of the same client has ended: this one serves what both have bound. */
  legEnded?(): void
  /** Ends what the credential no longer allows. */
  recheck(): void
}

/** What a session binds as soon as the endpoint of another account is gone. */
export interface Heir {
  readonly sessionId: string
  readonly facts: NameFacts
}

/** Who wants to know which sessions there are. */
export interface SessionWatch {
  came(session: ConnectedAgent): void
  /** `urls` are those of the endpoints that it had. */
  went(session: ConnectedAgent, why: SessionEnd, urls: readonly string[]): void
}

/**
 * The authenticated sessions. A device that comes back takes the place of its own ghost. A process
 * may have several, which take each other's names over; of two processes with the identity of one
 * device a single one gets in (`rivals.ts`).
 *
 * INVARIANTS
 * - A session adds itself once, when it has authenticated, and removes itself when it ends, whatever
 *   ends it. The table ends sessions and never forgets one by itself.
 * - A session stands in all maps that it belongs to or in none; `id` and `identity` never change.
 * - `end()` and `recheck()` come back with `remove()` before they return, so a set is walked as a copy.
 * - Nothing here waits: between a check and what it allows, nobody else comes in.
 * - `add` ends ghosts only when it can no longer refuse the newcomer: a device whose reconnect is
 *   refused keeps the session that it has.
 * - A bind is counted before it is judged: what is refused uses up the minute, too.
 */
export class SessionTable {
  readonly #limits: CredentialLimits
  readonly #watch: SessionWatch | undefined
  #elsewhere: UsageElsewhere = NO_USAGE
  readonly #newSessions: SlidingLog
  readonly #newBinds: SlidingLog
  /** Changes of which session is a device's, where two processes fight for it. */
  readonly #turns: SlidingLog
  readonly #byId = new Map<string, TableEntry>()
  /** Only credentials that have a session: a set that empties goes. */
  readonly #byCredential = new Map<string, Set<TableEntry>>()
  /** The same, of devices that say who they are. */
  readonly #byDevice = new Map<string, Set<TableEntry>>()

  constructor({
    limits,
    watch,
    clock,
  }: {
    limits: CredentialLimits
    watch?: SessionWatch
    clock: Clock
  }) {
    this.#limits = limits
    this.#watch = watch
    this.#newSessions = new SlidingLog({
      capacity: limits.sessionsPerMinute,
      windowMs: MINUTE_MS,
      clock,
    })
    this.#turns = new SlidingLog({ capacity: 1, windowMs: TURN_MS, clock })
    this.#newBinds = new SlidingLog({
      capacity: limits.bindsPerMinute,
      windowMs: MINUTE_MS,
      clock,
    })
  }

  /** From now on what is used at other gateways counts, too. */
  countElsewhere(usage: UsageElsewhere): void {
    this.#elsewhere = usage
  }

  get size(): number {
    return this.#byId.size
  }

  all(): IterableIterator<TableEntry> {
    return this.#byId.values()
  }

  find(id: string): TableEntry | undefined {
    return this.#byId.get(id)
  }

  /** A session of another process of the same device: with its authtoken, and another instance. */
  rivalOf(identity: AgentIdentity): TableEntry | undefined {
    const { instance } = identity
    const key = deviceKey(identity)
    if (key === undefined || instance === undefined) return undefined
    for (const session of this.#byDevice.get(key) ?? []) {
      const { instance: other, credentialId } = session.identity
      const isOther = other !== undefined && other !== instance
      if (isOther && credentialId === identity.credentialId) return session
    }
    return undefined
  }

  /** A session of another client that ends when this agent comes, because both call themselves one device. */
  replacedBy(identity: AgentIdentity): TableEntry | undefined {
    const clientId = identity.presentedClientId
    return this.#peersOf(identity.credentialId).find(
      (peer) => peer.clientId !== clientId && isGhost(peer, { clientId, identity }),
    )
  }

  /** 0 when a session may take another one's place now, else the milliseconds until it may. */
  takeTurn(identity: AgentIdentity): number {
    return this.#turns.take(`${identity.credentialId} ${identity.deviceId}`)
  }

  /** The other connections of the same client. */
  legsOf({ id, clientId, identity }: TableEntry): TableEntry[] {
    return this.#peersOf(identity.credentialId).filter(
      (peer) => peer.clientId === clientId && peer.id !== id,
    )
  }

  /** After a credential was changed: its sessions end what it no longer allows. */
  recheck(credentialId: string): void {
    for (const session of this.#peersOf(credentialId)) session.recheck()
  }

  /**
   * Takes a session in and ends those that it replaces: same credential, and same client, or same
   * device where one of the two does not name its process.
   * Throws ServiceError 108 or 349 when the credential has its fill.
   */
  add(session: TableEntry): void {
    const { identity } = session
    const { credentialId } = identity
    const peers = this.#peersOf(credentialId)
    const ghosts = peers.filter((peer) => isGhost(peer, session))
    const others = peers.filter((peer) => !ghosts.includes(peer))
    const own = others.filter((peer) => isSameProcess(peer.identity, identity)).length
    if (own > 0) this.#checkLane(session, own)
    else this.#checkSession(session, new Set(others.map(processKey)).size)
    for (const ghost of ghosts) ghost.end('the device connected again', 'superseded')
    insert(this.#byCredential, credentialId, session)
    insert(this.#byDevice, deviceKey(session.identity), session)
    this.#byId.set(session.id, session)
    try {
      this.#watch?.came(session)
    } catch (error) {
      // It has not come, so it never goes.
      this.#drop(session)
      throw error
    }
  }

  /** Another connection of a process that has `own` of them. */
  #checkLane({ identity: { credentialId, deviceId } }: TableEntry, own: number): void {
    const perMinute = this.#limits.sessionsPerMinute
    if (own < MAX_OF_PROCESS && this.#newSessions.take(`${credentialId} ${deviceId}`) === 0) return
    throw new ServiceError(
      349,
      `The device ${deviceId} has ${own} connections, or opened more than ${perMinute} in a minute.`,
    )
  }

  #checkSession(session: TableEntry, here: number): void {
    const { credentialId, deviceId } = session.identity
    const clientId = claimClientId(session)
    const room = this.#limits.sessions - here
    const sessions =
      here +
      this.#usedElsewhere(credentialId, room, (usage) =>
        usage.sessionsOf(credentialId, { clientId, deviceId }),
      )
    if (sessions >= this.#limits.sessions) {
      throw new ServiceError(
        108,
        `The authtoken ${credentialId} is at its limit of ${sessions} agent sessions.`,
      )
    }
    if (this.#newSessions.take(credentialId) > 0) {
      throw new ServiceError(
        349,
        `The authtoken ${credentialId} opened more than ${this.#limits.sessionsPerMinute} sessions in a minute.`,
      )
    }
  }

  remove(
    session: TableEntry,
    why: SessionEnd = 'disconnected',
    urls: readonly string[] = [],
  ): void {
    if (this.#drop(session)) this.#watch?.went(session, why, urls)
  }

  /** Counts a bind of a session. Throws ServiceError 351 when its credential has its fill. */
  countBind({ identity: { credentialId } }: Pick<TableEntry, 'identity'>): void {
    if (this.#newBinds.take(credentialId) === 0) return
    throw new ServiceError(
      351,
      `The authtoken ${credentialId} opened more than ${this.#limits.bindsPerMinute} endpoints in a minute.`,
    )
  }

  /** Throws ServiceError 18021 when the credential of a session may have no endpoint more. */
  checkRoom({ identity: { credentialId } }: Pick<TableEntry, 'identity'>, name: OnlineName): void {
    let here = 0
    for (const { endpointCount } of this.#byCredential.get(credentialId) ?? []) {
      here += endpointCount
    }
    const room = this.#limits.endpoints - here
    const endpoints =
      here +
      this.#usedElsewhere(credentialId, room, (usage) => usage.endpointsOf(credentialId, name))
    if (endpoints < this.#limits.endpoints) return
    throw new ServiceError(
      18021,
      `The authtoken ${credentialId} is at its limit of ${endpoints} online endpoints.`,
    )
  }

  /** Looked up only where it may matter: where there is room for `room` more, less than that is 0. */
  #usedElsewhere(
    credentialId: string,
    room: number,
    count: (usage: UsageElsewhere) => number,
  ): number {
    const usage = this.#elsewhere
    return usage.mostOf(credentialId) >= room ? count(usage) : 0
  }

  /** Out of all maps; false when it was in none. */
  #drop(session: TableEntry): boolean {
    const { credentialId } = session.identity
    drop(this.#byCredential, credentialId, session)
    drop(this.#byDevice, deviceKey(session.identity), session)
    return this.#byId.delete(session.id)
  }

  /** A copy: who ends leaves the set. */
  #peersOf(credentialId: string): TableEntry[] {
    return [...(this.#byCredential.get(credentialId) ?? [])]
  }
}

/** Whether two sessions are of one process and account: then they may take each other's names over. */
export function isSameProcess(a: AgentIdentity, b: AgentIdentity): boolean {
  return a.ownerId === b.ownerId && isSameInstance(a, b)
}

/** The same, whatever the accounts. */
export function isSameInstance({ deviceId, instance }: AgentIdentity, b: AgentIdentity): boolean {
  const isNamed = deviceId !== undefined && instance !== undefined
  return isNamed && deviceId === b.deviceId && instance === b.instance
}

/** Whether `old` is what is left of the agent that comes back as `session`. */
function isGhost(
  old: TableEntry,
  session: { readonly clientId: string | undefined; readonly identity: AgentIdentity },
): boolean {
  const leg = (identity: AgentIdentity) => identity.legNumber ?? 0
  if (old.clientId === session.clientId) return leg(old.identity) === leg(session.identity)
  const { deviceId, instance } = session.identity
  if (deviceId === undefined || deviceId !== old.identity.deviceId) return false
  return instance === undefined || old.identity.instance === undefined
}

/** The same for all connections of a process. */
function processKey({ id, identity: { deviceId, instance } }: TableEntry): string {
  return deviceId === undefined || instance === undefined ? id : `${deviceId} ${instance}`
}

/** Of one account; undefined for agents that do not say which device they are. */
function deviceKey({ ownerId, deviceId }: AgentIdentity): string | undefined {
  return deviceId === undefined ? undefined : `${ownerId ?? ''} ${deviceId}`
}

function insert(
  table: Map<string, Set<TableEntry>>,
  key: string | undefined,
  session: TableEntry,
): void {
  if (key === undefined) return
  const sessions = table.get(key) ?? new Set()
  table.set(key, sessions.add(session))
}

function drop(
  table: Map<string, Set<TableEntry>>,
  key: string | undefined,
  session: TableEntry,
): void {
  const sessions = key === undefined ? undefined : table.get(key)
  sessions?.delete(session)
  if (key !== undefined && sessions?.size === 0) table.delete(key)
}

import { randomUUID } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { SlidingLog } from '../../base/limiter.ts'
import {
  claimClientId,
  NO_USAGE,
  type OnlineName,
  type UsageElsewhere,
} from '../access/name-claims.ts'
import type { NameFacts } from '../endpoints/disconnected-name.ts'
import type {
  AgentEndpoint,
  AgentIdentity,
  ConnectedAgent,
  SessionEnd,
} from '../endpoints/endpoint.ts'
import { ServiceError } from '../records/service-error.ts'

const MINUTE_MS = 60_000
/** Competing processes of a device replace each other at most once in this time. */
const TURN_MS = 1_000
/** Connections of one process: twice as many as it opens, because a new set may replace the old set. */
const MAX_OF_PROCESS = 40

/** Limits of one credential: concurrent use and rates. */
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
  /** Sends a heartbeat and returns whether the agent answers in time. */
  answers(withinMs: number): Promise<boolean>
  /**
   * Records that another process with the identity of the device was refused. Returns whether that is news.
   */
  noteDuplicate(ip: string): boolean
  /**
   * Gives the name of an endpoint to `successor`, which may be this session itself. Undefined: a session at
   * another node. If this was the last endpoint, exchanges under way have `withinMs`.
   */
  giveWay(endpoint: AgentEndpoint, successor: TableEntry | undefined, withinMs?: number): void
  /**
   * Reserves an endpoint for a session of the same process under another account. That session gets it once
   * it is unbound.
   */
  leaveTo(endpoint: AgentEndpoint, heir: Heir): void
  /** Ends the session as soon as it has nothing under way, or after `withinMs` in any case. */
  retire(withinMs: number): void
  /**
   * Another connection of the same client has ended. This session serves the endpoints that both have bound.
   */
  legEnded?(): void
  /** The process of the agent has several sessions here. Tells it the id of this gateway. */
  tellGateway?(gateway: string): void
  /** Names can be confirmed again. Tells an agent of which a name was refused. */
  retryNames?(): void
  /** Ends the session or endpoints that the credential no longer allows. */
  recheck(): void
}

/** The session that binds an endpoint as soon as the endpoint of another account is gone. */
export interface Heir {
  readonly sessionId: string
  readonly facts: NameFacts
}

/** Observer of sessions. */
export interface SessionWatch {
  came(session: ConnectedAgent): void
  /** `urls`: URLs of the endpoints that it had. */
  went(session: ConnectedAgent, why: SessionEnd, urls: readonly string[]): void
}

/**
 * The authenticated sessions. A returning device replaces its own dead session. A process may have several
 * sessions, which take over each other's names. Of two processes with the identity of one device, only one is
 * accepted (`rivals.ts`).
 *
 * INVARIANTS
 * - A session adds itself once, after authentication, and removes itself when it ends for any reason. The
 *   table ends sessions but never removes them by itself.
 * - A session is in all maps that it belongs to, or in no map. `id` and `identity` never change.
 * - `end()` and `recheck()` call `remove()` before they return, so sets are iterated as copies.
 * - All methods are synchronous: no other session can come in between a check and the step it allows.
 * - `add` ends dead sessions only after the last check. A device whose reconnect is refused keeps its
 *   session.
 * - A bind is counted before it is validated, so refused binds also count for the minute.
 */
export class SessionTable {
  /** Differs in each process, because a single gateway has no id of its own. */
  readonly #gateway = randomUUID()
  readonly #limits: CredentialLimits
  readonly #watch: SessionWatch | undefined
  #elsewhere: UsageElsewhere = NO_USAGE
  readonly #newSessions: SlidingLog
  readonly #newBinds: SlidingLog
  /** Limits how often a device's session is replaced while two processes compete for it. */
  readonly #turns: SlidingLog
  readonly #byId = new Map<string, TableEntry>()
  /** Only credentials with sessions; empty sets are removed. */
  readonly #byCredential = new Map<string, Set<TableEntry>>()
  /** By device, for agents that report a device id. */
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

  /** Also counts usage at other gateways from now on. */
  countElsewhere(usage: UsageElsewhere): void {
    this.#elsewhere = usage
  }

  get size(): number {
    return this.#byId.size
  }

  /** Agents with sessions: all sessions of a process are one agent. */
  get agentCount(): number {
    return new Set(Array.from(this.#byId.values(), processKey)).size
  }

  all(): IterableIterator<TableEntry> {
    return this.#byId.values()
  }

  find(id: string): TableEntry | undefined {
    return this.#byId.get(id)
  }

  /** A session of another process of the same device: same authtoken, different instance. */
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

  /** A session of another client that ends when this agent connects, because both report the same device. */
  replacedBy(identity: AgentIdentity): TableEntry | undefined {
    const clientId = identity.presentedClientId
    return this.#peersOf(identity.credentialId).find(
      (peer) => peer.clientId !== clientId && isGhost(peer, { clientId, identity }),
    )
  }

  /** Returns 0 if a session may replace another session now, else the wait in milliseconds. */
  takeTurn(identity: AgentIdentity): number {
    return this.#turns.tryCount(`${identity.credentialId} ${identity.deviceId}`)
  }

  /** The other connections of the same client. */
  legsOf({ id, clientId, identity }: TableEntry): TableEntry[] {
    return this.#peersOf(identity.credentialId).filter(
      (peer) => peer.clientId === clientId && peer.id !== id,
    )
  }

  /** Rechecks the sessions of a changed credential, which end everything it no longer allows. */
  recheck(credentialId: string): void {
    for (const session of this.#peersOf(credentialId)) session.recheck()
  }

  /**
   * Adds a session and ends the sessions that it replaces. They have the same credential and the same client,
   * or the same device if one of the two reports no process. Throws ServiceError 108 or 349 if the credential
   * is at its limit.
   */
  add(session: TableEntry): void {
    const { identity } = session
    const { credentialId } = identity
    const peers = this.#peersOf(credentialId)
    const ghosts = peers.filter((peer) => isGhost(peer, session))
    const others = peers.filter((peer) => !ghosts.includes(peer))
    const own = others.filter((peer) => isSameProcess(peer.identity, identity))
    if (own.length > 0) this.#checkLane(session, own.length)
    else this.#checkSession(session, new Set(others.map(processKey)).size)
    for (const ghost of ghosts) ghost.end('the device connected again', 'superseded')
    insert(this.#byCredential, credentialId, session)
    insert(this.#byDevice, deviceKey(session.identity), session)
    this.#byId.set(session.id, session)
    try {
      this.#watch?.came(session)
    } catch (error) {
      // The session was not added, so no end is reported either.
      this.#drop(session)
      throw error
    }
    if (own.length > 0) for (const it of [...own, session]) it.tellGateway?.(this.#gateway)
  }

  /** Checks a further connection of a process that already has `own` connections. */
  #checkLane({ identity: { credentialId, deviceId } }: TableEntry, own: number): void {
    const perMinute = this.#limits.sessionsPerMinute
    if (own < MAX_OF_PROCESS && this.#newSessions.tryCount(`${credentialId} ${deviceId}`) === 0)
      return
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
    if (this.#newSessions.tryCount(credentialId) > 0) {
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

  /** Counts a bind of a session. Throws ServiceError 351 if its credential is at its limit. */
  countBind({ identity: { credentialId } }: Pick<TableEntry, 'identity'>): void {
    if (this.#newBinds.tryCount(credentialId) === 0) return
    throw new ServiceError(
      351,
      `The authtoken ${credentialId} opened more than ${this.#limits.bindsPerMinute} endpoints in a minute.`,
    )
  }

  /** Throws ServiceError 18021 if the credential of a session may have no more endpoints. */
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

  /** Returns usage at other gateways. If they cannot reach `room`, returns 0 without counting. */
  #usedElsewhere(
    credentialId: string,
    room: number,
    count: (usage: UsageElsewhere) => number,
  ): number {
    const usage = this.#elsewhere
    return usage.mostOf(credentialId) >= room ? count(usage) : 0
  }

  /** Removes a session from all maps. Returns false if it was not present. */
  #drop(session: TableEntry): boolean {
    const { credentialId } = session.identity
    drop(this.#byCredential, credentialId, session)
    drop(this.#byDevice, deviceKey(session.identity), session)
    return this.#byId.delete(session.id)
  }

  /** Returns a copy, because ended sessions leave the set. */
  #peersOf(credentialId: string): TableEntry[] {
    return [...(this.#byCredential.get(credentialId) ?? [])]
  }
}

/** Whether two sessions have the same process and account. Such sessions may take over each other's names. */
export function isSameProcess(a: AgentIdentity, b: AgentIdentity): boolean {
  return a.ownerId === b.ownerId && isSameInstance(a, b)
}

/** Whether two sessions have the same process, under any account. */
export function isSameInstance({ deviceId, instance }: AgentIdentity, b: AgentIdentity): boolean {
  const isNamed = deviceId !== undefined && instance !== undefined
  return isNamed && deviceId === b.deviceId && instance === b.instance
}

/** Whether `old` is a leftover session of the agent that returns as `session`. */
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

/** Key shared by all connections of a process. */
function processKey({ id, identity: { deviceId, instance } }: TableEntry): string {
  return deviceId === undefined || instance === undefined ? id : `${deviceId} ${instance}`
}

/** Includes the account. Undefined for agents without a device id. */
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

import { ErrorCode } from '../../muxado/error-code.ts'
import { call, notify } from '../../muxado/rpc.ts'
import type { Session } from '../../muxado/session.ts'
import type { AwayName } from '../endpoints/away-name.ts'
import type {
  AgentCommand,
  AgentIdentity,
  Duplicate,
  SessionEnd,
} from '../endpoints/connected-agent.ts'
import { type AgentEndpoint, EndpointTraffic } from '../endpoints/endpoint.ts'
import { isResourceId, renamedId } from '../records/resource-id.ts'
import { refusalOf, ServiceError } from '../records/service-error.ts'
import { StreamPool } from '../streams/stream-pool.ts'
import { StreamSlots } from '../streams/stream-slots.ts'
import { untilIdle } from '../streams/until-idle.ts'
import { commandAgent } from './agent-command.ts'
import type { AgentDeps } from './agent-deps.ts'
import { AgentHeartbeat } from './agent-heartbeat.ts'
import { drainedUrl, drainMs, duplicateNotice } from './agent-notice.ts'
import type { CompiledBinding } from './binder.ts'
import {
  MAX_MESSAGE_BYTES,
  parseBind,
  parseUnbind,
  StreamType,
  sentOptions,
} from './control-message.ts'
import { DuplicateRecord } from './duplicate-record.ts'
import { IdleEnd } from './idle-end.ts'
import { findPredecessor } from './predecessor.ts'
import { prepareBinding, wantedName } from './prepare-binding.ts'
import { encodeProxyHeader } from './proxy-header.ts'
import type { TableEntry } from './session-table.ts'
import { upstreamNoticeIn } from './upstream-notice.ts'
import { VisitorNotices } from './visitor-notices.ts'

/** What an agent had taken over from another session is ended with it, at the latest. */
const SUPERSEDED_MS = 10_000
/** How long an agent that obeys a stop has to be silent for its connection to be closed. */
const STOPPED_SILENCE_MS = 1_000

/** One authenticated agent: its endpoints live and die with it. */
export class AgentSession implements TableEntry {
  readonly id: string
  readonly identity: AgentIdentity
  readonly clientId: string
  readonly startedAt: number
  readonly #session: Session
  readonly #deps: AgentDeps
  readonly #slots: StreamSlots
  readonly #heartbeat: AgentHeartbeat
  /** Undefined for an agent that would not know what to make of them. */
  readonly #notices: VisitorNotices | undefined
  readonly #endpoints = new Map<string, AgentEndpoint>()
  /** The ids of those that others have taken over and that the agent has still to unbind. */
  readonly #takenOver = new Set<string>()
  /** What was withdrawn by a drain. */
  #drained: AwayName[] = []
  readonly #duplicates: DuplicateRecord
  /** It said that it obeys a stop. */
  #isStopped = false
  #hasBound = false
  #silence = new AbortController()
  readonly #superseding: IdleEnd
  readonly #ending = new AbortController()
  #isEnded = false

  constructor(identity: AgentIdentity, session: Session, deps: AgentDeps) {
    const { clock, ids, limits } = deps
    this.id = ids.next('ts')
    this.clientId = identity.presentedClientId ?? this.id
    this.startedAt = clock.now()
    this.identity = identity
    this.#session = session
    this.#deps = deps
    this.#duplicates = new DuplicateRecord(clock)
    const { buffers, leastRate } = deps
    this.#slots = new StreamSlots({ session, clock, buffers, limits: { leastRate } })
    this.#superseding = new IdleEnd({ slots: this.#slots, clock })
    this.#heartbeat = new AgentHeartbeat({
      session,
      identity,
      limits,
      clock,
      onMissed: () => this.end('the agent does not answer heartbeats', 'silent'),
    })
    const { instance, unsupported } = identity
    if (instance !== undefined && !unsupported.update) {
      const send = (notice: object) => this.#call(StreamType.update, notice)
      this.#notices = new VisitorNotices({ clock, send })
    }
  }

  get latencyMs(): number | undefined {
    return this.#heartbeat.latencyMs
  }

  get endpointCount(): number {
    return this.#endpoints.size
  }

  endpoints(): AgentEndpoint[] {
    return [...this.#endpoints.values()]
  }

  /** The agent has sent a heartbeat of its own. */
  heard(): void {
    this.#heartbeat.heard()
  }

  /** Takes its place in the table, or throws the ServiceError that keeps it out. */
  start(): void {
    this.#deps.sessions.add(this)
    try {
      this.#heartbeat.start()
      void this.#awaitReturn()
    } catch (error) {
      // The connection broke while the agent authenticated.
      this.end('the connection is gone')
      throw error
    }
  }

  /**
   * Visitors find the endpoint at once; they reach the agent when it has `heard` of it too. A bind
   * that fails changes nothing. A drain comes as a bind, too: see `agent-notice.ts`.
   */
  async bind(message: unknown, heard: Promise<void>): Promise<object> {
    const request = parseBind(message)
    const { sessions, ids, names } = this.#deps
    const { Proto, Opts, Extra } = request
    const isOurs = this.identity.instance !== undefined
    const withinMs = isOurs ? drainMs(Extra?.Metadata ?? '') : undefined
    if (withinMs !== undefined) {
      const url = drainedUrl(await this.#drain(withinMs))
      return { Id: ids.next('ep'), URL: url, Proto, Opts, Extra: { Token: '' } }
    }
    this.#checkRoom()
    sessions.countBind(this)
    try {
      const compiled = await prepareBinding(request, this, this.#deps)
      const idea = this.#idFor(request.Id)
      const open = () => this.#open(compiled, idea, heard)
      const { id, url, protocol } = await names.open(wantedName(compiled, this, idea), open)
      return {
        ...{ Id: id, URL: url, Proto: protocol, Opts: sentOptions(message) },
        Extra: { Token: compiled.token, TunnelID: renamedId(id, 'tn') },
      }
    } finally {
      this.#awaitSilence()
    }
  }

  unbind(message: unknown): object {
    const { Id } = parseUnbind(message)
    const endpoint = this.#endpoints.get(Id)
    if (endpoint) this.#close(endpoint)
    this.#awaitSilence()
    // What another has taken over is not this one's to give up.
    if (this.#takenOver.delete(Id)) return {}
    if (!endpoint) throw new ServiceError(333, `The session has no endpoint ${Id}.`)
    return {}
  }

  async command(command: AgentCommand): Promise<void> {
    await commandAgent(command, this.identity, (type, message) => this.#call(type, message))
    if (command !== 'stop') return
    this.#isStopped = true
    this.#awaitSilence()
  }

  get duplicate(): Duplicate | undefined {
    return this.#duplicates.last
  }

  answers(withinMs: number): Promise<boolean> {
    return this.#heartbeat.answers(withinMs)
  }

  noteDuplicate(ip: string): void {
    this.#deps.devices.refusedDuplicate(this, ip)
    if (!this.#duplicates.note(ip) || this.identity.unsupported.update) return
    // It is heard of again when the other one comes back.
    this.#call(StreamType.update, duplicateNotice(ip)).catch(() => {})
  }

  giveWay(
    endpoint: AgentEndpoint,
    successor: TableEntry | undefined,
    withinMs = SUPERSEDED_MS,
  ): void {
    if (this.#takenOver.size < this.#deps.limits.endpointsPerSession) {
      this.#takenOver.add(endpoint.id)
    }
    this.#release(endpoint)
    if (successor === this) return
    const isIdle = () => this.#endpoints.size === 0 && this.#slots.inUse === 0
    const end = () => this.end('another session of the agent has taken over', 'superseded')
    this.#superseding.begin({ isIdle, end }, withinMs)
  }

  retire(withinMs: number): void {
    const isIdle = () => this.#slots.busy === 0
    const end = () => this.end('another process of the gateway serves the agent', 'gateway-left')
    this.#superseding.begin({ isIdle, end }, withinMs)
  }

  stopTunnel(endpoint: AgentEndpoint, code: number, message: string): void {
    if (this.#endpoints.get(endpoint.id) !== endpoint) return
    this.#close(endpoint)
    // The SDK no longer listens to this after its first reconnect: only a new session tells it.
    if (this.identity.presentedClientId) {
      this.end(message, 'superseded')
      return
    }
    endpoint.streams.cut()
    const stop = { Id: endpoint.id, Message: message, ErrorCode: `ERR_NGROK_${code}` }
    try {
      notify(this.#session, StreamType.stopTunnel, stop)
    } catch {
      // A session without room for one more stream cannot be told in any other way.
      this.end(message, 'superseded')
    }
  }

  recheck(): void {
    const { authority, registry, log } = this.#deps
    const { credentialId } = this.identity
    const refused = refusalOf(() => authority.checkCredential(credentialId))
    if (refused) {
      for (const endpoint of this.endpoints()) this.#close(endpoint)
      this.end(refused.message, 'revoked')
      return
    }
    for (const endpoint of this.endpoints()) {
      const { host, protocol } = endpoint
      const reason = refusalOf(() => {
        const { isShared } = authority.checkBind(credentialId, host, protocol)
        if (registry.setShared(endpoint, isShared)) return
        log.warn({ endpoint: endpoint.id, host }, 'not shared: another account shares that name')
      })
      if (reason) this.stopTunnel(endpoint, reason.code, reason.message)
    }
  }

  end(reason: string, why: SessionEnd = 'disconnected'): void {
    if (this.#isEnded) return
    this.#isEnded = true
    const [meant, urls] = [this.#meant(why), this.endpoints().map(({ url }) => url)]
    this.#heartbeat.stop()
    this.#notices?.stop()
    this.#silence.abort()
    this.#superseding.stop()
    this.#ending.abort()
    for (const endpoint of this.endpoints()) this.#suspend(endpoint)
    for (const name of this.#drained) this.#deps.registry.holdFromNow(name)
    this.#slots.close()
    this.#deps.sessions.remove(this, meant, urls)
    this.#deps.log.info({ session: this.id, reason }, 'agent session ended')
    void this.#session.goAway(ErrorCode.none, reason)
  }

  /** A connection that breaks after the agent has given everything up was closed on purpose. */
  #meant(why: SessionEnd): SessionEnd {
    if (why !== 'disconnected') return why
    if (this.#isStopped) return 'kicked'
    return this.#hasBound && this.#endpoints.size === 0 ? 'stopped' : why
  }

  /** Throws the ServiceError that keeps another endpoint out. */
  #checkRoom(): void {
    if (this.#isEnded) throw new ServiceError(803, 'The session is over.')
    const { size } = this.#endpoints
    if (size < this.#deps.limits.endpointsPerSession) return
    throw new ServiceError(324, `The session has ${size} endpoints; it may not have more.`)
  }

  /** The SDK knows a tunnel by its first id for good, over reconnects too. Nobody gets another's. */
  #idFor(presented: string): string {
    const { registry, ids } = this.#deps
    return isResourceId(presented, 'ep') && !registry.find(presented) ? presented : ids.next('ep')
  }

  #open(compiled: CompiledBinding, idea: string, heard: Promise<void>): AgentEndpoint {
    this.#checkRoom()
    const { isShared, isPooled, proxyProtocol, around: _a, token: _t, ...binding } = compiled
    const { registry } = this.#deps
    const { protocol } = binding
    // It may be taken by now.
    const id = this.#idFor(idea)
    const before = findPredecessor({ ...binding, isShared, isPooled }, this, this.#deps)
    const endpoint: AgentEndpoint = {
      ...binding,
      type: 'agent',
      id,
      poolMember: isPooled ? (binding.poolMember ?? id) : undefined,
      streams: new StreamPool({
        slots: this.#slots,
        proxyHeader: (clientAddr) => encodeProxyHeader({ id, protocol }, clientAddr),
        proxyProtocol,
        ready: heard,
      }),
      sessionId: this.id,
      openedAt: this.#deps.clock.now(),
      traffic: new EndpointTraffic(),
      answerMs: upstreamNoticeIn(binding.metadata)?.answerMs,
    }
    this.#endpoints.set(id, endpoint)
    this.#hasBound = true
    this.#notices?.watch(endpoint)
    if (before) {
      registry.replace(before.endpoint, endpoint)
      registry.setShared(endpoint, isShared)
      before.session.giveWay(before.endpoint, this)
    } else {
      registry.add(endpoint, { isShared })
    }
    this.#deps.log.info({ session: this.id, endpoint: id, url: endpoint.url }, 'endpoint online')
    return endpoint
  }

  /** What the device had, and does not take back, it has given up while nobody heard of that. */
  async #awaitReturn(): Promise<void> {
    const { clock, registry, limits } = this.#deps
    const since = clock.monotonic()
    try {
      await clock.sleep(limits.returnMs, this.#ending.signal)
    } catch {
      return
    }
    registry.forgetLeftBy(this.identity, since)
  }

  /** Withdraws all names, waits for what is under way; answers how much is left of it. */
  async #drain(withinMs: number): Promise<number> {
    const { clock, log, registry } = this.#deps
    log.info({ session: this.id, withinMs, endpoints: this.#endpoints.size }, 'agent drains')
    this.#drained = this.#drained.filter((name) => registry.isAway(name))
    for (const endpoint of this.endpoints()) {
      const name = this.#suspend(endpoint, withinMs)
      if (name) this.#drained.push(name)
    }
    // Its own time is the agent's to choose, also where another process of it serves already.
    this.#superseding.allow(withinMs)
    const slots = this.#slots
    const { signal } = this.#ending
    const isIdle = () => slots.busy === 0
    await untilIdle({ slots, clock, isIdle, withinMs, signal })
    return slots.busy
  }

  /** Nobody has the name any more. */
  #close(endpoint: AgentEndpoint): void {
    this.#deps.registry.remove(endpoint)
    this.#release(endpoint)
  }

  /** The agent is about to come back, as far as anybody knows: visitors wait for it. */
  #suspend(endpoint: AgentEndpoint, extraMs = 0): AwayName | undefined {
    const name = this.#deps.registry.suspend(endpoint, this.identity, extraMs)
    this.#release(endpoint)
    return name
  }

  #release(endpoint: AgentEndpoint): void {
    this.#endpoints.delete(endpoint.id)
    this.#notices?.unwatch(endpoint)
    endpoint.streams.close()
    this.#deps.policies.remember(endpoint, endpoint.policy)
    this.#deps.log.info({ session: this.id, endpoint: endpoint.id }, 'endpoint offline')
  }

  /**
   * Ends the session of an agent that has stopped, once it has unbound everything and says no more:
   * the SDK leaves the connection of a closed session open, and would be heard of no more until the
   * heartbeat is missed. An agent that keeps endpoints has not stopped.
   */
  #awaitSilence(): void {
    this.#silence.abort()
    if (!this.#isStopped || this.#isEnded || this.#endpoints.size > 0) return
    this.#silence = new AbortController()
    this.#deps.clock.sleep(STOPPED_SILENCE_MS, this.#silence.signal).then(
      () => this.end('the agent was told to stop', 'kicked'),
      () => {},
    )
  }

  async #call(type: number, message: object): Promise<unknown> {
    const { clock, limits } = this.#deps
    const bounds = { maxBytes: MAX_MESSAGE_BYTES, deadlineMs: limits.rpcMs, clock }
    try {
      return await call(this.#session, type, message, bounds)
    } catch (error) {
      this.#deps.log.info({ err: error, session: this.id }, 'command not answered')
      throw new ServiceError(810, 'The agent did not answer; it may be reconnecting.')
    }
  }
}

import { KeyedLock } from '../../base/semaphore.ts'
import { ErrorCode } from '../../muxado/error-code.ts'
import { call, notify } from '../../muxado/rpc.ts'
import type { Session } from '../../muxado/session.ts'
import { HeldByLegError } from '../access/name-claims.ts'
import type { DisconnectedName } from '../endpoints/disconnected-name.ts'
import {
  type AgentCommand,
  type AgentEndpoint,
  type AgentIdentity,
  type Duplicate,
  EndpointTraffic,
  type RefusedEndpoint,
  type SessionEnd,
} from '../endpoints/endpoint.ts'
import { isResourceId, renamedId } from '../records/resource-id.ts'
import { refusalOf, ServiceError } from '../records/service-error.ts'
import { StreamPool } from '../streams/stream-pool.ts'
import { StreamSlots, untilIdle } from '../streams/stream-slots.ts'
import type { AgentDeps } from './agent-deps.ts'
import { AgentHeartbeat } from './agent-heartbeat.ts'
import {
  type AgentNotice,
  agentNoticeIn,
  COMPLETED_URL,
  drainedUrl,
  duplicateNotice,
  gatewayNotice,
  trafficUrl,
  upstreamNoticeIn,
} from './agent-notice.ts'
import type { CompiledBinding } from './binder.ts'
import {
  checkQuota,
  findPredecessor,
  patchEndpoint,
  prepareBinding,
  wantedName,
} from './bindings.ts'
import {
  encodeProxyHeader,
  MAX_MESSAGE_BYTES,
  parseBind,
  parsePatch,
  parseUnbind,
  StreamType,
} from './control-message.ts'
import { commandAgent, IdleEnd } from './departure.ts'
import { DuplicateSessions, ipOf } from './duplicate-sessions.ts'
import { NamesToCome } from './names-to-come.ts'
import { acceptedAs, isPassing, RefusedEndpoints, readRebind } from './rebind.ts'
import type { Heir, TableEntry } from './session-table.ts'
import { StandbyBinds } from './standby-binds.ts'
import { VisitorNotices } from './visitor-notices.ts'

/** A superseded session ends with its exchanges, or after this time at the latest. */
const SUPERSEDED_MS = 10_000
/** The connection of an agent that obeys a stop is closed after this much silence. */
const STOPPED_SILENCE_MS = 1_000

/** One authenticated agent. Its endpoints exist for as long as the session. */
export class AgentSession implements TableEntry {
  readonly id: string
  readonly identity: AgentIdentity
  readonly clientId: string
  readonly startedAt: number
  readonly #session: Session
  readonly #deps: AgentDeps
  readonly #slots: StreamSlots
  readonly #heartbeat: AgentHeartbeat
  /** Undefined for an agent that does not understand notices. */
  readonly #notices: VisitorNotices | undefined
  readonly #endpoints = new Map<string, AgentEndpoint>()
  /** Ids of endpoints that other sessions have taken over and that the agent has not unbound yet. */
  readonly #takenOver = new Set<string>()
  /** Sessions of other accounts that take over an endpoint, by the endpoint's id. */
  readonly #heirs = new Map<string, Heir>()
  readonly #patches = new KeyedLock()
  readonly #refused: RefusedEndpoints
  readonly #standbys: StandbyBinds
  /** Names that a drain has withdrawn. */
  #drained: DisconnectedName[] = []
  readonly #duplicates: DuplicateSessions
  /** Whether the agent has confirmed a stop command. */
  #isStopped = false
  #hasBound = false
  #silence = new AbortController()
  readonly #superseding: IdleEnd
  readonly #namesToCome: NamesToCome
  readonly #ending = new AbortController()
  #isEnded = false
  #hasToldGateway = false

  constructor(identity: AgentIdentity, session: Session, deps: AgentDeps) {
    const { clock, ids, limits } = deps
    this.id = ids.next('ts')
    this.clientId = identity.presentedClientId ?? this.id
    this.startedAt = clock.now()
    this.identity = identity
    this.#session = session
    this.#deps = deps
    this.#duplicates = new DuplicateSessions(clock)
    this.#refused = new RefusedEndpoints(clock)
    const { instance, unsupported, tellsComplete } = identity
    const isOurs = instance !== undefined && !unsupported.update
    this.#namesToCome = new NamesToCome({
      ...deps,
      identity,
      tell: isOurs && tellsComplete ? (notice) => this.#tell(notice) : undefined,
    })
    this.#heartbeat = new AgentHeartbeat({
      session,
      identity,
      limits,
      clock,
      onMissed: () => this.end('the agent does not answer heartbeats', 'silent'),
    })
    const { buffers, leastRate } = deps
    const link = this.#heartbeat
    this.#slots = new StreamSlots({ session, link, clock, buffers, limits: { leastRate } })
    this.#superseding = new IdleEnd({ slots: this.#slots, clock })
    this.#standbys = new StandbyBinds({
      ...{ clock, signal: this.#ending.signal },
      bind: (message) => this.bind(message, Promise.resolve()),
      probe: (message) => this.#bind(message, Promise.resolve()),
      close: (id) => {
        const endpoint = this.#endpoints.get(id)
        if (endpoint) this.#close(endpoint)
      },
      onRefused: (err) =>
        deps.log.info(
          { err, session: this.id },
          'another connection of the agent could not take over an endpoint',
        ),
    })
    if (isOurs) {
      const send = (notice: object) => this.#call(StreamType.update, notice)
      this.#notices = new VisitorNotices({ clock, send })
    }
  }

  get latencyMs(): number | undefined {
    return this.#heartbeat.latencyMs
  }

  get endpointCount(): number {
    // A standby uses as much memory as an endpoint.
    return this.#endpoints.size + this.#standbys.size
  }

  endpoints(): AgentEndpoint[] {
    return [...this.#endpoints.values()]
  }

  /** Records a heartbeat that the agent sent itself. */
  heard(): void {
    this.#heartbeat.heard()
  }

  /** Adds the session to the table. Throws the ServiceError that refuses it. */
  start(): void {
    this.#deps.sessions.add(this)
    try {
      this.#heartbeat.start()
      this.#namesToCome.refresh()
    } catch (error) {
      // The connection broke while the agent authenticated.
      this.end('the connection was lost')
      throw error
    }
  }

  /**
   * Opens an endpoint. Visitors find it at once, but reach the agent only once the agent has `heard` of it. A
   * failed bind changes nothing. A drain also arrives as a bind: see `agent-notice.ts`.
   */
  async bind(message: unknown, heard: Promise<void>): Promise<object> {
    const twin = this.#twinOf(message)
    if (twin) return this.#standBy(message, twin)
    try {
      return await this.#bind(message, heard)
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error
      this.#namesToCome.refused(error)
      const rebind = readRebind(message)
      const isOfLeg = error instanceof HeldByLegError && rebind && !this.#isEnded
      if (isOfLeg) {
        // That connection is at another gateway.
        this.#standbys.keep(rebind.id, message, true)
        return acceptedAs({ ...rebind, url: error.url }, message)
      }
      return this.#acceptUnserved(message, error, heard)
    }
  }

  async #bind(message: unknown, heard: Promise<void>): Promise<object> {
    const request = parseBind(message)
    const { sessions, ids, names } = this.#deps
    const { Proto, Opts, Extra } = request
    const isOurs = this.identity.instance !== undefined
    const notice = isOurs ? agentNoticeIn(Extra?.Metadata ?? '') : undefined
    if (notice) {
      const URL = await this.#follow(notice)
      return { Id: ids.next('ep'), URL, Proto, Opts, Extra: { Token: '' } }
    }
    this.#namesToCome.goOn()
    this.#checkRoom()
    sessions.countBind(this)
    try {
      const compiled = await prepareBinding(request, this, this.#deps)
      const idea = this.#idFor(request.Id)
      const open = () => this.#open(compiled, idea, heard)
      const { id, url, protocol } = await names.open(wantedName(compiled, this, idea), open)
      this.#refused.forget(request.Id)
      return acceptedAs({ id, url, protocol, token: compiled.token }, message)
    } finally {
      this.#awaitSilence()
    }
  }

  /** Changes an endpoint that is online. Changes run one at a time, each based on the previous one. */
  async patch(message: unknown): Promise<object> {
    const request = parsePatch(message)
    const id = renamedId(request.TunnelId, 'ep')
    await this.#patches.run(id, async () => {
      const before = this.#endpoints.get(id)
      if (!before) throw new ServiceError(333, `The session has no tunnel ${request.TunnelId}.`)
      const isCurrent = () => !this.#isEnded && this.#endpoints.get(id) === before
      const after = await patchEndpoint(before, request, this, this.#deps, isCurrent)
      this.#endpoints.set(id, after)
      this.#notices?.unwatch(before)
      this.#notices?.watch(after)
    })
    return { Error: '' }
  }

  unbind(message: unknown): object {
    const { Id } = parseUnbind(message)
    const endpoint = this.#endpoints.get(Id)
    const heir = this.#heirs.get(Id)
    if (endpoint) this.#close(endpoint)
    if (heir && this.#deps.sessions.find(heir.sessionId)) this.#deps.registry.hold(heir.facts)
    this.#awaitSilence()
    // An endpoint that another session has taken over no longer belongs to this session.
    if (this.#takenOver.delete(Id)) return {}
    if (this.#refused.forget(Id) || this.#standbys.forget(Id)) return {}
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

  noteDuplicate(ip: string): boolean {
    this.#deps.devices.refusedDuplicate(this, ip)
    const isNews = this.#duplicates.note(ip)
    // Other agents would take this for an order to update. The duplicate is reported again when its process
    // comes back.
    if (isNews && this.#notices) this.#call(StreamType.update, duplicateNotice(ip)).catch(() => {})
    return isNews
  }

  tellGateway(gateway: string): void {
    if (this.#hasToldGateway || !this.#notices) return
    this.#hasToldGateway = true
    void this.#tell(gatewayNotice(gateway))
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

  leaveTo(endpoint: AgentEndpoint, heir: Heir): void {
    if (this.#endpoints.get(endpoint.id) === endpoint) this.#heirs.set(endpoint.id, heir)
  }

  retire(withinMs: number): void {
    const isIdle = () => this.#slots.busy === 0
    const end = () => this.end('another process of the gateway serves the agent', 'gateway-left')
    this.#superseding.begin({ isIdle, end }, withinMs)
  }

  stopTunnel(endpoint: AgentEndpoint, code: number, message: string): void {
    if (this.#endpoints.get(endpoint.id) !== endpoint) return
    this.#close(endpoint)
    endpoint.streams.cut()
    this.#noteRefused({ id: endpoint.id, url: endpoint.url, code, message })
    this.#tellStopped(endpoint.id, code, message)
  }

  refusedEndpoints(): readonly RefusedEndpoint[] {
    return this.#refused.all()
  }

  legEnded(): void {
    this.#standbys.takeOver()
  }

  retryNames(): void {
    this.#namesToCome.retry()
  }

  recheck(): void {
    const { authority, registry, log } = this.#deps
    const { credentialId, tokenHash } = this.identity
    if (authority.isReplaced(credentialId, tokenHash)) {
      // Not held: another device may have had the old authtoken.
      for (const endpoint of this.endpoints()) this.#close(endpoint)
      this.end('the authtoken was replaced by a new one of the device', 'superseded')
      return
    }
    const refused = refusalOf(() => authority.checkCredential(credentialId))
    if (refused) {
      for (const endpoint of this.endpoints()) this.#close(endpoint)
      this.end(refused.message, 'revoked')
      return
    }
    for (const endpoint of this.endpoints()) {
      const { host, protocol, isDrawn } = endpoint
      const reason = refusalOf(() => {
        const { isShared } = authority.checkBind(credentialId, host, protocol, isDrawn)
        if (registry.setShared(endpoint, isShared)) return
        log.warn(
          { endpoint: endpoint.id, host },
          'endpoint not shared: another account already shares this name',
        )
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
    this.#namesToCome.stop()
    this.#ending.abort()
    for (const endpoint of this.endpoints()) this.#suspend(endpoint)
    for (const name of this.#drained) this.#deps.registry.holdFromNow(name)
    this.#slots.close()
    this.#deps.sessions.remove(this, meant, urls)
    for (const leg of this.#deps.sessions.legsOf(this)) leg.legEnded?.()
    this.#deps.log.info({ session: this.id, reason }, 'agent session ended')
    void this.#session.goAway(ErrorCode.none, reason)
  }

  /** The endpoint that another connection of the same client serves and that this connection also binds. */
  #twinOf(message: unknown): AgentEndpoint | undefined {
    const { registry, sessions } = this.#deps
    if (!this.identity.presentedClientId) return undefined
    const rebind = readRebind(message)
    const endpoint = rebind && registry.find(rebind.id)
    if (endpoint?.type !== 'agent') return undefined
    const legs = sessions.legsOf(this)
    return legs.some(({ id }) => id === endpoint.sessionId) ? endpoint : undefined
  }

  /** Accepts a bind as a standby. It is served when the connection that serves it now ends. */
  #standBy(message: unknown, twin: AgentEndpoint): object {
    const { id, url, protocol } = twin
    this.#checkRoom()
    this.#deps.sessions.countBind(this)
    if (!this.#standbys.has(id)) this.#deps.sessions.checkRoom(this, twin)
    this.#standbys.keep(id, message)
    return acceptedAs({ id, url, protocol, token: readRebind(message)?.token ?? '' }, message)
  }

  /**
   * Accepts a refused bind without serving it, and tells the agent to stop the endpoint. Otherwise every SDK
   * drops its session with all endpoints when one bind after a reconnect is refused. Throws the refusal of a
   * first bind.
   */
  #acceptUnserved(message: unknown, refusal: ServiceError, heard: Promise<void>): object {
    const { ids } = this.#deps
    const rebind = readRebind(message)
    const isKnown =
      rebind &&
      ids.isIssued(rebind.id, 'ep') &&
      ids.isIssued(this.identity.presentedClientId ?? '', 'ts')
    if (!isKnown || this.#isEnded || isPassing(refusal)) throw refusal
    const { id, url } = rebind
    const { code, message: reason } = refusal
    this.#deps.log.warn(
      { session: this.id, endpoint: id, url, code, reason },
      'endpoint not served: its bind was refused',
    )
    this.#noteRefused({ id, url, code, message: reason })
    void heard.then(() => this.#tellStopped(id, code, reason))
    return acceptedAs(rebind, message)
  }

  #noteRefused(refused: Omit<RefusedEndpoint, 'since'>): void {
    this.#refused.note(refused)
    const { ownerId, deviceId, remoteAddress } = this.identity
    const { code, message } = refused
    const ip = ipOf(remoteAddress)
    this.#deps.devices.refused({
      ownerId,
      deviceId,
      ip,
      code,
      message: `${refused.url}: ${message}`,
    })
  }

  /** The SDK for Node.js listens for this only until its first reconnect. */
  #tellStopped(id: string, code: number, message: string): void {
    if (this.#isEnded) return
    const stop = { Id: id, Message: message, ErrorCode: `ERR_NGROK_${code}` }
    try {
      notify(this.#session, StreamType.stopTunnel, stop)
    } catch (error) {
      this.#deps.log.info(
        { err: error, session: this.id, endpoint: id },
        'agent could not be told that an endpoint was stopped',
      )
    }
  }

  /** A connection that breaks after the agent has unbound all endpoints was closed on purpose. */
  #meant(why: SessionEnd): SessionEnd {
    if (why !== 'disconnected') return why
    if (this.#isStopped) return 'kicked'
    return this.#hasBound && this.#endpoints.size === 0 ? 'stopped' : why
  }

  /** Throws the ServiceError that refuses another endpoint. */
  #checkRoom(): void {
    if (this.#isEnded) throw new ServiceError(803, 'The session has ended.')
    const size = this.endpointCount
    if (size < this.#deps.limits.endpointsPerSession) return
    throw new ServiceError(324, `The session is at its limit of ${size} endpoints.`)
  }

  /** The SDK keeps the first id of a tunnel, also across reconnects. An id in use is never assigned twice. */
  #idFor(presented: string): string {
    const { registry, ids } = this.#deps
    return isResourceId(presented, 'ep') && !registry.find(presented) ? presented : ids.next('ep')
  }

  #open(compiled: CompiledBinding, idea: string, heard: Promise<void>): AgentEndpoint {
    this.#checkRoom()
    const { isShared, isPooled, proxyProtocol, token: _t, ...binding } = compiled
    const { registry } = this.#deps
    const { protocol } = binding
    // The id may be taken by now.
    const id = this.#idFor(idea)
    const before = findPredecessor({ ...binding, isShared, isPooled }, this, this.#deps)
    // Other binds of the account may have come first.
    checkQuota(binding, before?.endpoint, this.#deps)
    const { answerMs, maxConnections } = upstreamNoticeIn(binding.metadata) ?? {}
    const serviceKey = `${maxConnections ?? ''} ${binding.forwardsTo}`
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
        service: this.#slots.serviceOf(serviceKey, maxConnections),
      }),
      sessionId: this.id,
      openedAt: this.#deps.clock.now(),
      traffic: new EndpointTraffic(),
      answerMs,
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

  /** Resolves with the URL of the answer. */
  async #follow(notice: AgentNotice): Promise<string> {
    if (notice.type === 'drain') return drainedUrl(await this.#drain(notice.withinMs))
    if (notice.type === 'traffic') return trafficUrl(this.endpoints())
    this.#namesToCome.complete()
    this.#deps.log.info({ session: this.id }, 'all names of the agent are bound')
    return COMPLETED_URL
  }

  /** Withdraws all names and waits for exchanges under way. Returns how many are left. */
  async #drain(withinMs: number): Promise<number> {
    const { clock, log, registry } = this.#deps
    log.info({ session: this.id, withinMs, endpoints: this.#endpoints.size }, 'agent is draining')
    this.#drained = this.#drained.filter((name) => registry.isAway(name))
    for (const endpoint of this.endpoints()) {
      const name = this.#suspend(endpoint, withinMs)
      if (name) this.#drained.push(name)
    }
    // The agent may choose its own time, even if another process of it already serves.
    this.#superseding.allow(withinMs)
    const slots = this.#slots
    const { signal } = this.#ending
    const isIdle = () => slots.busy === 0
    await untilIdle({ slots, clock, isIdle, withinMs, signal })
    return slots.busy
  }

  /** Frees the name of an endpoint. */
  #close(endpoint: AgentEndpoint): void {
    this.#deps.registry.remove(endpoint)
    this.#release(endpoint)
  }

  /** The agent is expected to come back: visitors wait for it. */
  #suspend(endpoint: AgentEndpoint, extraMs = 0): DisconnectedName | undefined {
    const name = this.#deps.registry.suspend(endpoint, this.identity, extraMs)
    this.#release(endpoint)
    return name
  }

  #release(endpoint: AgentEndpoint): void {
    this.#endpoints.delete(endpoint.id)
    this.#heirs.delete(endpoint.id)
    this.#notices?.unwatch(endpoint)
    endpoint.streams.close()
    this.#deps.policies.remember(endpoint, endpoint.policy)
    this.#deps.log.info({ session: this.id, endpoint: endpoint.id }, 'endpoint offline')
  }

  /**
   * Ends the session of a stopped agent once it has unbound all endpoints and is silent. The SDK leaves the
   * connection of a closed session open, so the stop would only show as a missed heartbeat. An agent that
   * keeps endpoints has not stopped.
   */
  #awaitSilence(): void {
    if (!this.#isStopped) return
    this.#silence.abort()
    if (this.#isEnded || this.#endpoints.size > 0) return
    this.#silence = new AbortController()
    this.#deps.clock.sleep(STOPPED_SILENCE_MS, this.#silence.signal).then(
      () => this.end('the agent was stopped by command', 'kicked'),
      () => {},
    )
  }

  /** Never rejects. If the agent misses the notice, it continues in its own order. */
  async #tell(notice: object): Promise<void> {
    await this.#call(StreamType.update, notice).catch(() => {})
  }

  async #call(type: number, message: object): Promise<unknown> {
    const { clock, limits } = this.#deps
    const bounds = { maxBytes: MAX_MESSAGE_BYTES, deadlineMs: limits.rpcMs, clock }
    try {
      return await call(this.#session, type, message, bounds)
    } catch (error) {
      this.#deps.log.info({ err: error, session: this.id }, 'agent did not answer a command')
      throw new ServiceError(810, 'The agent did not answer. It may be reconnecting.')
    }
  }
}

import { ErrorCode } from '../../muxado/error-code.ts'
import { Heartbeat } from '../../muxado/heartbeat.ts'
import { call, notify } from '../../muxado/rpc.ts'
import type { Session } from '../../muxado/session.ts'
import type { AgentCommand, AgentIdentity } from '../endpoints/connected-agent.ts'
import { type AgentEndpoint, EndpointTraffic } from '../endpoints/endpoint.ts'
import { EndpointConflictError } from '../endpoints/endpoint-registry.ts'
import { isResourceId } from '../records/resource-id.ts'
import { ServiceError } from '../records/service-error.ts'
import { StreamPool } from '../streams/stream-pool.ts'
import { StreamSlots } from '../streams/stream-slots.ts'
import type { AgentDeps } from './agent-deps.ts'
import type { CompiledBinding } from './binder.ts'
import {
  commandError,
  MAX_MESSAGE_BYTES,
  parseBind,
  parseUnbind,
  StreamType,
} from './control-message.ts'
import { encodeProxyHeader } from './proxy-header.ts'
import type { TableEntry } from './session-table.ts'

/** The codes for an agent that does not know a command, and for one that failed to obey it. */
const COMMAND_CODES: Record<AgentCommand, { unsupported: number; failed: number }> = {
  restart: { unsupported: 804, failed: 808 },
  stop: { unsupported: 805, failed: 807 },
  update: { unsupported: 806, failed: 809 },
}

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
  readonly #heartbeat: Heartbeat
  readonly #endpoints = new Map<string, AgentEndpoint>()
  /** For an agent that does not know the endpoint yet, because its bind is under way. */
  readonly #stopReasons = new WeakMap<AgentEndpoint, ServiceError>()
  #latencyMs: number | undefined
  /** It said that it obeys a stop. */
  #isStopped = false
  #silence = new AbortController()
  #isEnded = false

  constructor(identity: AgentIdentity, session: Session, deps: AgentDeps) {
    const { clock, ids, limits } = deps
    this.id = ids.next('ts')
    this.clientId = identity.presentedClientId ?? this.id
    this.startedAt = clock.now()
    this.identity = identity
    this.#session = session
    this.#deps = deps
    const { buffers, leastRate } = deps
    this.#slots = new StreamSlots({ session, clock, buffers, limits: { leastRate } })
    this.#heartbeat = new Heartbeat({
      session,
      clock,
      intervalMs: limits.heartbeatIntervalMs,
      toleranceMs: limits.heartbeatToleranceMs,
      onLatency: (ms) => {
        this.#latencyMs = ms
      },
      onMissed: () => this.end('the agent does not answer heartbeats'),
    })
  }

  get latencyMs(): number | undefined {
    return this.#latencyMs
  }

  get endpointCount(): number {
    return this.#endpoints.size
  }

  endpoints(): AgentEndpoint[] {
    return [...this.#endpoints.values()]
  }

  /** Takes its place in the table, or throws the ServiceError that keeps it out. */
  start(): void {
    this.#deps.sessions.add(this)
    try {
      this.#heartbeat.start()
    } catch (error) {
      // The connection broke while the agent authenticated.
      this.end('the connection is gone')
      throw error
    }
  }

  /**
   * Visitors find the endpoint at once; they reach the agent when it has `heard` of it too. A bind
   * that fails leaves no endpoint behind.
   */
  async bind(message: unknown, heard: Promise<void>): Promise<object> {
    const request = parseBind(message)
    const { sessions, binder, coverHost } = this.#deps
    this.#checkRoom()
    const { credentialId } = this.identity
    sessions.countBind(credentialId)
    const binding = await binder.compile(binder.judge(request, credentialId), credentialId)
    this.#checkRoom()
    const endpoint = this.#open(binding, request.Id, heard)
    try {
      await coverHost(endpoint.host)
    } catch (error) {
      // It may have ended meanwhile, with its session or by itself.
      if (this.#endpoints.get(endpoint.id) === endpoint) this.#close(endpoint)
      this.#awaitSilence()
      throw error
    }
    if (this.#endpoints.get(endpoint.id) !== endpoint) {
      const stopped = this.#stopReasons.get(endpoint)
      throw stopped ?? new ServiceError(803, 'The endpoint was given up while it was opened.')
    }
    const { id, url, protocol } = endpoint
    return { Id: id, URL: url, Proto: protocol, Opts: request.Opts, Extra: { Token: '' } }
  }

  unbind(message: unknown): object {
    const { Id } = parseUnbind(message)
    const endpoint = this.#endpoints.get(Id)
    if (endpoint) this.#close(endpoint)
    this.#awaitSilence()
    if (!endpoint) throw new ServiceError(333, `The session has no endpoint ${Id}.`)
    return {}
  }

  async command(command: AgentCommand): Promise<void> {
    const codes = COMMAND_CODES[command]
    const reason = this.identity.unsupported[command]
    if (reason) throw new ServiceError(codes.unsupported, `The agent cannot ${command}: ${reason}`)
    const answer = await this.#call(StreamType[command])
    const error = commandError(answer)
    if (error) throw new ServiceError(codes.failed, `The agent did not ${command}: ${error}`)
    if (command !== 'stop') return
    this.#isStopped = true
    this.#awaitSilence()
  }

  stopTunnel(endpoint: AgentEndpoint, code: number, message: string): void {
    if (this.#endpoints.get(endpoint.id) !== endpoint) return
    this.#close(endpoint)
    // The SDK no longer listens to this after its first reconnect: only a new session tells it.
    if (this.identity.presentedClientId) {
      this.end(message)
      return
    }
    this.#stopReasons.set(endpoint, new ServiceError(code, message))
    endpoint.streams.cut()
    const stop = { Id: endpoint.id, Message: message, ErrorCode: `ERR_NGROK_${code}` }
    try {
      notify(this.#session, StreamType.stopTunnel, stop)
    } catch {
      // A session without room for one more stream cannot be told in any other way.
      this.end(message)
    }
  }

  recheck(): void {
    const { authority, registry, log } = this.#deps
    const { credentialId } = this.identity
    const refused = refusalOf(() => authority.checkCredential(credentialId))
    if (refused) {
      for (const endpoint of this.endpoints()) this.#close(endpoint)
      this.end(refused.message)
      return
    }
    for (const endpoint of this.endpoints()) {
      const { host } = endpoint
      const reason = refusalOf(() => {
        const { isShared } = authority.checkBind(credentialId, host)
        if (registry.setShared(endpoint, isShared)) return
        log.warn({ endpoint: endpoint.id, host }, 'not shared: another account shares that name')
      })
      if (reason) this.stopTunnel(endpoint, reason.code, reason.message)
    }
  }

  end(reason: string): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#heartbeat.stop()
    this.#silence.abort()
    for (const endpoint of this.endpoints()) this.#suspend(endpoint)
    this.#slots.close()
    this.#deps.sessions.remove(this)
    this.#deps.log.info({ session: this.id, reason }, 'agent session ended')
    void this.#session.goAway(ErrorCode.none, reason)
  }

  /** Throws the ServiceError that keeps another endpoint out. */
  #checkRoom(): void {
    if (this.#isEnded) throw new ServiceError(803, 'The session is over.')
    const { size } = this.#endpoints
    if (size < this.#deps.limits.endpointsPerSession) return
    throw new ServiceError(324, `The session has ${size} endpoints; it may not have more.`)
  }

  #open(
    { host, isShared, ...binding }: CompiledBinding,
    presentedId: string,
    heard: Promise<void>,
  ): AgentEndpoint {
    const { registry, ids } = this.#deps
    // The SDK knows a tunnel by its first id for good, over reconnects too. Nobody gets another's.
    const isFree = isResourceId(presentedId, 'ep') && !registry.find(presentedId)
    const id = isFree ? presentedId : ids.next('ep')
    const { protocol } = binding
    const endpoint: AgentEndpoint = {
      ...binding,
      type: 'agent',
      id,
      host,
      streams: new StreamPool({
        slots: this.#slots,
        proxyHeader: (clientAddr) => encodeProxyHeader({ id, protocol }, clientAddr),
        ready: heard,
      }),
      sessionId: this.id,
      openedAt: this.#deps.clock.now(),
      traffic: new EndpointTraffic(),
    }
    try {
      registry.add(endpoint, { isShared })
    } catch (error) {
      if (!(error instanceof EndpointConflictError)) throw error
      throw new ServiceError(334, `The endpoint ${endpoint.url} is online already.`)
    }
    this.#endpoints.set(id, endpoint)
    this.#deps.log.info({ session: this.id, endpoint: id, url: endpoint.url }, 'endpoint online')
    return endpoint
  }

  /** Nobody has the name any more. */
  #close(endpoint: AgentEndpoint): void {
    this.#deps.registry.remove(endpoint)
    this.#release(endpoint)
  }

  /** The agent is about to come back, as far as anybody knows: visitors wait for it. */
  #suspend(endpoint: AgentEndpoint): void {
    this.#deps.registry.suspend(endpoint, this.identity.credentialId)
    this.#release(endpoint)
  }

  #release(endpoint: AgentEndpoint): void {
    this.#endpoints.delete(endpoint.id)
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
      () => this.end('the agent was told to stop'),
      () => {},
    )
  }

  async #call(type: number): Promise<unknown> {
    const { clock, limits } = this.#deps
    const bounds = { maxBytes: MAX_MESSAGE_BYTES, deadlineMs: limits.rpcMs, clock }
    try {
      return await call(this.#session, type, {}, bounds)
    } catch (error) {
      this.#deps.log.info({ err: error, session: this.id }, 'command not answered')
      throw new ServiceError(810, 'The agent did not answer; it may be reconnecting.')
    }
  }
}

function refusalOf(check: () => void): ServiceError | undefined {
  try {
    check()
    return undefined
  } catch (error) {
    if (error instanceof ServiceError) return error
    throw error
  }
}

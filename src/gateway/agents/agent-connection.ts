import type { Duplex } from 'node:stream'
import { createDeferred } from '../../base/deferred.ts'
import { formatListenAddress, type ListenAddress } from '../../base/listen-address.ts'
import type { SharedReads } from '../../base/net/shared-reads.ts'
import { ErrorCode, MuxadoError } from '../../muxado/error-code.ts'
import type { SlabPool } from '../../muxado/frame-writer.ts'
import { echoHeartbeat, HEARTBEAT_STREAM_TYPE } from '../../muxado/heartbeat.ts'
import { answer, readMessage } from '../../muxado/rpc.ts'
import { acceptTyped, Session } from '../../muxado/session.ts'
import type { Stream } from '../../muxado/stream.ts'
import type { SessionEnd } from '../endpoints/endpoint.ts'
import type { Credential } from '../records/credential-store.ts'
import { ServiceError } from '../records/service-error.ts'
import type { AgentDeps } from './agent-deps.ts'
import { checkAuth, commonVersion, identify, readDevice } from './agent-identity.ts'
import { AgentSession } from './agent-session.ts'
import { findOlder } from './client-versions.ts'
import {
  type AuthRequest,
  MAX_BIND_BYTES,
  MAX_MESSAGE_BYTES,
  parseAuth,
  refusal,
  StreamType,
} from './control-message.ts'
import { awaitTurn, settleRivals } from './duplicate-sessions.ts'

/** Messages of one connection under way at once. The SDK sends them one at a time. */
const MAX_RPCS = 16
/** Not worth a log entry: when an SDK closes its session, it unbinds endpoints that are already gone. */
const NO_SUCH_ENDPOINT = 333
/** A refused agent gets this long to read the reason. */
const REFUSED_LINGER_MS = 1_000
/** If the agent does not close its side of an answered message, the answer counts as read after this time. */
const HEARD_WITHIN_MS = 1_000

/** Delay between two attempts to end an old authtoken while the storage cannot be written. */
const SETTLE_AGAIN_MS = 10_000

/** Value that Go clients treat as "no date". */
const NO_DATE = '0001-01-01T00:00:00Z'

/** Another process of the device is connected. */
const DUPLICATE = 830

/** Authtoken missing, malformed, unknown, or of a disabled owner. */
const WRONG_AUTHTOKEN: ReadonlySet<number> = new Set([4018, 105, 107, 636])

/** Memory that the sessions of all agents share. */
export interface SessionMemory {
  readonly slabs: SlabPool
  readonly reads: SharedReads
}

/** `heard` resolves when the agent has the answer. */
type Rpc = (message: unknown, heard: Promise<void>) => object | Promise<object>

/** One connection from an agent: authenticates it, then passes its messages to its session. */
export class AgentConnection {
  readonly #remote: ListenAddress
  readonly #remoteAddress: string
  readonly #deps: AgentDeps
  readonly #session: Session
  readonly #closing = new AbortController()
  #agent: AgentSession | undefined
  #isRefused = false
  #rpcs = 0

  constructor(transport: Duplex, remote: ListenAddress, deps: AgentDeps & SessionMemory) {
    this.#remote = remote
    this.#remoteAddress = formatListenAddress(remote)
    this.#deps = deps
    this.#session = new Session(transport, {
      role: 'server',
      acknowledges: true,
      accept: acceptTyped((type, stream) => this.#accept(type, stream)),
      log: deps.log,
      slabs: deps.slabs,
      reads: deps.reads,
      saysGoodbye: false,
    })
  }

  /** Whether an agent has authenticated. */
  get isOnline(): boolean {
    return this.#agent !== undefined
  }

  /** Serves the connection until it ends. */
  async serve(): Promise<void> {
    this.#goAwayAfter(this.#deps.limits.authMs, 'authentication timed out')
    const { reason, message } = await this.#session.closed
    this.#closing.abort()
    this.#deps.log.debug({ remote: this.#remoteAddress, reason, message }, 'connection closed')
    this.#agent?.end(`the connection closed: ${message}`)
  }

  /** Says goodbye; `serve()` returns soon after. */
  end(reason: string, why?: SessionEnd): void {
    this.#agent?.end(reason, why)
    void this.#session.goAway(ErrorCode.none, reason)
  }

  #accept(type: number, stream: Stream): void {
    switch (type) {
      case StreamType.auth:
        this.#serveRpc(stream, MAX_MESSAGE_BYTES, (message) => this.#authenticate(message))
        break
      case StreamType.bind:
        this.#serveAgent(
          stream,
          MAX_BIND_BYTES,
          (agent) => (message, heard) => agent.bind(message, heard),
        )
        break
      case StreamType.unbind:
        this.#serveAgent(stream, MAX_MESSAGE_BYTES, (agent) => (message) => agent.unbind(message))
        break
      case StreamType.bindLabeled:
        this.#refuse(
          stream,
          new ServiceError(813, 'Labeled tunnels are not supported by this gateway.'),
        )
        break
      case StreamType.patchTunnel:
        this.#serveAgent(stream, MAX_BIND_BYTES, (agent) => (message) => agent.patch(message))
        break
      case StreamType.serviceInfo:
        // Sent before authentication, by clients that diagnose the link.
        this.#serveRpc(stream, MAX_MESSAGE_BYTES, () => ({ Region: this.#deps.clients.region }))
        break
      case HEARTBEAT_STREAM_TYPE:
        echoHeartbeat(stream, () => this.#agent?.heard())
        break
      default:
        this.#deps.log.debug({ remote: this.#remoteAddress, type }, 'unknown stream type')
        stream.retire()
    }
  }

  async #authenticate(message: unknown): Promise<object> {
    if (this.#agent || this.#isRefused) {
      throw new ServiceError(801, 'The session is already authenticated.')
    }
    // Refused until the authentication succeeds. An error below allows no second attempt.
    this.#isRefused = true
    let request: AuthRequest | undefined
    try {
      request = parseAuth(message)
      const agent = await this.#letIn(request)
      return {
        Version: commonVersion(request.Version),
        ClientId: agent.clientId,
        Extra: {
          Version: this.#deps.version,
          Region: this.#deps.clients.region,
          Cookie: '',
          AccountName: this.#accountNameOf(agent),
          SessionDuration: 0,
          PlanName: 'self-hosted',
          ...this.#adviceFor(request),
          AgentSessionID: agent.id,
        },
      }
    } catch (error) {
      this.#tell(request, error)
      return this.#refuseAgent(error)
    }
  }

  /** Returns the advice for an outdated client to update. Clients log the warning or show the banner. */
  #adviceFor({ Extra }: AuthRequest) {
    const older = findOlder(Extra, this.#deps.clients.warnBelow)
    if (!older) return { Banner: '' }
    const { found, least } = older
    const text = `Update ${found.name} ${found.version} to ${least.version} or newer: this gateway will refuse older ones.`
    return {
      Banner: text,
      DeprecationWarning: { NextMin: least.version, NextDate: NO_DATE, Msg: text },
    }
  }

  #accountNameOf({ identity: { ownerId } }: AgentSession): string {
    return ownerId === null ? 'gateway owner' : (this.#deps.botUsers.get(ownerId)?.name ?? '')
  }

  async #letIn(request: AuthRequest): Promise<AgentSession> {
    const { authority, sessions, log } = this.#deps
    checkAuth(request, this.#deps.clients)
    const credential = authority.authenticate(request.Extra.AuthToken.reveal())
    await this.#settle(credential)
    const identity = identify(request, credential, this.#remoteAddress)
    await settleRivals(identity, sessions, log)
    const { clock } = this.#deps
    const other = await awaitTurn(identity, { sessions, clock, signal: this.#closing.signal })
    // The wait may have taken a moment.
    authority.checkCredential(credential.id)
    if (authority.isReplaced(credential.id, credential.tokenHash)) {
      throw new ServiceError(107, 'The authtoken was replaced by a new one of the device.')
    }
    if (this.#closing.signal.aborted) throw new ServiceError(803, 'The session has ended.')
    const agent = new AgentSession(identity, this.#session, this.#deps)
    agent.start()
    this.#agent = agent
    if (other !== undefined) agent.noteDuplicate(other)
    log.info(
      { session: agent.id, credential: credential.id, remote: this.#remoteAddress },
      'agent online',
    )
    return agent
  }

  /**
   * Ends the old authtoken of a device that uses its new one. Storage that cannot be written keeps no device out:
   * then this is tried again for as long as the connection lasts.
   */
  async #settle(credential: Credential, hasFailed = false): Promise<void> {
    const { authority, clock, log } = this.#deps
    try {
      await authority.successors.settle(credential, this.#remote.host)
    } catch (error) {
      if (!hasFailed) log.warn({ err: error }, 'old authtoken of a device not ended, will retry')
      void clock.sleep(SETTLE_AGAIN_MS, this.#closing.signal).then(
        () => this.#settle(credential, true),
        () => {},
      )
    }
  }

  /** Reports a refused authentication. Duplicates are reported by the session that stays. */
  #tell(request: AuthRequest | undefined, error: unknown): void {
    if (!request || !(error instanceof ServiceError) || error.code === DUPLICATE) return
    const { deviceId } = readDevice(request.Extra.Metadata)
    const { code, message } = error
    const ip = this.#remote.host
    this.#deps.devices.refused({ ownerId: this.#accountOf(request), deviceId, ip, code, message })
  }

  /** Account of the token, if the token is valid. */
  #accountOf({ Extra }: AuthRequest): string | null {
    return this.#deps.authority.accountOf(Extra.AuthToken.reveal())
  }

  /**
   * Delays the answer after many wrong authtokens from an address. Valid authtokens are never delayed,
   * because many devices may share the address. A delayed connection counts like any other and is dropped
   * first when there are too many.
   */
  async #refuseAgent(error: unknown): Promise<never> {
    const { clock, failures, limits, log } = this.#deps
    const isWrong = error instanceof ServiceError && WRONG_AUTHTOKEN.has(error.code)
    const waitMs = isWrong ? failures.tryCount(this.#remote.host) : 0
    if (waitMs > 0) log.debug({ remote: this.#remoteAddress, waitMs }, 'invalid authtoken delayed')
    // The connection may end first; then the answer is not read.
    if (waitMs > 0) await clock.sleep(waitMs, this.#closing.signal).catch(() => {})
    this.#goAwayAfter(Math.min(REFUSED_LINGER_MS, limits.authMs), 'not authenticated')
    throw error
  }

  #serveAgent(stream: Stream, maxBytes: number, rpc: (agent: AgentSession) => Rpc): void {
    // Messages before authentication are not read, because they would only use memory.
    if (this.#agent) this.#serveRpc(stream, maxBytes, rpc(this.#agent))
    else this.#refuse(stream, new ServiceError(4018, 'The session is not authenticated yet.'))
  }

  #serveRpc(stream: Stream, maxBytes: number, rpc: Rpc): void {
    if (this.#rpcs >= MAX_RPCS) {
      this.#refuse(stream, new ServiceError(801, 'The agent sent too many messages at once.'))
      return
    }
    this.#rpcs += 1
    const { clock, limits } = this.#deps
    const heard = createDeferred()
    readMessage(stream, { maxBytes, deadlineMs: limits.rpcMs, clock })
      .then((message) => rpc(message, heard.promise))
      .then((reply) => this.#answer(stream, reply, heard.resolve))
      .catch((error) => this.#refuse(stream, this.#toServiceError(error, maxBytes)))
      .finally(() => {
        this.#rpcs -= 1
      })
  }

  #answer(stream: Stream, reply: object, onHeard: () => void): void {
    const waiting = new AbortController()
    // An explicit reason, because the default reason costs a stack trace.
    answer(stream, reply, () => waiting.abort('heard'))
    this.#deps.clock.sleep(HEARD_WITHIN_MS, waiting.signal).then(onHeard, onHeard)
  }

  #refuse(stream: Stream, error: ServiceError): void {
    const { code, message } = error
    const level = code === NO_SUCH_ENDPOINT || code === DUPLICATE ? 'debug' : 'info'
    // A refused tunnel leaves its agent connected.
    const event = this.#agent ? 'tunnel refused' : 'agent refused'
    this.#deps.log[level]({ remote: this.#remoteAddress, code, reason: message }, event)
    answer(stream, refusal(error))
  }

  #toServiceError(error: unknown, maxBytes: number): ServiceError {
    if (error instanceof ServiceError) return error
    if (error instanceof MuxadoError) {
      if (error.reason !== 'message-too-large') return new ServiceError(801, error.message)
      const advice = maxBytes === MAX_BIND_BYTES ? '. Shorten its traffic policy' : ''
      return new ServiceError(812, `The message exceeds ${maxBytes} bytes${advice}.`)
    }
    this.#deps.log.error(
      { err: error, remote: this.#remoteAddress },
      'agent message failed with an internal error',
    )
    return new ServiceError(802, 'Internal error of the gateway. See its log.')
  }

  /** Closes the connection after this time unless an agent has come online on it. */
  #goAwayAfter(ms: number, reason: string): void {
    this.#deps.clock.sleep(ms, this.#closing.signal).then(
      () => {
        if (!this.#agent) this.end(reason)
      },
      () => {},
    )
  }
}

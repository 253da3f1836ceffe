import { createRequire } from 'node:module'
import type * as Sdk from '@ngrok/ngrok'
import { abortable } from '../base/abortable.ts'
import { DeadlineError, withDeadline } from '../base/deadline.ts'
import { Semaphore } from '../base/limit/semaphore.ts'
import type { Logger } from '../base/logger.ts'
import type { Secret } from '../base/secret.ts'
import {
  type Connector,
  type ConnectRequest,
  type EndpointRequest,
  type Listener,
  PoisonedError,
  type Session,
} from './connector.ts'
import { untrustedProblem } from './probes/connection-problem.ts'
import { networkProblem, type Problem, ProblemError } from './problem.ts'
import { serviceProblem } from './service-error.ts'
import { DRAIN_DOMAIN, DRAINED, drainNotice, duplicateIn } from './sessions/gateway-notice.ts'
import type { TunnelProtocol } from './upstreams/tunnel-protocol.ts'

type EndpointBuilder = Sdk.HttpListenerBuilder | Sdk.TcpListenerBuilder | Sdk.TlsListenerBuilder

const requirePackage = createRequire(import.meta.url)

/**
 * The SDK runs the RPCs of a session one after the other. A few are handed over at once, so that
 * none waits for our event loop; with more, the deadline of the last would count the whole queue.
 */
const RPC_AT_ONCE = 8

export interface NgrokConnectorOptions {
  /** Of this agent, for the service's console. */
  readonly version: string
  readonly log: Logger
  /** Whole seconds, as the SDK wants them. */
  readonly heartbeat?: { readonly intervalS: number; readonly toleranceS: number }
  readonly deadlines?: Partial<Deadlines>
}

interface Deadlines {
  /** A connect that takes longer never ends, and neither does any other in this process. */
  readonly connectMs: number
  readonly bindMs: number
  /** For closing one endpoint, and for closing the session. */
  readonly closeMs: number
}

const DEADLINES: Deadlines = { connectMs: 15_000, bindMs: 10_000, closeMs: 3_000 }
/** The SDK reports a silent link `interval + tolerance` after the last answer: 25 s. */
const HEARTBEAT = { intervalS: 10, toleranceS: 15 }

/** The one place that knows @ngrok/ngrok and what it does wrong. */
export class NgrokConnector implements Connector {
  readonly #options: NgrokConnectorOptions
  readonly #deadlines: Deadlines

  constructor(options: NgrokConnectorOptions) {
    this.#options = options
    this.#deadlines = { ...DEADLINES, ...options.deadlines }
  }

  get sdkVersion(): string {
    return requirePackage('@ngrok/ngrok/package.json').version
  }

  async connect(request: ConnectRequest): Promise<Session> {
    const { SessionBuilder } = await loadSdk()
    const liveness = new Liveness(request.onLost)
    const { intervalS, toleranceS } = this.#options.heartbeat ?? HEARTBEAT
    const builder = new SessionBuilder()
      .authtoken(request.authtoken.reveal())
      .clientInfo('device-agent', this.#options.version)
      .metadata(request.metadata)
      .heartbeatInterval(intervalS)
      .heartbeatTolerance(toleranceS)
      // False ends the SDK's own reconnecting, whose pauses grow to days. Anything but a boolean,
      // a promise or an exception here ends the process.
      .handleDisconnection((_address, error) => {
        liveness.lose(`the connection to the service was lost: ${error}`)
        return false
      })
      // A missed heartbeat comes as null, which the SDK's types do not say.
      .handleHeartbeat((latencyMs: number | null) => {
        if (latencyMs !== null) request.onHeartbeat(latencyMs)
        else liveness.lose(`no heartbeat for ${intervalS + toleranceS} s`)
      })
      // The SDK tells the service yes whatever these do. An update carries notices of our gateway;
      // what is really one is not obeyed.
      .handleRestartCommand(() => request.onCommand('restart'))
      .handleStopCommand(() => request.onCommand('stop'))
      .handleUpdateCommand(({ version }) => {
        const ip = duplicateIn(version)
        if (ip !== undefined) request.onDuplicate(ip)
        request.onNotice?.(version)
      })
    if (request.serverAddr !== undefined) builder.serverAddr(request.serverAddr)
    if (request.caCert !== undefined) builder.caCert(Buffer.from(request.caCert))
    const session = await this.#connect(builder, request.authtoken)
    return new NgrokSession(session, {
      isOurGateway: request.serverAddr !== undefined,
      liveness,
      deadlines: this.#deadlines,
      authtoken: request.authtoken,
      log: this.#options.log,
    })
  }

  async #connect(builder: Sdk.SessionBuilder, authtoken: Secret): Promise<Sdk.Session> {
    const { connectMs } = this.#deadlines
    try {
      return await withDeadline(builder.connect(), connectMs, 'connecting to the service')
    } catch (error) {
      if (error instanceof DeadlineError) throw new PoisonedError(error.message)
      throw new ProblemError(sdkProblem(error, authtoken))
    }
  }
}

/** Loaded when it is first needed: an agent without a token starts faster, and a missing build is a Problem. */
async function loadSdk(): Promise<typeof Sdk> {
  try {
    return await import('@ngrok/ngrok')
  } catch (error) {
    throw new ProblemError(
      {
        reason: 'internal',
        detail: `the connectivity SDK does not support ${process.platform} ${process.arch}`,
        remedy: 'Install the agent on a supported platform, including optional packages.',
        permanent: true,
      },
      { cause: error },
    )
  }
}

/** Whether a session is of use; the first reason why not is the one that counts. */
class Liveness {
  readonly #onLost: (problem: Problem) => void
  readonly #ended = new AbortController()

  constructor(onLost: (problem: Problem) => void) {
    this.#onLost = onLost
  }

  /** Aborted when the session is of no use any more. */
  get signal(): AbortSignal {
    return this.#ended.signal
  }

  get isDead(): boolean {
    return this.#ended.signal.aborted
  }

  lose(detail: string): void {
    if (this.isDead) return
    this.#ended.abort(new Error(detail))
    this.#onLost(networkProblem(detail))
  }

  /** We let go of the session ourselves: nothing is lost. */
  close(): void {
    this.#ended.abort(new Error('the session was closed'))
  }
}

interface SessionParts {
  /** Not the hosted service, which knows no notices of ours. */
  readonly isOurGateway: boolean
  readonly liveness: Liveness
  readonly deadlines: Deadlines
  readonly authtoken: Secret
  readonly log: Logger
}

class NgrokSession implements Session {
  readonly #session: Sdk.Session
  readonly #parts: SessionParts
  readonly #rpcs = new Semaphore(RPC_AT_ONCE)
  readonly #open = new Set<Sdk.Listener>()
  #isDrained = false

  constructor(session: Sdk.Session, parts: SessionParts) {
    this.#session = session
    this.#parts = parts
  }

  get isAlive(): boolean {
    return !this.#parts.liveness.isDead
  }

  async open(request: EndpointRequest): Promise<Listener> {
    const builder = this.#endpointOf(request)
    try {
      const listener = await this.#rpcs.run(() => this.#bind(builder, request.dialUrl))
      this.#watch(listener, request.onDropped)
      const close = () => this.#rpcs.run(() => this.#close(listener))
      return { url: listener.url() ?? `https://${request.domain}`, close }
    } catch (error) {
      throw new ProblemError(sdkProblem(error, this.#parts.authtoken))
    }
  }

  /** Ends with the session: whoever waits for a dead one would be late for the next. */
  async #bind(builder: EndpointBuilder, dialUrl: string): Promise<Sdk.Listener> {
    const { deadlines, liveness } = this.#parts
    liveness.signal.throwIfAborted()
    const opened = builder.listenAndForward(dialUrl).then((listener) => {
      this.#open.add(listener)
      if (liveness.isDead) void this.#close(listener)
      return listener
    })
    const rpc = this.#rpc(opened, deadlines.bindMs, 'opening an endpoint')
    return abortable(rpc, liveness.signal)
  }

  async drain(withinMs: number): Promise<boolean> {
    const { deadlines, liveness } = this.#parts
    if (liveness.isDead) return false
    const builder = this.#session
      .httpEndpoint()
      .domain(DRAIN_DOMAIN)
      .metadata(drainNotice(withinMs))
    try {
      const rpc = this.#rpc(builder.listen(), withinMs + deadlines.bindMs, 'draining')
      const listener = await abortable(rpc, liveness.signal)
      this.#isDrained = DRAINED.test(listener.url() ?? '')
      // A service that takes it for an endpoint like any other.
      if (!this.#isDrained) await this.#attempt(listener.close(), 'closing an endpoint')
    } catch (error) {
      this.#parts.log.debug({ err: messageOf(error, this.#parts.authtoken) }, 'not drained')
    }
    return this.#isDrained
  }

  /**
   * While the link works the endpoints go first: the SDK leaves the TCP connection open, so they
   * would stay online. On a dead link the session goes first, because its close hangs behind any
   * other call; then the listeners, which the SDK keeps in a list of its own until each is closed.
   * What was drained is held by the service for whoever comes next: closed, it would be gone.
   */
  async close(): Promise<void> {
    const isDead = this.#parts.liveness.isDead
    this.#parts.liveness.close()
    const listeners = [...this.#open]
    if (this.#isDrained) {
      await this.#attempt(this.#session.close(), 'closing a drained session')
    } else if (isDead) {
      await this.#attempt(this.#session.close(), 'closing a lost session')
      await Promise.all(listeners.map((listener) => this.#close(listener)))
    } else {
      const closed = listeners.map((listener) => this.#rpcs.run(() => this.#close(listener)))
      await this.#attempt(Promise.all(closed), 'closing the endpoints')
      await this.#attempt(this.#session.close(), 'closing the session')
    }
  }

  #endpointOf(request: EndpointRequest): EndpointBuilder {
    const { protocol, domain, dialUrl, http2, isPooled, forwardsTo, policy } = request
    const { metadata, proxyProtocol } = request
    // Without a scheme the SDK answers every request 502; an unknown one ends the process.
    if (!/^(http:\/\/|tcp:\/\/|unix:\/)/.test(dialUrl)) {
      throw new Error(`cannot forward to ${dialUrl}`)
    }
    const builder = this.#builderFor(protocol, domain)
    builder.forwardsTo(forwardsTo)
    if (http2 && 'appProtocol' in builder) builder.appProtocol('http2')
    if (isPooled) builder.poolingEnabled(true)
    if (metadata !== undefined) builder.metadata(metadata)
    // The SDK keeps a header that it knows of until the visitor has sent something, which a service
    // that speaks first would wait for. Our gateway is asked for it in the metadata.
    const isPassed = this.#parts.isOurGateway && protocol !== undefined && protocol !== 'http'
    // Anything but these two ends the process.
    if (!isPassed && (proxyProtocol === 1 || proxyProtocol === 2)) {
      builder.proxyProto(`${proxyProtocol}`)
    }
    return policy === undefined ? builder : builder.trafficPolicy(policy)
  }

  #builderFor(protocol: TunnelProtocol = 'http', domain: string): EndpointBuilder {
    if (protocol === 'http') return this.#session.httpEndpoint().domain(domain)
    if (protocol === 'tls') return this.#session.tlsEndpoint().domain(domain)
    const builder = this.#session.tcpEndpoint()
    return domain === '' ? builder : builder.remoteAddr(domain)
  }

  /** The SDK tells nobody but `join()` that an endpoint ended. */
  #watch(listener: Sdk.Listener, onDropped: (problem: Problem) => void): void {
    const ended = listener.join().then(
      () => 'the endpoint ended',
      (error) => messageOf(error, this.#parts.authtoken),
    )
    void ended.then((message) => {
      const isOurs = !this.#open.has(listener) || this.#parts.liveness.isDead
      if (isOurs) return
      const closed =
        /ListenerClosed \{ message: "(.*)", error_code: (?:Some\("(\w+)"\)|None) \}/s.exec(message)
      if (!closed) return this.#parts.liveness.lose(`the session ended: ${message}`)
      void this.#close(listener)
      const [, text, code] = closed
      return onDropped(serviceProblem(`the service closed the endpoint: ${text}`, code))
    })
  }

  async #close(listener: Sdk.Listener): Promise<void> {
    if (this.#open.delete(listener)) await this.#attempt(listener.close(), 'closing an endpoint')
  }

  async #attempt(call: Promise<unknown>, what: string): Promise<void> {
    try {
      await this.#rpc(call, this.#parts.deadlines.closeMs, what)
    } catch (error) {
      this.#parts.log.debug({ err: messageOf(error, this.#parts.authtoken) }, `${what} failed`)
    }
  }

  /** An RPC that gets no answer holds the session's only lock: nothing works after it. */
  async #rpc<T>(call: Promise<T>, ms: number, what: string): Promise<T> {
    try {
      return await withDeadline(call, ms, what)
    } catch (error) {
      if (error instanceof DeadlineError) this.#parts.liveness.lose(error.message)
      throw error
    }
  }
}

const PREFIX = /^failed to (?:connect session|start listener): /
/** All that the SDK says about a certificate; the preflight has no CA to judge it by without ours. */
const UNTRUSTED = 'tls handshake error'
const CODE = / error_code: (ERR_NGROK_\d+)$/

/** An SDK error as a Problem; the service's code stands at the end of its message. */
function sdkProblem(error: unknown, authtoken: Secret): Problem {
  const message = messageOf(error, authtoken).replace(PREFIX, '')
  if (message === UNTRUSTED) return untrustedProblem(message)
  return serviceProblem(message.replace(CODE, ''), CODE.exec(message)?.[1])
}

/** Some of the service's texts repeat the authtoken. */
function messageOf(error: unknown, authtoken: Secret): string {
  return authtoken.scrub(error instanceof Error ? error.message : String(error)).trim()
}

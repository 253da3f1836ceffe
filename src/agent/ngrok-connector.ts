import { setMaxListeners } from 'node:events'
import { createRequire } from 'node:module'
import type * as Sdk from '@ngrok/ngrok'
import { type Clock, systemClock } from '../base/clock.ts'
import { abortable, DeadlineError, withDeadline } from '../base/deadline.ts'
import type { Logger } from '../base/logger.ts'
import type { Secret } from '../base/secret.ts'
import type { LinkSettings } from '../settings/agent-settings.ts'
import {
  type Connector,
  type ConnectRequest,
  type EndpointRequest,
  type EndpointTraffic,
  type Listener,
  PoisonedError,
  type Session,
} from './connector.ts'
import { foreignProblem } from './probes/connection-problem.ts'
import { networkProblem, type Problem, ProblemError } from './problem.ts'
import { isForeign, messageOf, sdkProblem, serviceProblem } from './service-error.ts'
import {
  awaitedIn,
  COMPLETE_DOMAIN,
  COMPLETE_NOTICE,
  DRAIN_DOMAIN,
  DRAINED,
  drainNotice,
  duplicateIn,
  gatewayIn,
  TRAFFIC_DOMAIN,
  TRAFFIC_NOTICE,
  trafficIn,
} from './sessions/gateway-notice.ts'
import { NoDelay } from './sessions/no-delay.ts'
import { RpcLanes, type RpcOptions } from './sessions/rpc-lanes.ts'
import type { Heartbeat } from './timings.ts'
import type { TunnelProtocol } from './upstreams/forward-target.ts'

type EndpointBuilder = Sdk.HttpListenerBuilder | Sdk.TcpListenerBuilder | Sdk.TlsListenerBuilder

const requirePackage = createRequire(import.meta.url)

/** On a metered link, one connection is used, also while many endpoints are being opened. */
export interface NgrokConnectorOptions extends Partial<LinkSettings> {
  /** Version of this agent, for the console of the service. */
  readonly version: string
  readonly log: Logger
  readonly heartbeat?: Heartbeat
  readonly deadlines?: Partial<Deadlines>
  readonly clock?: Clock
}

interface Deadlines {
  /**
   * A connect that takes longer never ends, and neither do later connects of this process. The limit is
   * higher if the preflight was slow.
   */
  readonly connectMs: number
  /** For opening or closing an endpoint, while no data at all is received. */
  readonly bindMs: number
  /** The same while the link shows other signs of life. */
  readonly longestBindMs: number
  /** For closing the session. */
  readonly closeMs: number
}

const DEADLINES: Deadlines = {
  connectMs: 15_000,
  bindMs: 10_000,
  longestBindMs: 60_000,
  closeMs: 3_000,
}
/** The SDK's connect has a few more round trips than the preflight. */
const CONNECT_SHARE = 5
/** Port of the hosted service. */
const SERVICE_PORT = 443
/** The SDK reports a silent link `interval + tolerance` after the last answer: 25 s. */
const HEARTBEAT = { intervalS: 10, toleranceS: 15 }

/**
 * A builder with its handlers, and its current connection. The SDK never frees handlers, 11 kB per builder
 * (measured). So the builder of a failed connect is reused.
 */
interface Wire {
  readonly builder: Sdk.SessionBuilder
  to:
    | {
        readonly lane: Lane
        readonly request: Omit<ConnectRequest, 'onHeartbeat'>
        readonly onHeartbeat: ((latencyMs: number) => void) | undefined
      }
    | undefined
}

/** The only class that uses @ngrok/ngrok. It works around bugs of that package. */
export class NgrokConnector implements Connector {
  readonly #options: NgrokConnectorOptions
  readonly #deadlines: Deadlines
  /** By port of the service. */
  readonly #noDelay = new Map<number, NoDelay>()
  /** Builders of failed connects. */
  readonly #spare: Wire[] = []

  constructor(options: NgrokConnectorOptions) {
    this.#options = options
    this.#deadlines = { ...DEADLINES, ...options.deadlines }
  }

  get sdkVersion(): string {
    return requirePackage('@ngrok/ngrok/package.json').version
  }

  async connect(request: ConnectRequest): Promise<Session> {
    const { clock = systemClock, isMetered, log } = this.#options
    const liveness = new Liveness(request.onLost)
    const isOurGateway = request.serverAddr !== undefined
    const beganAt = clock.monotonic()
    const first = await this.#openLane(request, request.onHeartbeat, (detail) =>
      liveness.lose(detail),
    )
    const { onHeartbeat: _, ...others } = request
    const session: NgrokSession = new NgrokSession(first, {
      ...{ isOurGateway, liveness, deadlines: this.#deadlines, authtoken: request.authtoken },
      connectMs: clock.monotonic() - beganAt,
      openLane:
        isOurGateway && !isMetered
          ? () => this.#openLane(others, undefined, (detail) => session.lose(detail))
          : undefined,
      ...{ log, clock },
    })
    return session
  }

  async #openLane(
    request: Omit<ConnectRequest, 'onHeartbeat'>,
    onHeartbeat: ((latencyMs: number) => void) | undefined,
    onLost: (detail: string) => void,
  ): Promise<Lane> {
    const { SessionBuilder } = await loadSdk()
    const lane = new Lane(onLost)
    const wire = this.#spare.pop() ?? this.#wire(new SessionBuilder())
    wire.to = { lane, request, onHeartbeat }
    const { builder } = wire
    builder.authtoken(request.authtoken.reveal()).metadata(request.metadata)
    if (request.serverAddr !== undefined) builder.serverAddr(request.serverAddr)
    if (request.caCert !== undefined) builder.caCert(Buffer.from(request.caCert))
    const noDelay = this.#noDelayFor(request)
    const isConnected = new AbortController()
    void noDelay?.during(request, isConnected.signal)
    try {
      lane.session = await this.#connect(builder, request)
    } catch (error) {
      if (!(error instanceof PoisonedError)) this.#spare.push(wire)
      throw error
    } finally {
      isConnected.abort('connected')
    }
    void noDelay?.after(request)
    return lane
  }

  #wire(builder: Sdk.SessionBuilder): Wire {
    const { intervalS, toleranceS } = this.#options.heartbeat ?? HEARTBEAT
    const wire: Wire = { builder, to: undefined }
    builder
      .clientInfo('device-agent', this.#options.version)
      .heartbeatInterval(intervalS)
      .heartbeatTolerance(toleranceS)
      // False disables the SDK's own reconnects, whose delays grow to days. A return value other than a
      // boolean, a promise or an exception ends the process.
      .handleDisconnection((_address, error) => {
        wire.to?.lane.lose(`the connection to the gateway was lost: ${error}`)
        return false
      })
      // A missed heartbeat is reported as null, which is missing in the SDK's types.
      .handleHeartbeat((latencyMs: number | null) => {
        if (latencyMs === null) wire.to?.lane.lose(`no heartbeat for ${intervalS + toleranceS} s`)
        else {
          wire.to?.lane.onHeard()
          wire.to?.onHeartbeat?.(latencyMs)
        }
      })
      // The SDK always confirms commands to the service, whatever these handlers do. Notices of our gateway
      // arrive as update commands. Real update commands are ignored.
      .handleRestartCommand(() => wire.to?.request.onCommand('restart'))
      .handleStopCommand(() => wire.to?.request.onCommand('stop'))
      .handleUpdateCommand(({ version }) => {
        const ip = duplicateIn(version)
        if (ip !== undefined) wire.to?.request.onDuplicate(ip)
        const gateway = gatewayIn(version)
        if (gateway !== undefined) wire.to?.request.onGateway?.(gateway)
        wire.to?.lane.onAwaited(awaitedIn(version))
        wire.to?.request.onNotice?.(version)
      })
    return wire
  }

  #noDelayFor({
    serverAddr = `:${SERVICE_PORT}`,
  }: Pick<ConnectRequest, 'serverAddr'>): NoDelay | undefined {
    const { isNoDelay, log, clock = systemClock } = this.#options
    if (!isNoDelay) return undefined
    const port = Number(serverAddr.slice(serverAddr.lastIndexOf(':') + 1))
    const noDelay = this.#noDelay.get(port) ?? new NoDelay(port, log, clock)
    this.#noDelay.set(port, noDelay)
    return noDelay
  }

  async #connect(
    builder: Sdk.SessionBuilder,
    {
      authtoken,
      serverAddr = 'the gateway',
      preflightMs = 0,
    }: Pick<ConnectRequest, 'authtoken' | 'serverAddr' | 'preflightMs'>,
  ): Promise<Sdk.Session> {
    const withinMs = this.#deadlines.connectMs + CONNECT_SHARE * preflightMs
    try {
      return await withDeadline(builder.connect(), withinMs, 'connecting to the gateway')
    } catch (error) {
      if (error instanceof DeadlineError) throw new PoisonedError(error.message)
      if (isForeign(error)) throw new ProblemError(foreignProblem(serverAddr), { cause: error })
      throw new ProblemError(sdkProblem(error, authtoken))
    }
  }
}

/**
 * Loads the SDK on demand. An agent without a token starts faster, and a missing native build becomes a
 * Problem.
 */
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

/** Whether a session is usable. The first reason for a loss counts. */
class Liveness {
  readonly #onLost: (problem: Problem) => void
  readonly #ended = new AbortController()

  constructor(onLost: (problem: Problem) => void) {
    this.#onLost = onLost
    // Each waiting request has a listener. Node warns of more than 10 as of a leak.
    setMaxListeners(0, this.#ended.signal)
  }

  /** Aborted when the session is lost or closed. */
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

  /** This side closed the session, so no loss is reported. */
  close(): void {
    this.#ended.abort(new Error('the session was closed'))
  }
}

/** One connection of a session. The SDK runs its RPCs one at a time. */
class Lane {
  /** Open endpoints, with their names. */
  readonly open = new Map<Sdk.Listener, string>()
  isLost = false
  onHeard = (): void => {}
  /** Called with names that visitors wait for. */
  onAwaited = (_names: readonly string[]): void => {}
  #session: Sdk.Session | undefined
  readonly #onLost: (detail: string) => void

  constructor(onLost: (detail: string) => void) {
    this.#onLost = onLost
  }

  /** Available after the connect. */
  get session(): Sdk.Session {
    if (!this.#session) throw new Error('the connection is not there yet')
    return this.#session
  }

  set session(session: Sdk.Session) {
    this.#session = session
  }

  lose(detail: string): void {
    if (this.isLost) return
    this.isLost = true
    this.#onLost(detail)
  }
}

interface SessionParts {
  /** False for the hosted service, which does not support our notices. */
  readonly isOurGateway: boolean
  readonly liveness: Liveness
  readonly deadlines: Deadlines
  readonly authtoken: Secret
  readonly connectMs: number
  readonly openLane: (() => Promise<Lane>) | undefined
  readonly log: Logger
  readonly clock: Clock
}

/**
 * A session of the link. It has one connection, or several while many endpoints are opened. If one connection
 * is lost, the session is lost. The connections of a retired session end one by one.
 */
class NgrokSession implements Session {
  readonly #first: Lane
  readonly #parts: SessionParts
  readonly #lanes: RpcLanes<Lane>
  /** The newest endpoint of each name, with its connection. */
  readonly #endpoints = new Map<string, { readonly lane: Lane; readonly listener: Sdk.Listener }>()
  #isRetired = false
  #isDrained = false

  constructor(first: Lane, parts: SessionParts) {
    const { deadlines, liveness, connectMs, openLane, clock } = parts
    this.#first = first
    this.#parts = parts
    this.#lanes = new RpcLanes({
      ...{ first, connectMs, clock },
      openLane: openLane && (() => this.#admit(openLane)),
      bounds: { silenceMs: deadlines.bindMs, longestMs: deadlines.longestBindMs },
      // An RPC without an answer holds the only lock of its connection, so no later RPC can succeed.
      onStalled: (detail) => liveness.lose(detail),
    })
    this.#follow(first)
    liveness.signal.addEventListener('abort', () => this.#lanes.close(), { once: true })
  }

  get isAlive(): boolean {
    return !this.#parts.liveness.isDead
  }

  /** Reports that a connection of the session has ended. */
  lose(detail: string): void {
    if (this.#isRetired && this.#lanes.all.some(({ isLost }) => !isLost)) return
    this.#parts.liveness.lose(detail)
  }

  retire(): void {
    this.#isRetired = true
  }

  async open(request: EndpointRequest): Promise<Listener> {
    const { authtoken } = this.#parts
    const { domain } = request
    this.#checkDialUrl(request)
    // A replaced endpoint stays on its connection. Our gateway ends a connection that has lost its endpoints
    // to another one, and the session ends with it.
    const before = this.#endpoints.get(domain)
    const on = before ? { name: domain, lane: before.lane } : { name: domain }
    try {
      const [lane, listener] = await this.#rpc(
        (free) => this.#bind(free, request),
        'opening an endpoint',
        on,
      )
      this.#watch(lane, listener, request.onDropped)
      const close = () => this.#close(lane, listener)
      return { url: listener.url() ?? `https://${domain}`, close }
    } catch (error) {
      throw new ProblemError(sdkProblem(error, authtoken))
    }
  }

  async #bind(lane: Lane, request: EndpointRequest): Promise<[Lane, Sdk.Listener]> {
    const listener = await this.#endpointOf(lane, request).listenAndForward(request.dialUrl)
    lane.open.set(listener, request.domain)
    if (request.domain !== '') this.#endpoints.set(request.domain, { lane, listener })
    if (this.#parts.liveness.isDead) void this.#close(lane, listener)
    return [lane, listener]
  }

  async drain(withinMs: number): Promise<boolean> {
    if (!this.isAlive) return false
    const drained = this.#lanes.all.map(async (lane) => {
      if (lane.isLost) return true
      const url = await this.#say(lane, DRAIN_DOMAIN, drainNotice(withinMs), withinMs)
      return url !== undefined && DRAINED.test(url)
    })
    this.#isDrained = (await Promise.all(drained)).every((isDrained) => isDrained)
    return this.#isDrained
  }

  async complete(): Promise<void> {
    if (this.#parts.isOurGateway && this.isAlive) {
      await this.#say(this.#first, COMPLETE_DOMAIN, COMPLETE_NOTICE)
    }
  }

  /** Each connection has endpoints of its own. */
  async traffic(): Promise<readonly EndpointTraffic[] | undefined> {
    if (!this.#parts.isOurGateway || !this.isAlive) return undefined
    const lanes = this.#lanes.all.filter(({ isLost }) => !isLost)
    const urls = await Promise.all(
      lanes.map((lane) => this.#say(lane, TRAFFIC_DOMAIN, TRAFFIC_NOTICE)),
    )
    const found = urls.flatMap((url) => trafficIn(url) ?? [])
    return urls.some((url) => trafficIn(url)) ? found : undefined
  }

  /**
   * Sends a notice through a bind that opens no endpoint at our gateway. Resolves with the URL in the answer.
   */
  async #say(
    lane: Lane,
    domain: string,
    notice: string,
    longestMs = 0,
  ): Promise<string | undefined> {
    const listen = () => lane.session.httpEndpoint().domain(domain).metadata(notice).listen()
    try {
      const listener = await this.#rpc(listen, 'telling the gateway', { lane, longestMs })
      const url = listener.url() ?? ''
      // After a drain the connection is closed with open endpoints, which stay at the service.
      if (!DRAINED.test(url))
        await this.#attempt(
          this.#rpc(() => listener.close(), 'closing a message', { lane }),
          'closing a message',
        )
      return url
    } catch (error) {
      const err = messageOf(error, this.#parts.authtoken)
      this.#parts.log.debug({ err, domain }, 'cannot send a notice to the gateway')
      return undefined
    }
  }

  /**
   * Closes the session and its endpoints, in an order that depends on the link:
   *
   * - Working link: endpoints first. The SDK leaves the TCP connection open, so they would stay online.
   * - Lost link: the session first, because its close waits for all other calls. Then the listeners, which
   *   the SDK keeps in a list until each is closed.
   * - Drained session: endpoints are not closed, because the service holds them for the next session.
   */
  async close(): Promise<void> {
    const isDead = this.#parts.liveness.isDead
    this.#lanes.close()
    this.#parts.liveness.close()
    await Promise.all(this.#lanes.all.map((lane) => this.#closeLane(lane, isDead)))
  }

  async #closeLane(lane: Lane, isDead: boolean): Promise<void> {
    const { session } = lane
    const listeners = [...lane.open.keys()]
    const closeAll = () => {
      lane.open.clear()
      return Promise.all(listeners.map((listener) => listener.close().catch(() => {})))
    }
    if (this.#isDrained) {
      await this.#attempt(session.close(), 'closing a drained session')
    } else if (isDead || lane.isLost) {
      await this.#attempt(session.close(), 'closing a lost session')
      await this.#attempt(closeAll(), 'closing the endpoints')
    } else {
      await this.#attempt(closeAll(), 'closing the endpoints')
      await this.#attempt(session.close(), 'closing the session')
    }
  }

  async #admit(openLane: () => Promise<Lane>): Promise<Lane> {
    const lane = await openLane()
    this.#follow(lane)
    if (this.isAlive) return lane
    // The other connections are being closed.
    void this.#closeLane(lane, true)
    throw new Error('the session has ended')
  }

  #follow(lane: Lane): void {
    lane.onHeard = () => this.#lanes.heard()
    lane.onAwaited = (names) => this.#lanes.prefer(names)
  }

  /** Rejects when the session ends, so that callers can use the next one without delay. */
  async #rpc<T>(
    call: (lane: Lane) => Promise<T>,
    what: string,
    options: RpcOptions<Lane> = {},
  ): Promise<T> {
    const { signal } = this.#parts.liveness
    signal.throwIfAborted()
    return abortable(this.#lanes.run(call, what, options), signal)
  }

  #checkDialUrl({ dialUrl }: EndpointRequest): void {
    // Without a scheme the SDK answers every request with 502. An unknown scheme ends the process.
    if (/^(http:\/\/|tcp:\/\/|unix:\/)/.test(dialUrl)) return
    throw new Error(`cannot forward to ${dialUrl}`)
  }

  #endpointOf({ session }: Lane, request: EndpointRequest): EndpointBuilder {
    const { protocol, domain, http2, isPooled, forwardsTo, policy } = request
    const { metadata, proxyProtocol } = request
    const builder = builderFor(session, protocol, domain)
    builder.forwardsTo(forwardsTo)
    if (http2 && 'appProtocol' in builder) builder.appProtocol('http2')
    if (isPooled) builder.poolingEnabled(true)
    if (metadata !== undefined) builder.metadata(metadata)
    // With `proxyProto`, the SDK delays the header until the visitor has sent data. A service that speaks
    // first would wait for it. Our gateway gets the version in the metadata instead.
    const isPassed = this.#parts.isOurGateway && protocol !== undefined && protocol !== 'http'
    // Other values end the process.
    if (!isPassed && (proxyProtocol === 1 || proxyProtocol === 2)) {
      builder.proxyProto(`${proxyProtocol}`)
    }
    return policy === undefined ? builder : builder.trafficPolicy(policy)
  }

  /** Handles the end of an endpoint, which the SDK reports only through `join()`. */
  #watch(lane: Lane, listener: Sdk.Listener, onDropped: (problem: Problem) => void): void {
    const ended = listener.join().then(
      () => 'the endpoint ended',
      (error) => messageOf(error, this.#parts.authtoken),
    )
    void ended.then((message) => {
      const isOurs = !lane.open.has(listener) || this.#parts.liveness.isDead || lane.isLost
      if (isOurs) return
      const closed =
        /ListenerClosed \{ message: "(.*)", error_code: (?:Some\("(\w+)"\)|None) \}/s.exec(message)
      if (!closed) return lane.lose(`the session ended: ${message}`)
      void this.#close(lane, listener)
      const [, text, code] = closed
      return onDropped(serviceProblem(`the gateway closed the endpoint: ${text}`, code))
    })
  }

  async #close(lane: Lane, listener: Sdk.Listener): Promise<void> {
    const domain = lane.open.get(listener)
    if (domain === undefined) return
    lane.open.delete(listener)
    if (this.#endpoints.get(domain)?.listener === listener) this.#endpoints.delete(domain)
    const close = () => listener.close()
    const what = 'closing an endpoint'
    try {
      // On a lost connection, the RPC queue must not be used.
      if (this.isAlive) await this.#rpc(close, what, { lane })
      else await this.#attempt(close(), what)
    } catch (error) {
      this.#parts.log.debug({ err: messageOf(error, this.#parts.authtoken) }, `${what} failed`)
    }
  }

  async #attempt(call: Promise<unknown>, what: string): Promise<void> {
    try {
      await withDeadline(call, this.#parts.deadlines.closeMs, what)
    } catch (error) {
      this.#parts.log.debug({ err: messageOf(error, this.#parts.authtoken) }, `${what} failed`)
    }
  }
}

function builderFor(
  session: Sdk.Session,
  protocol: TunnelProtocol = 'http',
  domain: string,
): EndpointBuilder {
  if (protocol === 'tcp') {
    const builder = session.tcpEndpoint()
    return domain === '' ? builder : builder.remoteAddr(domain)
  }
  const builder = protocol === 'tls' ? session.tlsEndpoint() : session.httpEndpoint()
  return domain === '' ? builder : builder.domain(domain)
}

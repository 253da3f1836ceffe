import type { SecureContext } from 'node:tls'
import type { Clock } from '../base/clock.ts'
import { withDeadline } from '../base/deadline.ts'
import type { Logger } from '../base/logger.ts'
import type { Secret } from '../base/secret.ts'
import type { AgentSettings, TunnelSettings } from '../settings/agent-settings.ts'
import type { Database } from '../store/database.ts'
import { type AgentStatus, concludeStatus, type LinkStatus } from './agent-status.ts'
import { AuthtokenSource, withTokenPlace } from './authtoken-source.ts'
import { Conflicts } from './conflicts.ts'
import type { Connector, EndpointTraffic, Session } from './connector.ts'
import { Identity } from './device/device-id.ts'
import { DeviceWatch } from './device/device-watch.ts'
import { SteadyClock, withShownTimes } from './device/steady-clock.ts'
import { Inspections } from './inspection/inspections.ts'
import { KeptValues } from './kept-values.ts'
import { Link } from './link.ts'
import { OwnEndpoint, PublicPort } from './own-endpoint.ts'
import { DefaultPolicy } from './policies/default-policy.ts'
import { PolicyChecker, policyOf } from './policies/policy-check.ts'
import type { PolicyProcess } from './policies/policy-process.ts'
import { withReadPolicies } from './policies/policy-texts.ts'
import { LinkEchoes } from './probes/link-echoes.ts'
import { preflightsTo } from './probes/preflight.ts'
import { requestPublic, trustBeside } from './probes/public-request.ts'
import { meaningOf, type Reach, reachProblem, UNKNOWN_REACH } from './probes/reach.ts'
import type { SelfProbeOptions } from './probes/self-probe.ts'
import {
  readCertificateEnd,
  readServiceDate,
  ServiceTime,
  timeSources,
} from './probes/service-time.ts'
import { hostedProblem, type ShownProblem } from './problem.ts'
import { isRetryNotice, policyWarningsIn } from './sessions/gateway-notice.ts'
import { TrafficCounts } from './sessions/traffic-counts.ts'
import { surroundings } from './shown-status.ts'
import { type AgentTimings, timingsOf } from './timings.ts'
import type { JsonObject, Tunnel, TunnelSpec } from './tunnel.ts'
import type { Precondition, SetOutcome, SetRequest } from './tunnel-set.ts'
import { type StoredTunnel, TunnelStore } from './tunnel-store.ts'
import { type AcceptedTunnel, Tunnels } from './tunnels.ts'
import { ForwardRules, type ForwardRulesOptions } from './upstreams/forward-rules.ts'
import type { HostTarget } from './upstreams/forward-target.ts'
import type { LocalService } from './upstreams/local-services.ts'
import { UpstreamCheck } from './upstreams/upstream-check.ts'
import { UpstreamDialer } from './upstreams/upstream-relay.ts'
import { visitorReportsIn } from './upstreams/upstream-state.ts'

/** Settings that the agent itself uses. */
type OwnSettings = Pick<
  AgentSettings,
  'serverAddrs' | 'ingress' | 'dataDir' | 'defaultPolicyPath' | 'link' | 'upstream'
> &
  TunnelSettings

/** Settings and dependencies of an agent. */
export interface AgentOptions extends OwnSettings {
  /** Opened with TUNNEL_MIGRATIONS among its migrations. */
  readonly database: Database
  readonly connector: Connector
  readonly authtoken: {
    /** Files that may contain the token. The first match is used. The files are watched. */
    readonly files: readonly string[]
    readonly value: Secret | undefined
  }
  /** PEM text of the CA that signed the service's certificates. */
  readonly caCert: string | undefined
  /** Its file, for remedies. */
  readonly caCertPath?: string | undefined
  /** Public name of the API, and the unix socket (absolute path) that serves it. */
  readonly own: { readonly domain: string; readonly socketPath: string } | undefined
  readonly forward: ForwardRulesOptions
  /** Files that list the listening sockets of the device. Default: those of Linux. */
  readonly serviceTables?: readonly string[]
  /** Checks policies. Default: a process that the agent starts when needed. */
  readonly policyProcess?: PolicyProcess
  readonly version: string
  readonly log: Logger
  readonly clock: Clock
  /** Called if the SDK hangs permanently: stop cleanly and exit with 75, so that a new process starts. */
  readonly onPoisoned: () => void
  /** Default: from the settings. */
  readonly timings?: AgentTimings
  /** Returns a number in [0, 1), for all jitter. */
  readonly random?: () => number
}

/**
 * Manages the tunnels of the device. The database holds the desired state, and supervised tunnels the actual
 * state.
 */
export class Agent {
  readonly #options: AgentOptions
  readonly #log: Logger
  readonly #timings: AgentTimings
  readonly #stopping = new AbortController()
  readonly #listeners = new Set<() => void>()
  /** For times in the status, which must not jump with the device's clock. */
  readonly #steady: SteadyClock
  readonly #serviceTime: ServiceTime
  readonly #device: DeviceWatch
  readonly #common: Pick<AgentOptions, 'clock' | 'log' | 'random'>
  readonly #kept: KeptValues
  readonly #publicPort: PublicPort
  readonly #policyChecker: PolicyChecker
  readonly #authtoken: AuthtokenSource
  readonly #defaultPolicy: DefaultPolicy
  readonly #rules: ForwardRules
  readonly #dialer: UpstreamDialer
  readonly #upstreams: UpstreamCheck
  readonly #echoes: LinkEchoes
  readonly #link: Link
  readonly #conflicts: Conflicts
  readonly #own: OwnEndpoint | undefined
  readonly #tunnels: Tunnels
  readonly #traffic: TrafficCounts
  /** Inspections of tunnels. */
  readonly inspections: Inspections
  readonly #startedAt: number
  readonly #identity: Identity
  #isAnnounced = false
  /** The session on which the service was told that all names are bound. */
  #toldComplete: Session | undefined
  #stopped: Promise<void> | undefined

  constructor(options: AgentOptions) {
    const { database, clock, random, serverAddrs, defaultPolicyPath, authtoken } = options
    this.#options = options
    this.#identity = new Identity(options.link)
    this.#log = options.log.child({ room: 'agent' })
    this.#timings = options.timings ?? timingsOf(options)
    this.#common = { clock, log: this.#log, ...(random && { random }) }
    this.#steady = new SteadyClock(clock)
    this.#serviceTime = new ServiceTime(clock)
    this.#startedAt = this.#steady.now()
    const everyMs = this.#timings.fileWatchMs
    this.#device = new DeviceWatch({
      clock,
      steady: this.#steady,
      everyMs,
      serviceTime: this.#serviceTime,
      serviceDate: () => this.#askServiceDate(),
      onClockSet: () => this.#own?.probe.kick(),
      onChange: () => this.#announce(),
      signal: this.#stopping.signal,
      log: this.#log,
    })
    const letsServiceJudge = serverAddrs.length === 0 && options.unknownActions !== 'refuse'
    this.#policyChecker = new PolicyChecker({
      service: letsServiceJudge ? 'hosted' : 'embedded',
      log: this.#log,
      process: options.policyProcess,
    })
    this.#kept = new KeptValues(database)
    this.#publicPort = new PublicPort(this.#kept, this.#log)
    this.#authtoken = new AuthtokenSource({ ...authtoken, everyMs, ...this.#common })
    this.#defaultPolicy = new DefaultPolicy({
      path: defaultPolicyPath,
      kept: this.#kept,
      check: this.#policyChecker.check,
      everyMs,
      ...this.#common,
      clock: this.#steady,
    })
    this.#rules = new ForwardRules(options.forward)
    this.#dialer = new UpstreamDialer(this.#rules, this.#log)
    this.#upstreams = new UpstreamCheck({
      lookupFor: (target) => this.#dialer.lookupFor(target),
      timings: this.#timings.upstream,
      onExhausted: () => this.#device.exhausted(),
      onChange: () => this.#announce(),
      ...this.#common,
    })
    this.#echoes = new LinkEchoes({
      connector: options.connector,
      withinMs: this.#timings.probe.echoMs,
      onNotice: (text) => this.#noticed(text),
      clock,
    })
    this.#link = this.#createLink()
    this.#conflicts = new Conflicts({ timings: this.#timings.tunnel, ...this.#common })
    this.#own = options.own && this.#createOwnEndpoint(options.own)
    this.inspections = new Inspections({
      repoint: (id) => this.#repoint(id),
      dialled: (id) => this.#tunnels.supervised(id)?.dialUrl,
      ...this.#common,
    })
    this.#tunnels = this.#createTunnels()
    this.#traffic = new TrafficCounts({
      session: () => this.#link.session,
      isMetered: options.link.isMetered,
      clock,
    })
  }

  /** Restores all tunnels in the background. Throws a StartError if a person has to act. */
  async start(): Promise<void> {
    this.#identity.load(this.#options.dataDir, this.#log)
    try {
      await this.#defaultPolicy.start(() => this.#tunnels.defaultPolicyChanged())
    } catch (error) {
      if (!this.#stopping.signal.aborted) throw error
    }
    if (this.#stopping.signal.aborted) return
    const onFlaw = () => this.#announce()
    this.#authtoken.start(() => this.#link.authtokenChanged(), onFlaw)
    this.#tunnels.restore()
    this.#tunnels.deleteRemoved()
    this.#upstreams.start()
    this.#own?.start()
    this.#link.start()
    void this.#device.run()
  }

  /**
   * Ends the link. Rows stay. Our gateway holds the names, and requests in progress may finish. With the
   * hosted service, endpoints are closed. Takes at most `drainMs` plus `stopMs`.
   */
  stop(): Promise<void> {
    const { drainMs, stopMs } = this.#timings
    this.#stopped ??= withDeadline(this.#stop(), drainMs + stopMs, 'closing tunnels').catch(
      (error) => this.#log.warn({ err: error }, 'stopped without closing the session'),
    )
    return this.#stopped
  }

  /** Throws AppError `starting` until the stored tunnels are loaded. */
  requireRestored(): void {
    this.#tunnels.requireRestored()
  }

  /** Returns the tunnels, oldest first. Empty until they are restored. */
  list(): Tunnel[] {
    return this.#tunnels.list()
  }

  /**
   * Finds a tunnel by id, full host, or first label if only one tunnel has it. Throws AppError
   * `tunnel-not-found` or `ambiguous-tunnel`.
   */
  find(urlPart: string): Tunnel {
    return this.#tunnels.find(urlPart)
  }

  /** Replaces policies that are YAML text in a request body. Throws AppError `invalid-request`. */
  withReadPolicies(body: unknown): Promise<unknown> {
    return withReadPolicies(body, this.#policyChecker.read)
  }

  /** Stores the tunnel, then opens it. After a permanent refusal, removes the row and throws. */
  create(spec: TunnelSpec, when?: Precondition<readonly StoredTunnel[]>): Promise<AcceptedTunnel> {
    return this.#tunnels.create(spec, when)
  }

  /** Creates or replaces the tunnel of `domain`. After a permanent refusal, the old tunnel is restored. */
  replace(
    domain: string,
    spec: TunnelSpec,
    when?: Precondition<StoredTunnel | undefined>,
  ): Promise<AcceptedTunnel & { readonly created: boolean }> {
    return this.#tunnels.replace(domain, spec, when)
  }

  /** Replaces all tunnels in one write. See `Tunnels.replaceAll`. */
  replaceAll(wanted: readonly TunnelSpec[], request?: SetRequest): Promise<SetOutcome[]> {
    return this.#tunnels.replaceAll(wanted, request)
  }

  /** Closes the endpoint at the service, then deletes the tunnel. */
  remove(urlPart: string, when?: Precondition<StoredTunnel>): Promise<void> {
    return this.#tunnels.remove(urlPart, when)
  }

  /** Returns the tunnel's own policy, or the default policy. */
  policyInForce(tunnel: Tunnel): JsonObject {
    return policyOf(tunnel.spec, this.#defaultPolicy.current)
  }

  status(): AgentStatus {
    const { clock, connector, version } = this.#options
    return concludeStatus({
      startedAt: this.#steady.shown(this.#startedAt),
      deviceId: this.#identity.deviceId,
      link: withShownTimes(this.#linkStatus, this.#steady),
      tunnels: this.#tunnels.list(),
      damagedRows: this.#tunnels.damaged,
      ownEndpoint: this.#own && withShownTimes(this.#own.status, this.#steady),
      defaultPolicy: {
        ...withShownTimes(this.#defaultPolicy.status, this.#steady),
        path: this.#options.defaultPolicyPath,
      },
      authtokenProblem: this.#authtoken.problem,
      resources: this.#device.resources,
      versions: { agent: version, node: process.version, sdk: connector.sdkVersion },
      clock: { now: clock.now(), skewMs: this.#serviceTime.skewMs },
    })
  }

  /**
   * Checks services again whose last check is not recent. Call this when a person asks for the status. It does
   * not wait, so the result is part of a later status.
   */
  refreshServices(): void {
    this.#upstreams.refresh()
  }

  /** Traffic of tunnels by domain. Undefined if the service does not tell it, or there is no link. */
  traffic(): Promise<ReadonlyMap<string, EndpointTraffic> | undefined> {
    return this.#traffic.read()
  }

  /** Finds services that listen on the device and that tunnels may lead to. Takes a few seconds. */
  async findServices(): Promise<readonly LocalService[]> {
    // Loaded on demand: few devices are asked.
    const { findServices, ownSockets } = await import('./upstreams/local-services.ts')
    const relays = new Set(this.#tunnels.list().map(({ id, spec }) => this.#relayPort(id, spec)))
    const isAllowed = async (target: HostTarget) => {
      if (relays.has(target.port)) return false
      return this.#rules.check(target).then(
        () => true,
        () => false,
      )
    }
    const tables = this.#options.serviceTables
    const hidden = await ownSockets()
    return findServices({ isAllowed, signal: this.#stopping.signal, hidden, tables })
  }

  /** Calls `listener` soon after a change of `status()`. Returns a function that ends this. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /**
   * Answers the agent's own end-to-end probe. Serve `GET {PROBE_PATH}/{nonce}` without a token: 200 with this
   * text, or 404 if it is undefined.
   */
  answerProbe(nonce: string): string | undefined {
    return this.#own?.probe.answer(nonce)
  }

  async #stop(): Promise<void> {
    this.#stopping.abort(new Error('the agent is stopping'))
    this.#authtoken.stop()
    this.#defaultPolicy.stop()
    this.#policyChecker.stop()
    const { drainMs } = this.#timings
    await Promise.all([
      this.#upstreams.stop(),
      this.#own?.stopKeepingEndpoint(),
      this.#tunnels.stopKeepingEndpoints(),
    ])
    await this.#link.stop({ drainMs })
    // Requests in progress needed the connections to the upstreams until now.
    await this.#tunnels.stop()
    this.inspections.close()
  }

  /** The link, with remedies for people. */
  get #linkStatus(): LinkStatus {
    const { path } = this.#authtoken
    const { renewal, ...link } = this.#link.status
    const isHosted = this.#options.serverAddrs.length === 0
    const words = <T extends ShownProblem>(it: T) => (isHosted ? hostedProblem(it) : it)
    const renewed = renewal && words(withTokenPlace(renewal, path, true))
    return { ...words(withTokenPlace(link, path)), renewal: renewed }
  }

  #createLink(): Link {
    const { serverAddrs, caCert, caCertPath, onPoisoned, link } = this.#options
    return new Link({
      connector: this.#echoes,
      serverAddrs,
      caCert,
      // On a metered link, a second session would cost as much as the first.
      hasStandby: !link.isMetered,
      preflight: preflightsTo(serverAddrs, {
        caCert,
        caCertPath,
        serviceDate: () => this.#askServiceDate(),
        timings: this.#timings.preflight,
        ...this.#common,
      }),
      authtoken: () => this.#authtoken.current,
      metadata: () => this.#identity.metadata,
      timings: this.#timings.link,
      onChange: () => this.#announce(),
      onSessions: () => this.#sessionsChanged(),
      onPoisoned,
      ...this.#common,
      clock: this.#steady,
    })
  }

  #createOwnEndpoint(own: { domain: string; socketPath: string }): OwnEndpoint {
    const { caCert, ingress } = this.#options
    let trust: SecureContext | undefined
    const request: SelfProbeOptions['request'] = (url, within) => {
      if (caCert !== undefined) trust ??= trustBeside(caCert)
      const way = { verify: true, trust, connectTo: ingress, ...within }
      return requestPublic(url, { method: 'GET', ...way })
    }
    return new OwnEndpoint({
      ...own,
      urlOf: (domain) => this.#publicPort.urlOf(domain),
      session: () => this.#link.session,
      request,
      ingress,
      timings: this.#timings,
      conflicts: this.#conflicts,
      onChange: () => this.#tunnelChanged(this.#own?.url),
      onTried: (session, problem) => this.#link.tried(session, problem),
      watchLink: () => this.#echoes.watch(this.#link.session),
      serviceTime: this.#serviceTime,
      serviceDate: () => this.#askServiceDate(),
      certificateEnd: (url) => readCertificateEnd(url, ingress, this.#stopping.signal),
      onProbe: (reach) => this.#probed(reach),
      onRebuild: (problem) => this.#link.rebuild(problem),
      ...this.#common,
      clock: this.#steady,
    })
  }

  #createTunnels(): Tunnels {
    const { database, own, maxTunnels, upstream } = this.#options
    return new Tunnels({
      store: new TunnelStore(database),
      session: () => this.#link.session,
      steady: this.#steady,
      surroundings: surroundings(() => ({
        link: this.#linkStatus,
        reach: this.#own?.probe.reach ?? UNKNOWN_REACH,
        movedMs: this.#steady.shown(0),
      })),
      defaultPolicy: () => this.#defaultPolicy.current,
      checkPolicy: this.#policyChecker.check,
      rules: this.#rules,
      dialer: this.#dialer,
      inspections: this.inspections,
      upstreams: this.#upstreams,
      ownDomain: own?.domain,
      urlOf: (domain) => this.#publicPort.urlOf(domain),
      maxTunnels,
      upstream,
      timings: this.#timings,
      conflicts: this.#conflicts,
      onChange: (url) => this.#tunnelChanged(url),
      onTried: (session, problem) => this.#link.tried(session, problem),
      ...this.#common,
    })
  }

  #askServiceDate(): Promise<number | undefined> {
    const { own, ingress, serverAddrs } = this.#options
    const url = own && this.#publicPort.urlOf(own.domain)
    return readServiceDate(timeSources(url, ingress, serverAddrs[0]), this.#stopping.signal)
  }

  /** Handles the service's reports about visitors, and the answers of upstreams. */
  #noticed(text: string): void {
    if (isRetryNotice(text)) this.#sessionsChanged()
    const reports = visitorReportsIn(text)
    const warnings = policyWarningsIn(text)
    if (reports.size === 0 && warnings.size === 0) return
    this.#tunnels.visitorsGot(reports)
    this.#tunnels.policiesWarned(warnings)
    this.#announce()
  }

  #probed(reach: Reach): void {
    const problem = meaningOf(reach).isLinkFine ? undefined : reachProblem(reach)
    if (problem) this.#link.distrust(problem)
    else this.#link.trust()
    this.#announce()
  }

  #sessionsChanged(): void {
    this.#own?.linkChanged()
    this.#tunnels.linkChanged()
  }

  #tunnelChanged(url: string | undefined): void {
    if (url !== undefined) this.#publicPort.learnFrom(url)
    this.inspections.tunnelsChanged()
    this.#announce()
  }

  /** Port of the agent that a tunnel is dialled through. Undefined if the service is dialled directly. */
  #relayPort(id: string, { forwardsTo }: TunnelSpec): number | undefined {
    const port = Number(/:(\d+)$/.exec(this.#tunnels.supervised(id)?.dialUrl ?? '')?.[1])
    return port > 0 && !forwardsTo.endsWith(`:${port}`) ? port : undefined
  }

  /** Reopens a tunnel after its inspection started or ended. */
  async #repoint(id: string): Promise<void> {
    const tunnel = this.#tunnels.supervised(id)
    if (!tunnel || this.#stopping.signal.aborted) return
    tunnel.reopen()
    await tunnel.settle()
  }

  /**
   * Reports once per session that all names are bound. The service then releases other names of this device.
   */
  #tellComplete(): void {
    const { session } = this.#link
    if (!session || session === this.#toldComplete || this.#stopping.signal.aborted) return
    const isOwnConcluded = this.#own?.isConcludedOn(session) ?? true
    if (!isOwnConcluded || !this.#tunnels.areConcludedOn(session)) return
    this.#toldComplete = session
    void session.complete()
  }

  /** Combines many changes into one notification. */
  #announce(): void {
    if (this.#isAnnounced) return
    this.#isAnnounced = true
    setImmediate(() => {
      this.#isAnnounced = false
      this.#tellComplete()
      for (const listener of this.#listeners) listener()
    })
  }
}

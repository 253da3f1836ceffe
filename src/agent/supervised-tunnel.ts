import { AppError } from '../base/app-error.ts'
import { withDeadline } from '../base/deadline.ts'
import type { Session } from './connector.ts'
import { type SteadyClock, withMovedTimes } from './device/steady-clock.ts'
import type { Inspections } from './inspection/inspections.ts'
import { policyOf } from './policies/policy-check.ts'
import { hostedProblem, type Problem } from './problem.ts'
import {
  type Surroundings,
  shownStatus,
  withSurroundings,
  withUpstreamTrouble,
} from './shown-status.ts'
import type { AgentTimings } from './timings.ts'
import {
  expectedUrl,
  hasSamePolicy,
  type JsonObject,
  type Tunnel,
  type TunnelSpec,
} from './tunnel.ts'
import type { StoredTunnel } from './tunnel-store.ts'
import {
  type SupervisedStatus,
  TunnelSupervisor,
  type TunnelSupervisorOptions,
  type WantedEndpoint,
} from './tunnel-supervisor.ts'
import type { TunnelUpstreams } from './upstreams/tunnel-upstreams.ts'
import type { Upstream, UpstreamFlaw, VisitorReport } from './upstreams/upstream-state.ts'

export interface SupervisedTunnelOptions
  extends Pick<TunnelSupervisorOptions, 'session' | 'conflicts' | 'random' | 'log' | 'onTried'> {
  readonly upstreams: TunnelUpstreams
  /** May route the tunnel through an inspection proxy. */
  readonly inspections: Pick<Inspections, 'through'>
  readonly surroundings: () => Surroundings
  readonly defaultPolicy: () => JsonObject
  /** Returns the public URL of a domain that has not been online yet. */
  readonly urlOf: (domain: string) => string
  readonly timings: Pick<AgentTimings, 'tunnel' | 'settleMs'>
  /** For the times in the status. */
  readonly steady: SteadyClock
  /** Called after a change of its status, with its URL when it came online. */
  readonly onChange: (tunnel: SupervisedTunnel, url: string | undefined) => void
}

/** Input of a view. */
interface ViewFacts {
  readonly stored: StoredTunnel
  readonly own: SupervisedStatus
  readonly around: Surroundings
  readonly url: string
  readonly upstream: Upstream
  readonly upstreamFlaw: UpstreamFlaw | undefined
  readonly visitors: VisitorReport | undefined
  readonly policyWarning: string | undefined
}

/**
 * A wanted tunnel: its row, its supervisor, the check of its upstream, and the report about its visitors.
 *
 * INVARIANTS
 * - Id, lock and domain never change. The only exception: a tunnel without a domain gets one from the
 *   service. Otherwise lock and row would belong to another tunnel.
 * - The tunnel has one watch on its upstream, which `close()` ends.
 */
export class SupervisedTunnel {
  /** Lock key for changes of this tunnel: its domain, or its id if it was created without a domain. */
  readonly lockKey: string
  readonly #options: SupervisedTunnelOptions
  readonly #supervisor: TunnelSupervisor
  #stored: StoredTunnel
  #unwatch: () => void
  /** Report of the current session. */
  #visitors: VisitorReport | undefined
  /** Warning of the current session about the current policy. */
  #policyWarning: string | undefined
  /** Time since which the condition lasts. */
  #conditionSince: number | undefined
  /** The latest view and its input. */
  #view: { readonly facts: ViewFacts; readonly tunnel: Tunnel } | undefined

  constructor(stored: StoredTunnel, options: SupervisedTunnelOptions) {
    const { session, timings, conflicts, random, steady, log, upstreams, onChange, onTried } =
      options
    this.#options = options
    this.#stored = stored
    this.lockKey = stored.spec.domain || stored.id
    this.#unwatch = upstreams.watch(stored.spec)
    this.#supervisor = new TunnelSupervisor({
      session,
      wanted: () => this.#wanted(),
      timings: timings.tunnel,
      conflicts,
      clock: steady,
      log: log.child({ tunnel: stored.id, domain: stored.spec.domain }),
      onChange: () => onChange(this, this.isOnline ? this.url : undefined),
      onTried,
      ...(random && { random }),
    })
  }

  get stored(): StoredTunnel {
    return this.#stored
  }

  get spec(): TunnelSpec {
    return this.#stored.spec
  }

  get isOnline(): boolean {
    return this.#supervisor.status.state === 'online'
  }

  /** Whether it is online in its latest version. */
  get isInForce(): boolean {
    return this.isOnline && this.#supervisor.status.problem === undefined
  }

  /** Public URL from the service, once the tunnel was open. */
  get url(): string | undefined {
    return this.#supervisor.url
  }

  /** URL that the SDK dials for the open endpoint. */
  get dialUrl(): string | undefined {
    return this.#supervisor.dialUrl
  }

  /** See `TunnelSupervisor`. */
  isConcludedOn(session: Session): boolean {
    return this.#supervisor.isConcludedOn(session)
  }

  start(): void {
    this.#supervisor.start()
  }

  /**
   * Replaces the row with one that has the domain from the service. Opens the endpoint again by this name,
   * because the service may allow fewer names on request than it chooses. The address of a TCP tunnel is
   * always allowed.
   */
  keepAs(stored: StoredTunnel): void {
    this.#stored = stored
    if (stored.spec.protocol !== 'tcp') this.reopen()
  }

  /** Replaces the row and the open endpoint. */
  become(stored: StoredTunnel): void {
    // The same endpoint stays open if only fields of the device change. The service then warns no second time.
    if (!hasSamePolicy(stored.spec, this.spec)) this.#policyWarning = undefined
    this.#stored = stored
    // The open endpoint uses the same relay until the new one is open, so the relay must not close in
    // between.
    const unwatchBefore = this.#unwatch
    this.#unwatch = this.#options.upstreams.watch(stored.spec)
    unwatchBefore()
    this.#supervisor.reopen()
  }

  /** Opens the endpoint again at once. The open one stays until then. */
  reopen(): void {
    this.#policyWarning = undefined
    this.#supervisor.reopen()
  }

  /** Handles another request for the same tunnel: retries at once if it waits or was refused. */
  insist(): void {
    if (!this.isInForce) this.reopen()
  }

  /** `isAnother`: the session is a new one, so what the last session reported is outdated. */
  linkChanged(isAnother: boolean): void {
    if (isAnother) {
      this.#visitors = undefined
      this.#policyWarning = undefined
    }
    this.#supervisor.linkChanged()
  }

  /** `warning`: why newer checks of the service refuse the policy, which runs as before. */
  policyWarned(warning: string): void {
    if (warning === this.#policyWarning) return
    this.#policyWarning = warning
    const { log } = this.#options
    log.warn({ domain: this.spec.domain, warning }, 'the gateway warns about a stored policy')
  }

  visitorsGot(report: VisitorReport): void {
    this.#options.upstreams.told(this.spec, report, this.#visitors)
    this.#visitors = report
  }

  /** Waits for the outcome. Returns the problem if the service refused the tunnel. */
  async settle(): Promise<Problem | undefined> {
    // Still opening at the time limit is also an outcome: the tunnel is pending.
    const { settleMs } = this.#options.timings
    const { domain } = this.spec
    await withDeadline(this.#supervisor.settled(), settleMs, 'opening').catch(() => {})
    // It got its domain and is being opened by this name.
    if (this.spec.domain !== domain) return this.settle()
    const { problem } = this.#supervisor.status
    return problem?.permanent || problem?.reason === 'conflict' ? problem : undefined
  }

  /** Closes the endpoint at the service and stops checking the upstream. */
  close(): Promise<void> {
    this.#unwatch()
    return this.#supervisor.stop()
  }

  /** Stops opening endpoints. The open endpoint stays at the service. */
  stopKeepingEndpoint(): Promise<void> {
    return this.#supervisor.stopKeepingEndpoint()
  }

  /**
   * Returns the same object until its content changes, because there may be a thousand tunnels and many
   * readers.
   */
  view(around = this.#options.surroundings()): Tunnel {
    const { urlOf, upstreams } = this.#options
    const { spec } = this.#stored
    const facts: ViewFacts = {
      stored: this.#stored,
      own: this.#supervisor.status,
      around,
      url: this.url ?? expectedUrl(spec, urlOf),
      upstream: upstreams.stateOf(spec),
      upstreamFlaw: upstreams.flawOf(spec),
      visitors: this.#visitors,
      policyWarning: this.#policyWarning,
    }
    if (!this.#view || !isSame(this.#view.facts, facts)) {
      const before = this.#view?.tunnel.status.condition
      const tunnel = viewOf(facts, upstreams)
      const { condition } = tunnel.status
      if (condition !== before) {
        this.#conditionSince = before ? this.#options.steady.now() : facts.own.since
      }
      const since = (this.#conditionSince ?? facts.own.since) + facts.around.movedMs
      const status = { ...tunnel.status, conditionSince: since }
      this.#view = { facts, tunnel: { ...tunnel, status } }
    }
    return this.#view.tunnel
  }

  async #wanted(): Promise<WantedEndpoint> {
    const { upstreams, inspections, defaultPolicy } = this.#options
    const { id, spec } = this.#stored
    const endpoint = await upstreams.endpointOf(spec)
    // The inspection proxy supports only HTTP/1.1 without a PROXY header.
    const isPlain = !endpoint.http2 && !spec.upstream?.proxy_protocol
    return {
      protocol: spec.protocol,
      domain: spec.domain,
      ...endpoint,
      dialUrl: isPlain ? await inspections.through(id, endpoint.dialUrl) : endpoint.dialUrl,
      forwardsTo: spec.forwardsTo,
      ...(spec.isPooled && { isPooled: true }),
      policy: JSON.stringify(policyOf(spec, defaultPolicy())),
      proxyProtocol: spec.upstream?.proxy_protocol,
    }
  }
}

/** A tunnel, without the time since which its condition lasts. */
type ViewedTunnel = Omit<Tunnel, 'status'> & {
  readonly status: Omit<Tunnel['status'], 'conditionSince'>
}

function viewOf(facts: ViewFacts, upstreams: TunnelUpstreams): ViewedTunnel {
  const { stored, around, url, upstream, upstreamFlaw, visitors, policyWarning } = facts
  const { link, movedMs, isHosted } = around
  const upstreamSettings = upstreams.settingsOf(stored.spec)
  const own = shownStatus(withMovedTimes(facts.own, movedMs), link, upstream)
  const status = { ...(isHosted ? hostedProblem(own) : own), visitors, upstreamFlaw }
  const shown = withUpstreamTrouble(status, stored.spec.forwardsTo, upstreamSettings)
  return {
    ...stored,
    url,
    status: {
      ...withSurroundings({ ...shown, upstreamSettings }, around),
      policyWarning,
    },
  }
}

function isSame(before: ViewFacts, now: ViewFacts): boolean {
  return (
    before.stored === now.stored &&
    before.own === now.own &&
    before.around === now.around &&
    before.url === now.url &&
    before.upstream === now.upstream &&
    before.upstreamFlaw === now.upstreamFlaw &&
    before.visitors === now.visitors &&
    before.policyWarning === now.policyWarning
  )
}

/**
 * Returns the only tunnel whose domain begins with a label. TCP tunnels have addresses of the gateway. Throws
 * AppError `tunnel-not-found` or `ambiguous-tunnel`.
 */
export function findByLabel(tunnels: readonly SupervisedTunnel[], label: string): SupervisedTunnel {
  const wanted = label.toLowerCase()
  const named = tunnels.filter(
    ({ spec }) => spec.protocol !== 'tcp' && spec.domain.split('.')[0] === wanted,
  )
  const [first, second] = named
  if (!first) throw new AppError('tunnel-not-found', `No tunnel matches ${label}.`)
  if (!second) return first
  const domains = named.map(({ spec }) => spec.domain)
  throw new AppError('ambiguous-tunnel', `${label} matches several tunnels: ${domains.join(', ')}.`)
}

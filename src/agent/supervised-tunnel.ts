import { AppError } from '../base/app-error.ts'
import { withDeadline } from '../base/deadline.ts'
import type { Session } from './connector.ts'
import { type SteadyClock, withMovedTimes } from './device/steady-clock.ts'
import type { Inspections } from './inspection/inspections.ts'
import { policyOf } from './policies/policy-check.ts'
import type { Problem } from './problem.ts'
import { type Surroundings, shownStatus, withUpstreamTrouble } from './shown-status.ts'
import type { AgentTimings } from './timings.ts'
import { expectedUrl, type JsonObject, type Tunnel, type TunnelSpec } from './tunnel.ts'
import type { StoredTunnel } from './tunnel-store.ts'
import {
  type SupervisedStatus,
  TunnelSupervisor,
  type TunnelSupervisorOptions,
  type WantedEndpoint,
} from './tunnel-supervisor.ts'
import type { TunnelUpstreams } from './upstreams/tunnel-upstreams.ts'
import type { Upstream, VisitorReport } from './upstreams/upstream-state.ts'

export interface SupervisedTunnelOptions
  extends Pick<TunnelSupervisorOptions, 'session' | 'conflicts' | 'random' | 'log'> {
  readonly upstreams: TunnelUpstreams
  /** May lead it by way of somebody who looks on. */
  readonly inspections: Pick<Inspections, 'through'>
  readonly surroundings: () => Surroundings
  readonly defaultPolicy: () => JsonObject
  /** Public URL of a domain that has not been online yet. */
  readonly urlOf: (domain: string) => string
  readonly timings: Pick<AgentTimings, 'tunnel' | 'settleMs'>
  /** For the instants of a status. */
  readonly steady: SteadyClock
  /** Called after its status changed; with its URL when it came online. */
  readonly onChange: (tunnel: SupervisedTunnel, url: string | undefined) => void
}

/** All that a view is made of. */
interface ViewFacts {
  readonly stored: StoredTunnel
  readonly own: SupervisedStatus
  readonly around: Surroundings
  readonly url: string
  readonly upstream: Upstream
  readonly visitors: VisitorReport | undefined
}

/**
 * One tunnel that is wanted: its row, its supervisor, the watch on its upstream, and what visitors
 * got of it.
 *
 * INVARIANTS
 * - Id, lock and domain never change, but for the address that the service gives to a TCP tunnel that
 *   has none. The lock and the row would belong to another tunnel otherwise.
 * - It has one watch on its upstream, which `close()` ends.
 */
export class SupervisedTunnel {
  /** Whose changes wait for each other: its domain, or its id where it had none when it came. */
  readonly lockKey: string
  readonly #options: SupervisedTunnelOptions
  readonly #supervisor: TunnelSupervisor
  #stored: StoredTunnel
  #unwatch: () => void
  /** Of the present session. */
  #visitors: VisitorReport | undefined
  /** The latest, with what it was made of. */
  #view: { readonly facts: ViewFacts; readonly tunnel: Tunnel } | undefined

  constructor(stored: StoredTunnel, options: SupervisedTunnelOptions) {
    const { session, timings, conflicts, random, steady, log, upstreams, onChange } = options
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

  /** Online as it is wanted now, and not as it was before. */
  get isInForce(): boolean {
    return this.isOnline && this.#supervisor.status.problem === undefined
  }

  /** The public URL that the service gave, once it was open. */
  get url(): string | undefined {
    return this.#supervisor.url
  }

  /** What the SDK dials for the endpoint that is open. */
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

  /** Its row says something else of what is open: nothing is opened again. */
  keepAs(stored: StoredTunnel): void {
    this.#stored = stored
  }

  /** Opens something else in the place of what is open. */
  become(stored: StoredTunnel): void {
    this.#stored = stored
    // What is open dials the same relay until the other one is: it must not close in between.
    const unwatchBefore = this.#unwatch
    this.#unwatch = this.#options.upstreams.watch(stored.spec)
    unwatchBefore()
    this.reopen()
  }

  /** Opens it anew, at once, beside what is open. */
  reopen(): void {
    this.#supervisor.reopen()
  }

  /** The same is asked for again: what waits, or was refused, is tried at once. */
  insist(): void {
    if (!this.isInForce) this.reopen()
  }

  /** `isAnother`: what visitors got by one session is no news of the next. */
  linkChanged(isAnother: boolean): void {
    if (isAnother) this.#visitors = undefined
    this.#supervisor.linkChanged()
  }

  visitorsGot(report: VisitorReport): void {
    this.#options.upstreams.told(this.spec, report, this.#visitors)
    this.#visitors = report
  }

  /** Waits until the outcome is known; the problem when the service said no. */
  async settle(): Promise<Problem | undefined> {
    // Still opening at the deadline is an outcome, too: the tunnel is pending.
    const { settleMs } = this.#options.timings
    await withDeadline(this.#supervisor.settled(), settleMs, 'opening').catch(() => {})
    const { problem } = this.#supervisor.status
    return problem?.permanent || problem?.reason === 'conflict' ? problem : undefined
  }

  /** Closes the endpoint at the service, and looks after its upstream no more. */
  close(): Promise<void> {
    this.#unwatch()
    return this.#supervisor.stop()
  }

  /** Opens nothing any more, with the endpoint left to the service. */
  leave(): Promise<void> {
    return this.#supervisor.leave()
  }

  /** The same object while nothing of it has changed: there may be a thousand, and many who look. */
  view(around = this.#options.surroundings()): Tunnel {
    const { urlOf, upstreams } = this.#options
    const { spec } = this.#stored
    const facts: ViewFacts = {
      stored: this.#stored,
      own: this.#supervisor.status,
      around,
      url: this.url ?? expectedUrl(spec, urlOf),
      upstream: upstreams.stateOf(spec),
      visitors: this.#visitors,
    }
    if (!this.#view || !isSame(this.#view.facts, facts)) {
      this.#view = { facts, tunnel: viewOf(facts, upstreams) }
    }
    return this.#view.tunnel
  }

  async #wanted(): Promise<WantedEndpoint> {
    const { upstreams, inspections, defaultPolicy } = this.#options
    const { id, spec } = this.#stored
    const endpoint = await upstreams.endpointOf(spec)
    // Who looks on speaks HTTP/1.1 alone, without a PROXY header before it.
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

function viewOf(facts: ViewFacts, upstreams: TunnelUpstreams): Tunnel {
  const { stored, around, url, upstream, visitors } = facts
  const { link, reachable, movedMs } = around
  const upstreamSettings = upstreams.settingsOf(stored.spec)
  const status = shownStatus(withMovedTimes(facts.own, movedMs), link, upstream)
  const { forwardsTo } = stored.spec
  const shown = withUpstreamTrouble(status, forwardsTo, upstreamSettings, visitors?.busy)
  return { ...stored, url, status: { ...shown, reachable, visitors, upstreamSettings } }
}

function isSame(before: ViewFacts, now: ViewFacts): boolean {
  return (
    before.stored === now.stored &&
    before.own === now.own &&
    before.around === now.around &&
    before.url === now.url &&
    before.upstream === now.upstream &&
    before.visitors === now.visitors
  )
}

/** The one HTTP tunnel whose domain begins with a label. Throws AppError `tunnel-not-found` or `ambiguous-tunnel`. */
export function findByLabel(tunnels: readonly SupervisedTunnel[], label: string): SupervisedTunnel {
  const wanted = label.toLowerCase()
  const named = tunnels.filter(
    ({ spec }) => spec.protocol === 'http' && spec.domain.split('.')[0] === wanted,
  )
  const [first, second] = named
  if (!first) throw new AppError('tunnel-not-found', `No tunnel matches ${label}.`)
  if (!second) return first
  const domains = named.map(({ spec }) => spec.domain)
  throw new AppError('ambiguous-tunnel', `${label} matches several tunnels: ${domains.join(', ')}.`)
}

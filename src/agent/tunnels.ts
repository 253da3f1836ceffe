import { isDeepStrictEqual } from 'node:util'
import { AppError } from '../base/app-error.ts'
import type { Clock } from '../base/clock.ts'
import { withDeadline } from '../base/deadline.ts'
import { KeyedLock } from '../base/keyed-lock.ts'
import type { LinkStatus } from './agent-status.ts'
import type { Session } from './connector.ts'
import { type SteadyClock, withShownTimes } from './device/steady-clock.ts'
import type { PolicyCheck } from './policies/policy-check.ts'
import { policyOf, requirePolicy } from './policies/tunnel-policy.ts'
import type { Reachable } from './probes/reach.ts'
import type { Problem } from './problem.ts'
import { refusalAnswer } from './service-error.ts'
import { shownStatus, withUpstreamTrouble } from './shown-status.ts'
import type { AgentTimings } from './timings.ts'
import {
  addressIn,
  expectedUrl,
  type JsonObject,
  newTunnelId,
  type Tunnel,
  type TunnelSpec,
} from './tunnel.ts'
import type { DamagedRow, StoredTunnel, TunnelStore } from './tunnel-store.ts'
import { TunnelSupervisor, type WantedEndpoint } from './tunnel-supervisor.ts'
import { TunnelUpstreams, type TunnelUpstreamsOptions } from './upstreams/tunnel-upstreams.ts'
import { timeoutNotice, type VisitorReport } from './upstreams/visitor-report.ts'

export interface TunnelsOptions extends TunnelUpstreamsOptions {
  readonly store: TunnelStore
  readonly session: () => Session | undefined
  readonly linkStatus: () => LinkStatus
  /** What the device's own probe has shown. */
  readonly reachable: () => Reachable
  readonly defaultPolicy: () => JsonObject
  readonly checkPolicy: PolicyCheck
  /** The agent's own domain, which no tunnel can have. */
  readonly ownDomain: string | undefined
  /** Public URL of a domain that has not been online yet. */
  readonly urlOf: (domain: string) => string
  readonly maxTunnels: number
  readonly timings: Pick<AgentTimings, 'tunnel' | 'settleMs'>
  readonly random?: () => number
  readonly clock: Clock
  /** For the instants of a status. */
  readonly steady: SteadyClock
  /** Called after a tunnel changed; with its URL when it came online. */
  readonly onChange: (url?: string) => void
}

/** The answer to a create or replace; `pending`: stored, and opened as soon as that is possible. */
export interface AcceptedTunnel {
  readonly tunnel: Tunnel
  readonly pending: boolean
}

interface Entry {
  stored: StoredTunnel
  /** Whose changes wait for each other: its domain, or its id where it had none when it came. */
  readonly lockKey: string
  readonly supervisor: TunnelSupervisor
  unwatch: () => void
  /** Of the present session. */
  visitors: VisitorReport | undefined
}

/**
 * What is wanted (rows) and what is true (supervisors) of all tunnels, and the verbs on them.
 *
 * INVARIANTS
 * - A change is on disk before the service hears of it: a row is inserted or updated before its
 *   endpoint is opened, a removal is marked before it is closed. A new row is unwanted until its
 *   tunnel is acknowledged, and a changed one beside what it was before.
 * - The verbs hold the lock of their domain, so whatever is looked up before it is looked up again
 *   behind it. Between `#requireFree` and `#add` nothing waits: the count holds across domains, too.
 * - Id, lock and domain of an entry never change, but for the address that the service gives to a TCP
 *   tunnel that has none; `replace` is called with the domain of its spec. The lock and the row would
 *   belong to another tunnel otherwise.
 * - Each entry has one supervisor and one watch on its upstream, and whoever takes the entry away
 *   ends both.
 * - After `stop()` and `leave()` no endpoint is opened: creates are refused, what has closed stays closed.
 */
export class Tunnels {
  readonly #options: TunnelsOptions
  readonly #upstreams: TunnelUpstreams
  readonly #entries = new Map<string, Entry>()
  /** One change at a time per domain. */
  readonly #lock = new KeyedLock()
  /** Told in the status until a tunnel is created on the same domain, whose row takes the place. */
  #damaged: readonly DamagedRow[] = []
  #isStopping = false
  /** The session that the reports of the entries came by. */
  #toldBy: Session | undefined

  constructor(options: TunnelsOptions) {
    this.#options = options
    this.#upstreams = new TunnelUpstreams(options)
  }

  /** Rows that could not be read. */
  get damaged(): readonly DamagedRow[] {
    return this.#damaged
  }

  /** Starts to open every stored tunnel, each on its own. */
  restore(): void {
    const { store, log } = this.#options
    try {
      store.deleteRemoved()
    } catch (error) {
      log.warn({ err: error }, 'removed tunnels stay in the database for now')
    }
    const { tunnels, damaged } = store.load()
    this.#damaged = damaged
    for (const { id, problem } of damaged) log.error({ id, problem }, 'a stored tunnel is damaged')
    for (const stored of tunnels) this.#add(stored)
    log.info({ tunnels: tunnels.length, damaged: damaged.length }, 'tunnels restored')
  }

  /** Closes every endpoint; rows stay. */
  async stop(): Promise<void> {
    const supervisors = this.#end()
    for (const { unwatch } of this.#entries.values()) unwatch()
    await Promise.all(supervisors.map((supervisor) => supervisor.stop()))
  }

  /** Opens nothing any more, with every endpoint left to the service; `stop()` ends the rest. */
  async leave(): Promise<void> {
    await Promise.all(this.#end().map((supervisor) => supervisor.leave()))
  }

  #end(): TunnelSupervisor[] {
    this.#isStopping = true
    return [...this.#entries.values()].map(({ supervisor }) => supervisor)
  }

  list(): Tunnel[] {
    return [...this.#entries.values()].map((entry) => this.#view(entry))
  }

  find(urlPart: string): Tunnel {
    return this.#view(this.#findEntry(urlPart))
  }

  create(spec: TunnelSpec): Promise<AcceptedTunnel> {
    const id = newTunnelId()
    return this.#lock.run(spec.domain || id, () => this.#create(spec, id))
  }

  replace(
    domain: string,
    spec: TunnelSpec,
  ): Promise<AcceptedTunnel & { readonly created: boolean }> {
    return this.#lock.run(this.#byDomain(domain)?.lockKey ?? domain, async () => {
      const entry = this.#byDomain(domain)
      if (!entry) return { ...(await this.#create(spec, newTunnelId())), created: true }
      return { ...(await this.#change(entry, spec)), created: false }
    })
  }

  async remove(urlPart: string): Promise<void> {
    const { stored, lockKey } = this.#findEntry(urlPart)
    await this.#lock.run(lockKey, async () => {
      const entry = this.#findEntry(stored.id)
      this.#options.store.markRemoved(stored.id, this.#options.clock.now())
      await this.#forget(entry, { isRemoval: true })
    })
  }

  linkChanged(): void {
    const session = this.#options.session()
    const isAnother = session !== this.#toldBy
    this.#toldBy = session
    for (const entry of this.#entries.values()) {
      // What visitors got by one session is no news of another.
      if (isAnother) entry.visitors = undefined
      entry.supervisor.linkChanged()
    }
  }

  /** What visitors of some tunnels got, as the service tells it. */
  visitorsGot(reports: ReadonlyMap<string, VisitorReport>): void {
    for (const entry of this.#entries.values()) {
      const report = reports.get(entry.stored.spec.domain)
      if (!report) continue
      this.#upstreams.told(entry.stored.spec, report, entry.visitors)
      entry.visitors = report
    }
  }

  /** Opens the tunnels without a policy of their own again, with the one that is in force now. */
  defaultPolicyChanged(): void {
    for (const { stored, supervisor } of this.#entries.values()) {
      if (stored.spec.policy === null) supervisor.reopen()
    }
  }

  async #create(spec: TunnelSpec, id: string): Promise<AcceptedTunnel> {
    const { store, clock } = this.#options
    await this.#requireAllowed(spec)
    this.#requireFree(spec.domain)
    const now = clock.now()
    const stored = { id, spec, createdAt: now, updatedAt: now }
    store.insert(stored)
    this.#damaged = this.#damaged.filter(({ domain }) => domain !== spec.domain)
    const entry = this.#add(stored)
    try {
      const refusal = await this.#settle(entry)
      if (refusal) throw refusalAnswer(refusal)
      this.#keepAddress(entry)
      store.keep(id)
    } catch (error) {
      await this.#forget(entry)
      throw error
    }
    return this.#accepted(entry)
  }

  async #change(entry: Entry, spec: TunnelSpec): Promise<AcceptedTunnel> {
    const before = entry.stored
    const isSame = isDeepStrictEqual(before.spec, spec)
    if (isSame && entry.supervisor.status.state === 'online') return this.#accepted(entry)
    await this.#requireAllowed(spec)
    const { store, clock } = this.#options
    const after = isSame ? before : { ...before, spec, updatedAt: clock.now() }
    if (!isSame) store.replace(before, after)
    this.#reopen(entry, after)
    try {
      const refusal = await this.#settle(entry)
      if (refusal) throw refusalAnswer(refusal)
      if (!isSame) store.keepReplacement(after.id)
    } catch (error) {
      if (!isSame) await this.#putBack(entry, before)
      throw error
    }
    return this.#accepted(entry)
  }

  /** What was before holds again, whatever becomes of its row: the next start puts that back, too. */
  async #putBack(entry: Entry, before: StoredTunnel): Promise<void> {
    this.#reopen(entry, before)
    try {
      this.#options.store.putBack(before)
    } catch (error) {
      const facts = { err: error, id: before.id }
      this.#options.log.warn(facts, 'a refused tunnel stays in the database for now')
    }
    await this.#settle(entry)
  }

  /** Opens something else in the place of what is open. */
  #reopen(entry: Entry, stored: StoredTunnel): void {
    entry.stored = stored
    entry.unwatch()
    entry.unwatch = this.#upstreams.watch(stored.spec)
    entry.supervisor.reopen()
  }

  /** Waits until the outcome is known; the problem when the service said no. */
  async #settle({ supervisor }: Entry): Promise<Problem | undefined> {
    // Still opening at the deadline is an outcome, too: the tunnel is pending.
    const { settleMs } = this.#options.timings
    await withDeadline(supervisor.settled(), settleMs, 'opening').catch(() => {})
    const { problem } = supervisor.status
    return problem?.permanent || problem?.reason === 'conflict' ? problem : undefined
  }

  #accepted(entry: Entry): AcceptedTunnel {
    const tunnel = this.#view(entry)
    return { tunnel, pending: tunnel.status.state !== 'online' }
  }

  #add(stored: StoredTunnel): Entry {
    const { session, timings, random, steady, log, onChange } = this.#options
    const supervisor = new TunnelSupervisor({
      session,
      wanted: () => this.#wanted(entry.stored),
      timings: timings.tunnel,
      clock: steady,
      log: log.child({ tunnel: stored.id, domain: stored.spec.domain }),
      onChange: () => {
        const url = supervisor.status.state === 'online' ? supervisor.url : undefined
        if (url !== undefined) this.#tryToKeepAddress(entry)
        onChange(url)
      },
      ...(random && { random }),
    })
    const entry: Entry = {
      stored,
      lockKey: stored.spec.domain || stored.id,
      supervisor,
      unwatch: this.#upstreams.watch(stored.spec),
      visitors: undefined,
    }
    this.#entries.set(stored.id, entry)
    supervisor.start()
    return entry
  }

  /** What the service has chosen for a TCP tunnel is its own from now on, over restarts too. */
  #keepAddress(entry: Entry): void {
    const { stored, supervisor } = entry
    const address = addressIn(supervisor.url)
    const isNew = stored.spec.domain === '' && address !== undefined && !this.#byDomain(address)
    if (!isNew) return
    const kept = { ...stored, spec: { ...stored.spec, domain: address } }
    this.#options.store.update(kept)
    entry.stored = kept
  }

  #tryToKeepAddress(entry: Entry): void {
    try {
      this.#keepAddress(entry)
    } catch (error) {
      this.#options.log.warn({ err: error, id: entry.stored.id }, 'its address could not be kept')
    }
  }

  /** Closes at the service, then forgets. The row is unwanted already, so it may go late. */
  async #forget(
    { stored, supervisor, unwatch }: Entry,
    options?: { readonly isRemoval: boolean },
  ): Promise<void> {
    const { store, log } = this.#options
    unwatch()
    await supervisor.stop()
    this.#entries.delete(stored.id)
    try {
      store.delete(stored.id, options)
    } catch (error) {
      log.warn({ err: error, id: stored.id }, 'a removed tunnel stays in the database for now')
    }
  }

  async #wanted({ spec }: StoredTunnel): Promise<WantedEndpoint> {
    return {
      protocol: spec.protocol,
      domain: spec.domain,
      dialUrl: await this.#upstreams.dialUrl(spec),
      forwardsTo: spec.forwardsTo,
      policy: JSON.stringify(policyOf(spec, this.#options.defaultPolicy())),
      metadata: timeoutNotice(this.#upstreams.settingsOf(spec).timeout),
    }
  }

  async #requireAllowed(spec: TunnelSpec): Promise<void> {
    await requirePolicy(spec, this.#options.checkPolicy)
    await this.#upstreams.requireAllowed(spec)
  }

  #requireFree(domain: string): void {
    const { ownDomain, maxTunnels } = this.#options
    if (this.#isStopping) throw new AppError('shutting-down', 'The agent is stopping.')
    if (domain === ownDomain) {
      throw new AppError('domain-taken', `${domain} is the domain of the agent itself.`)
    }
    if (this.#byDomain(domain)) {
      throw new AppError('domain-taken', `${domain} has a tunnel; delete it, or replace it by PUT.`)
    }
    if (this.#entries.size >= maxTunnels) {
      const detail = `The device holds ${maxTunnels} tunnels, as many as AGENT_MAX_TUNNELS allows.`
      throw new AppError('too-many-tunnels', detail)
    }
  }

  #findEntry(urlPart: string): Entry {
    const name = urlPart.toLowerCase()
    const exact = this.#entries.get(urlPart) ?? this.#byDomain(name)
    if (exact) return exact
    const named = [...this.#entries.values()].filter(
      ({ stored: { spec } }) => spec.protocol === 'http' && spec.domain.split('.')[0] === name,
    )
    const [first, second] = named
    if (!first) throw new AppError('tunnel-not-found', `No tunnel is called ${urlPart}.`)
    if (!second) return first
    const domains = named.map(({ stored }) => stored.spec.domain)
    throw new AppError('ambiguous-tunnel', `${urlPart} can be any of ${domains.join(', ')}.`)
  }

  #byDomain(domain: string): Entry | undefined {
    if (domain === '') return undefined
    for (const entry of this.#entries.values()) {
      if (entry.stored.spec.domain === domain) return entry
    }
    return undefined
  }

  #view({ stored, supervisor, visitors }: Entry): Tunnel {
    const { linkStatus, reachable, steady, urlOf } = this.#options
    const upstream = this.#upstreams.stateOf(stored.spec)
    const status = shownStatus(withShownTimes(supervisor.status, steady), linkStatus(), upstream)
    const upstreamSettings = this.#upstreams.settingsOf(stored.spec)
    const shown = withUpstreamTrouble(status, stored.spec.forwardsTo, upstreamSettings)
    return {
      ...stored,
      url: supervisor.url ?? expectedUrl(stored.spec, urlOf),
      status: { ...shown, reachable: reachable(), visitors, upstreamSettings },
    }
  }
}

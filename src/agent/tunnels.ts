import { isDeepStrictEqual } from 'node:util'
import { AppError } from '../base/app-error.ts'
import type { Clock } from '../base/clock.ts'
import { KeyedLock } from '../base/semaphore.ts'
import type { Session } from './connector.ts'
import type { Inspections } from './inspection/inspections.ts'
import { type PolicyCheck, requirePolicy } from './policies/policy-check.ts'
import { refusalAnswer } from './service-error.ts'
import { findByLabel, SupervisedTunnel, type SupervisedTunnelOptions } from './supervised-tunnel.ts'
import { domainIn, hasSamePolicy, newTunnelId, type Tunnel, type TunnelSpec } from './tunnel.ts'
import {
  type Precondition,
  planSet,
  requireSet,
  requireSteps,
  type SetOutcome,
  type SetRequest,
  type SetStep,
} from './tunnel-set.ts'
import type { DamagedRow, StoredTunnel, TunnelStore } from './tunnel-store.ts'
import { TunnelUpstreams, type TunnelUpstreamsOptions } from './upstreams/tunnel-upstreams.ts'
import type { VisitorReport } from './upstreams/upstream-state.ts'

export interface TunnelsOptions
  extends TunnelUpstreamsOptions,
    Omit<SupervisedTunnelOptions, 'upstreams' | 'onChange'> {
  readonly inspections: Inspections
  readonly store: TunnelStore
  readonly checkPolicy: PolicyCheck
  /** The agent's own domain, which tunnels cannot use. */
  readonly ownDomain: string | undefined
  readonly maxTunnels: number
  readonly clock: Clock
  /** Called after a change of a tunnel, with its URL when it came online. */
  readonly onChange: (url?: string) => void
}

/** Result of a create or replace. `pending`: stored, and opened as soon as possible. */
export interface AcceptedTunnel {
  readonly tunnel: Tunnel
  readonly pending: boolean
}

/**
 * All tunnels: desired state (rows), actual state (supervisors) and operations.
 *
 * INVARIANTS
 * - A change is on disk before the service gets it. A row is inserted or updated before its endpoint is
 *   opened. A removal is marked before the endpoint is closed. A new row is unwanted until its tunnel is
 *   acknowledged. A changed row is stored together with its previous version until then.
 * - Operations hold the lock of their domain. Lookups made before the lock are repeated after it. No await is
 *   between `#requireFree` and `#add`, so the count is also correct across domains.
 * - `replace` is called with the domain of its spec.
 * - Each wanted tunnel has one entry. Code that removes the entry also closes it.
 * - Before `restore()`, no tunnel can be found or changed, because a row that is not loaded yet would be
 *   overwritten.
 * - After `stop()` and `stopKeepingEndpoints()`, no endpoint is opened: creates are refused, and closed tunnels stay closed.
 */
export class Tunnels {
  readonly #options: TunnelsOptions
  readonly #upstreams: TunnelUpstreams
  /** By id. */
  readonly #entries = new Map<string, SupervisedTunnel>()
  /** One change at a time per domain. */
  readonly #lock = new KeyedLock()
  /** Shown in the status until a new tunnel with the same domain replaces the row. */
  #damaged: readonly DamagedRow[] = []
  #isRestored = false
  #isStopping = false
  /** Session from which the reports of the entries came. */
  #toldBy: Session | undefined

  constructor(options: TunnelsOptions) {
    this.#options = options
    this.#upstreams = new TunnelUpstreams(options)
  }

  get damaged(): readonly DamagedRow[] {
    return this.#damaged
  }

  /** Throws AppError `starting` until `restore()` has loaded the stored tunnels. */
  requireRestored(): void {
    const detail = 'The agent is still loading its tunnels. Try again in a second.'
    if (!this.#isRestored) throw new AppError('starting', detail, { retryAfterS: 1 })
  }

  /** Starts to open all stored tunnels, independently of each other. */
  restore(): void {
    const { store, log } = this.#options
    const { tunnels, damaged } = store.load()
    this.#damaged = damaged
    for (const { id, problem } of damaged) log.error({ id, problem }, 'a stored tunnel is damaged')
    for (const stored of tunnels) this.#add(stored)
    this.#isRestored = true
    log.info({ tunnels: tunnels.length, damaged: damaged.length }, 'tunnels restored')
  }

  /** Deletes the rows that an earlier process marked as removed. Call it before this process marks any. */
  deleteRemoved(): void {
    this.#options.store.deleteRemoved(this.#options.log)
  }

  /** Closes all endpoints. Rows stay. */
  async stop(): Promise<void> {
    await Promise.all(this.#end().map((entry) => entry.close()))
  }

  /** Stops opening endpoints. Open ones stay at the service. `stop()` ends the rest. */
  async stopKeepingEndpoints(): Promise<void> {
    await Promise.all(this.#end().map((entry) => entry.stopKeepingEndpoint()))
  }

  #end(): SupervisedTunnel[] {
    this.#isStopping = true
    return [...this.#entries.values()]
  }

  list(): Tunnel[] {
    const around = this.#options.surroundings()
    return Array.from(this.#entries.values(), (entry) => entry.view(around))
  }

  find(urlPart: string): Tunnel {
    return this.#findEntry(urlPart).view()
  }

  /** Returns the supervised tunnel, for inspections that change its route. */
  supervised(id: string): SupervisedTunnel | undefined {
    return this.#entries.get(id)
  }

  create(spec: TunnelSpec, when?: Precondition<readonly StoredTunnel[]>): Promise<AcceptedTunnel> {
    const id = newTunnelId()
    return this.#lock.run(spec.domain || id, () =>
      this.#create(spec, id, () => when?.(this.#rows())),
    )
  }

  async replace(
    domain: string,
    spec: TunnelSpec,
    when?: Precondition<StoredTunnel | undefined>,
  ): Promise<AcceptedTunnel & { readonly created: boolean }> {
    for (;;) {
      const key = this.#lockKeyOf(domain)
      const done = await this.#lock.run(key, async () => {
        // A tunnel got this name in the meantime, or was deleted: its changes use another lock.
        if (this.#lockKeyOf(domain) !== key) return undefined
        const entry = this.#byDomain(domain)
        const check = () => when?.(entry?.stored)
        if (!entry) return { ...(await this.#create(spec, newTunnelId(), check)), created: true }
        return { ...(await this.#change(entry, spec, check)), created: false }
      })
      if (done) return done
    }
  }

  async remove(urlPart: string, when?: Precondition<StoredTunnel>): Promise<void> {
    const { stored, lockKey } = this.#findEntry(urlPart)
    await this.#lock.run(lockKey, async () => {
      const entry = this.#findEntry(stored.id)
      when?.(entry.stored)
      this.#options.store.markRemoved(stored.id, this.#options.clock.now())
      await this.#forget(entry, { isRemoval: true })
    })
  }

  /**
   * Replaces all tunnels in one write, then opens and closes endpoints. Resolves when the outcome of each
   * tunnel is known.
   *
   * If the device refuses one tunnel, nothing is changed. A tunnel that the service refuses stays wanted: its
   * problem is shown, and it is retried.
   */
  async replaceAll(wanted: readonly TunnelSpec[], request: SetRequest = {}): Promise<SetOutcome[]> {
    const { isDryRun = false, when, onPlan } = request
    const plan = () => planSet(wanted, this.#rows(), this.#options.clock.now())
    return this.#lock.runAlone(async () => {
      this.#requireRunning()
      requireSet(wanted, this.#options)
      await requireSteps(plan(), (spec, before) => this.#requireAllowed(spec, before))
      this.#requireRunning()
      when?.(this.#rows())
      // Plans again, because the service may have chosen a name in the meantime.
      const steps = plan()
      if (!isDryRun) {
        onPlan?.(steps)
        await this.#apply(steps)
      }
      return steps.map((step) => this.#outcome(step))
    })
  }

  linkChanged(): void {
    const session = this.#options.session()
    const isAnother = session !== this.#toldBy
    this.#toldBy = session
    for (const entry of this.#entries.values()) entry.linkChanged(isAnother)
  }

  /** Whether each tunnel is open on a session, or was refused there. */
  areConcludedOn(session: Session): boolean {
    for (const entry of this.#entries.values()) if (!entry.isConcludedOn(session)) return false
    return true
  }

  /** Updates tunnels from the service's reports about visitors. */
  visitorsGot(reports: ReadonlyMap<string, VisitorReport>): void {
    for (const entry of this.#entries.values()) {
      const report = reports.get(entry.spec.domain)
      if (report) entry.visitorsGot(report)
    }
  }

  /** Keeps the service's warnings about policies, by domain. */
  policiesWarned(warnings: ReadonlyMap<string, string>): void {
    for (const entry of this.#entries.values()) {
      const warning = warnings.get(entry.spec.domain)
      if (warning !== undefined) entry.policyWarned(warning)
    }
  }

  /** Reopens the tunnels without their own policy, with the new default policy. */
  defaultPolicyChanged(): void {
    for (const entry of this.#entries.values()) {
      if (entry.spec.policy === null) entry.reopen()
    }
  }

  async #apply(steps: readonly SetStep[]): Promise<void> {
    const rows = (meant: SetStep['action']) =>
      steps.flatMap(({ action, after }) => (after && action === meant ? [after] : []))
    const removed = steps.flatMap(({ before, after }) => (before && !after ? [before.id] : []))
    const change = { created: rows('create'), replaced: rows('replace'), removed }
    if (steps.some(({ action }) => action !== 'keep')) this.#options.store.changeSet(change)
    const domains = new Set(change.created.map(({ spec }) => spec.domain))
    this.#damaged = this.#damaged.filter(({ domain }) => !domains.has(domain))
    const closing = removed.map(async (id) => {
      await this.#entries.get(id)?.close()
      this.#drop(id)
    })
    for (const stored of change.created) this.#add(stored)
    for (const stored of change.replaced) this.#entries.get(stored.id)?.become(stored)
    for (const { id } of rows('keep')) this.#entries.get(id)?.insist()
    const staying = steps.flatMap(({ after }) => this.#entries.get(after?.id ?? '') ?? [])
    await Promise.all([...closing, ...staying.map((entry) => entry.settle())])
  }

  #outcome(step: SetStep): SetOutcome {
    const entry = this.#entries.get((step.after ?? step.before)?.id ?? '')
    return { step, tunnel: entry?.view(), isInForce: entry?.isInForce ?? false }
  }

  async #create(spec: TunnelSpec, id: string, check: () => void): Promise<AcceptedTunnel> {
    const { store, clock } = this.#options
    this.#requireRunning()
    await this.#requireAllowed(spec)
    this.#requireFree(spec.domain)
    check()
    const now = clock.now()
    const stored = { id, spec, createdAt: now, updatedAt: now }
    store.insert(stored)
    this.#damaged = this.#damaged.filter(({ domain }) => domain !== spec.domain)
    const entry = this.#add(stored)
    try {
      const refusal = await entry.settle()
      if (refusal) throw refusalAnswer(refusal)
      this.#keepDomain(entry)
      store.keep(id)
    } catch (error) {
      await this.#forget(entry)
      throw error
    }
    return accepted(entry)
  }

  async #change(
    entry: SupervisedTunnel,
    spec: TunnelSpec,
    check: () => void,
  ): Promise<AcceptedTunnel> {
    const before = entry.stored
    const isSame = isDeepStrictEqual(before.spec, spec)
    const isThere = isSame && entry.isInForce
    if (!isThere) await this.#requireAllowed(spec, before.spec)
    check()
    if (isThere) return accepted(entry)
    const { store, clock } = this.#options
    const after = isSame ? before : { ...before, spec, updatedAt: clock.now() }
    if (!isSame) store.replace(before, after)
    entry.become(after)
    try {
      const refusal = await entry.settle()
      if (refusal) throw refusalAnswer(refusal)
      if (!isSame) store.keepReplacement(after.id)
    } catch (error) {
      if (!isSame) await this.#putBack(entry, before)
      throw error
    }
    return accepted(entry)
  }

  /** Restores the previous version, even if its row cannot be written: the next start restores it then. */
  async #putBack(entry: SupervisedTunnel, before: StoredTunnel): Promise<void> {
    entry.become(before)
    try {
      this.#options.store.putBack(before)
    } catch (error) {
      const facts = { err: error, id: before.id }
      this.#options.log.warn(
        facts,
        'cannot restore the row of a tunnel yet, the next start restores it',
      )
    }
    await entry.settle()
  }

  #add(stored: StoredTunnel): SupervisedTunnel {
    const entry = new SupervisedTunnel(stored, {
      ...this.#options,
      upstreams: this.#upstreams,
      onChange: (changed, url) => {
        if (url !== undefined) this.#tryToKeepDomain(changed)
        this.#options.onChange(url)
      },
    })
    this.#entries.set(stored.id, entry)
    entry.start()
    return entry
  }

  /**
   * Stores the name or address that the service has chosen for a tunnel, so that it stays the same after
   * restarts.
   */
  #keepDomain(entry: SupervisedTunnel): void {
    const { stored, spec } = entry
    const domain = domainIn(entry.url)
    const isNew = spec.domain === '' && domain !== undefined && !this.#byDomain(domain)
    if (!isNew) return
    const kept = { ...stored, spec: { ...spec, domain } }
    this.#options.store.update(kept)
    entry.keepAs(kept)
  }

  #tryToKeepDomain(entry: SupervisedTunnel): void {
    try {
      this.#keepDomain(entry)
    } catch (error) {
      this.#options.log.warn(
        { err: error, id: entry.stored.id },
        'cannot save the public name of the tunnel',
      )
    }
  }

  /**
   * Closes the endpoint at the service, then deletes the tunnel. The row is already unwanted, so it may be
   * deleted later.
   */
  async #forget(entry: SupervisedTunnel, options?: { readonly isRemoval: boolean }): Promise<void> {
    const { store, log } = this.#options
    const { id } = entry.stored
    await entry.close()
    this.#drop(id)
    try {
      store.delete(id, options)
    } catch (error) {
      log.warn({ err: error, id }, 'cannot delete a removed tunnel from the database yet')
    }
  }

  /** Removes the closed tunnel from the list. */
  #drop(id: string): void {
    this.#options.inspections.forget(id)
    this.#entries.delete(id)
    this.#options.onChange(undefined)
  }

  /** A stored policy that newer checks refuse runs on, so it does not prevent other changes. */
  async #requireAllowed(spec: TunnelSpec, before?: TunnelSpec): Promise<void> {
    if (!hasSamePolicy(spec, before)) await requirePolicy(spec, this.#options.checkPolicy)
    await this.#upstreams.requireAllowed(spec)
  }

  #requireFree(domain: string): void {
    const { ownDomain, maxTunnels } = this.#options
    this.#requireRunning()
    if (domain === ownDomain) {
      throw new AppError('domain-taken', `${domain} is reserved for the agent API (AGENT_DOMAIN).`)
    }
    if (this.#byDomain(domain)) {
      throw new AppError(
        'domain-taken',
        `${domain} already has a tunnel. Change it with device-agent tunnels set, on the device page, or with PUT.`,
      )
    }
    if (this.#entries.size >= maxTunnels) {
      const detail = `The device has ${maxTunnels} tunnels, the limit set by AGENT_MAX_TUNNELS.`
      throw new AppError('too-many-tunnels', detail)
    }
  }

  #requireRunning(): void {
    if (this.#isStopping) throw new AppError('shutting-down', 'The agent is stopping.')
    this.requireRestored()
  }

  #rows(): StoredTunnel[] {
    return [...this.#entries.values()].map(({ stored }) => stored)
  }

  #findEntry(urlPart: string): SupervisedTunnel {
    this.requireRestored()
    const exact = this.#entries.get(urlPart) ?? this.#byDomain(urlPart.toLowerCase())
    return exact ?? findByLabel([...this.#entries.values()], urlPart)
  }

  #lockKeyOf(domain: string): string {
    return this.#byDomain(domain)?.lockKey ?? domain
  }

  #byDomain(domain: string): SupervisedTunnel | undefined {
    if (domain === '') return undefined
    return [...this.#entries.values()].find(({ spec }) => spec.domain === domain)
  }
}

function accepted(entry: SupervisedTunnel): AcceptedTunnel {
  return { tunnel: entry.view(), pending: !entry.isInForce }
}

import type { OwnUpdate, UpdateView } from '../../api/update-view.ts'
import type { Clock } from '../../base/clock.ts'
import { createDeferred } from '../../base/deferred.ts'
import type { Logger } from '../../base/logger.ts'
import { describeUpdate } from './trial-state.ts'
import type { UpdateHome } from './update-home.ts'

/** For a judge that is gone: then only a restart undoes the trial. */
const GRACE_MS = 15_000

export interface OwnTrialOptions {
  readonly home: UpdateHome
  /** Root folder of the running program. */
  readonly programRoot: string
  /** Milliseconds of the machine's monotonic clock, as the trial has them. */
  readonly now: () => number
  readonly clock: Clock
  readonly log: Logger
}

/** The trial of the running program, and other updates. */
export class OwnTrial implements OwnUpdate {
  readonly #home: UpdateHome
  readonly #isInstalled: boolean
  readonly #now: () => number
  readonly #clock: Clock
  readonly #log: Logger
  readonly #stopped = new AbortController()
  readonly #overdue = createDeferred<string>()
  #isOn: boolean

  constructor({ home, programRoot, now, clock, log }: OwnTrialOptions) {
    this.#home = home
    this.#now = now
    this.#clock = clock
    this.#log = log
    this.#isOn = home.isTrialOf(programRoot)
    this.#isInstalled = home.serves(programRoot)
    const report = this.report()
    if (this.#isOn || report?.state === 'rolled-back') log.warn(report?.sentence)
  }

  /** Resolves with a reason when the trial was not judged in time. */
  get overdue(): Promise<string> {
    return this.#overdue.promise
  }

  start(): void {
    const state = this.#home.state()
    if (!this.#isOn || state?.state !== 'trying') return
    const leftMs = Math.max(0, state.untilMs - this.#now())
    this.#clock.sleep(leftMs + GRACE_MS, this.#stopped.signal).then(
      () => {
        if (this.isOnTrial()) this.#overdue.resolve('the trial of this version has no result')
        else this.#log.info(this.report()?.sentence)
      },
      () => {},
    )
  }

  stop(): void {
    this.#stopped.abort()
  }

  report(): UpdateView | undefined {
    const state = this.#isInstalled ? this.#home.state() : undefined
    if (!state) return undefined
    const reason = state.state === 'rolled-back' ? state.reason : null
    return {
      state: state.state,
      from: state.from,
      to: state.to,
      reason,
      sentence: describeUpdate(state),
    }
  }

  /** Whether a change could still be rolled back. */
  isOnTrial(): boolean {
    if (!this.#isOn || this.#home.state()?.state !== 'confirmed') return this.#isOn
    // A change is acknowledged only when no power cut can bring the trial back.
    this.#home.sync()
    this.#isOn = false
    return false
  }
}

import type { Clock } from '../../base/clock.ts'
import type { FolderLock } from '../../store/data-folder.ts'
import type { DataCopy } from './data-copy.ts'
import { isUnderWay, type StateOf, type UpdateState } from './trial-state.ts'
import type { UpdateHome } from './update-home.ts'

/** Time from the switch to the confirmation. After a rollback, the rest of a minute is left to serve. */
export const TRIAL_MS = 50_000
const LOCK_EVERY_MS = 100
const LOCK_WITHIN_MS = 10_000

export interface TrialOptions {
  readonly home: UpdateHome
  /** For the data folder of a trial. */
  readonly dataIn: (dataDir: string) => DataCopy
  readonly bootId: string
  /** Milliseconds of the machine's monotonic clock. */
  readonly now: () => number
  /** Takes the exclusive lock of the state; undefined while another process has it. */
  readonly lock: () => FolderLock | undefined
}

export interface Candidate {
  readonly from: string
  readonly to: string
  /** Below the home of updates. */
  readonly toFolder: string
}

/**
 * The steps of an update. `settle` runs before each start of the service, while no agent runs. Only `settle`
 * changes data and links, so every end of a trial leads to the same result. Each step can be interrupted at
 * any point, and is repeated.
 */
export class Trial {
  readonly #options: TrialOptions

  constructor(options: TrialOptions) {
    this.#options = options
  }

  /** The next start of the service is the trial. */
  prepare({ from, to, toFolder }: Candidate): void {
    const { home, bootId } = this.#options
    const fromFolder = home.currentFolder()
    home.write({ state: 'prepared', from, to, fromFolder, toFolder, bootId })
  }

  /**
   * `dataDir` returns the data directory of the service, or throws if its settings are invalid; a rollback
   * does not call it. Returns a message for the log. Throws when no version may start, because program and
   * data would not match.
   */
  settle(dataDir: () => string): string | undefined {
    const before = this.#options.home.state()?.state
    try {
      return this.#settle(dataDir)
    } catch (error) {
      if (!this.#isUntouched()) throw error
      return `the update is ${before} and cannot be completed: ${messageOf(error)}`
    }
  }

  /** Takes the lock for `settle`. The holder needs little time, and a start must not be blocked for long. */
  async lockForStart(clock: Clock): Promise<FolderLock | undefined> {
    for (let waitedMs = 0; waitedMs < LOCK_WITHIN_MS; waitedMs += LOCK_EVERY_MS) {
      try {
        const lock = this.#options.lock()
        if (lock) return lock
      } catch {
        return undefined
      }
      await clock.sleep(LOCK_EVERY_MS)
    }
    return undefined
  }

  #settle(dataDir: () => string): string | undefined {
    const state = this.#options.home.state()
    if (!isUnderWay(state)) return undefined
    if (state.state === 'trying') return this.#undo(state)
    if (state.state === 'copying') return this.#giveUpCopy(state, 'the update was interrupted')
    if (state.bootId !== this.#options.bootId) {
      return this.#giveUp(state, 'the machine was restarted before the trial')
    }
    return this.#begin(state, dataDir)
  }

  /** The new version is the running version from now on. */
  confirm(): void {
    const { home, dataIn } = this.#options
    this.#during('trying', (state) => {
      const { from, to, fromFolder, toFolder, dataDir } = state
      home.write({ state: 'confirmed', from, to, fromFolder, toFolder })
      dataIn(dataDir).discard()
      // The previous version stays: its programs may still run.
      home.removeOthers([fromFolder, toFolder])
    })
  }

  /** For a trial that never began. */
  abandon(reason: string): void {
    this.#during('prepared', (state) => this.#giveUp(state, reason))
  }

  /** Stores the reason for a rollback at the next start. False if the trial is over. */
  blame(reason: string): boolean {
    const { home } = this.#options
    return this.#during('trying', (state) => home.writeVerdict(undone(state, reason)))
  }

  /** Answers whether it was done: not when a start of the service is about to change the state. */
  #during<S extends UpdateState['state']>(wanted: S, change: (state: StateOf<S>) => void): boolean {
    const lock = this.#options.lock()
    if (!lock) return false
    try {
      const state = this.#options.home.state()
      if (state?.state !== wanted) return false
      change(state as StateOf<S>)
      return true
    } finally {
      lock.release()
    }
  }

  /** True while the version before runs on its own data. */
  #isUntouched(): boolean {
    const { home, dataIn } = this.#options
    const state = home.state()
    if (state?.state === 'copying') return !dataIn(state.dataDir).isHalfMade
    return state?.state !== 'trying'
  }

  #begin(prepared: StateOf<'prepared'>, dataDirOf: () => string): string {
    const { home, dataIn, now } = this.#options
    const { from, to, fromFolder, toFolder } = prepared
    const versions = { from, to, fromFolder, toFolder }
    let dataDir: string
    try {
      dataDir = dataDirOf()
    } catch (error) {
      return this.#giveUp(prepared, `cannot use the data directory (${messageOf(error)})`)
    }
    const state = { state: 'copying', ...versions, dataDir } as const
    // A copy that takes longer than a start may would be begun for ever.
    home.write(state)
    try {
      dataIn(dataDir).make()
      home.keepPrevious(fromFolder)
      home.writeVerdict(undone(state, 'the new version stopped before the end of its trial'))
      const untilMs = now() + TRIAL_MS
      home.write({ state: 'trying', ...versions, dataDir, untilMs })
    } catch (error) {
      return this.#giveUpCopy(state, messageOf(error))
    }
    home.switchTo(toFolder)
    return `trying version ${to}`
  }

  #undo(state: StateOf<'trying'>): string {
    const { home, dataIn } = this.#options
    dataIn(state.dataDir).restore()
    home.switchBack(state.fromFolder)
    home.takeVerdict(undone(state, 'the new version stopped before the end of its trial'))
    home.removeOthers([state.fromFolder])
    return `version ${state.from} restored`
  }

  #giveUpCopy(state: StateOf<'copying'>, reason: string): string {
    this.#options.dataIn(state.dataDir).discard()
    return this.#giveUp(state, `cannot copy the data (${reason})`)
  }

  #giveUp(state: StateOf<'prepared'> | StateOf<'copying'>, reason: string): string {
    this.#options.home.write(undone(state, reason))
    return `version ${state.from} stays installed: ${reason}`
  }
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error))

function undone(
  { from, to, fromFolder, toFolder }: Exclude<UpdateState, StateOf<'rolled-back'>>,
  reason: string,
): StateOf<'rolled-back'> {
  return { state: 'rolled-back', from, to, fromFolder, toFolder, reason }
}

import type { Clock } from '../../base/clock.ts'
import type { Trial } from './trial.ts'
import { isUnderWay } from './trial-state.ts'
import type { UpdateHome } from './update-home.ts'

const BEFORE_A_TRIAL: ReadonlySet<string | undefined> = new Set(['prepared', 'copying'])
const LOOK_EVERY_MS = 500
/** Long enough for what starts well and dies. */
const STEADY_MS = 10_000
/** The drain of the version before, and the copy of its data. */
const BEGIN_WITHIN_MS = 150_000
/** For the start that undoes it. */
const UNDO_WITHIN_MS = 60_000

/** What the agent that runs says of itself; undefined when it says nothing. */
export interface SeenStart {
  readonly version: string
  readonly startedAt: string
  readonly isLinked: boolean
  /** Why it is not linked, as the end of a sentence. */
  readonly problem: string
}

export interface WatchOptions {
  readonly home: UpdateHome
  readonly trial: Trial
  readonly clock: Clock
  /** Milliseconds of the machine's monotonic clock, as the trial has them. */
  readonly now: () => number
  readonly look: () => Promise<SeenStart | undefined>
  /** Begins a start of the service that `settle` comes before. */
  readonly restart: () => void
  /** Ends the service at once, whatever it does; it is started again. */
  readonly kill: () => void
}

/** Has the prepared version tried and judges it; resolves when there is a verdict. */
export async function watchTrial(options: WatchOptions): Promise<void> {
  const { home, trial, restart, kill } = options
  try {
    restart()
  } catch {
    trial.abandon('cannot restart the service')
    return
  }
  const hasBegun = () => !BEFORE_A_TRIAL.has(home.state()?.state)
  if (!(await until(options, BEGIN_WITHIN_MS, hasBegun))) {
    trial.abandon('the service did not restart')
    return
  }
  const reason = await judge(options)
  if (reason === undefined) return
  if (!trial.blame(reason)) return
  // A process that hangs would not stop when it is asked to.
  kill()
  await until(options, UNDO_WITHIN_MS, () => !isUnderWay(home.state()))
}

/** Undefined when the state says all; else why it is to be undone. */
async function judge({ home, trial, clock, now, look }: WatchOptions): Promise<string | undefined> {
  let steady: { readonly startedAt: string; readonly sinceMs: number } | undefined
  let problem = 'the new version was not ready in time'
  for (;;) {
    const state = home.state()
    if (state?.state !== 'trying') return undefined
    const seen = await look()
    const isOther = seen !== undefined && seen.version !== state.to
    if (isOther) problem = `version ${seen.version} was started instead`
    else if (seen) problem = `the new version had no link in time (${seen.problem})`
    if (!seen?.isLinked || isOther) steady = undefined
    else if (steady?.startedAt !== seen.startedAt) {
      steady = { startedAt: seen.startedAt, sinceMs: now() }
    } else if (now() - steady.sinceMs >= STEADY_MS) {
      trial.confirm()
      return undefined
    }
    if (now() >= state.untilMs) return problem
    await clock.sleep(LOOK_EVERY_MS)
  }
}

async function until(
  { clock, now }: WatchOptions,
  withinMs: number,
  isTrue: () => boolean,
): Promise<boolean> {
  const endMs = now() + withinMs
  while (!isTrue()) {
    if (now() >= endMs) return false
    await clock.sleep(LOOK_EVERY_MS)
  }
  return true
}

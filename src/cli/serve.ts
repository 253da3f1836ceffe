import { executionAsyncResource } from 'node:async_hooks'
import { once } from 'node:events'
import process from 'node:process'
import { systemClock } from '../base/clock.ts'
import { Closer } from '../base/closer.ts'
import { withDeadline } from '../base/deadline.ts'
import type { Logger } from '../base/logger.ts'
import { IdleCollector, ownHeap } from './service/idle-collector.ts'

const kept: { tick?: object } = {}

/**
 * Keeps one of the objects that `process.nextTick` queues. V8 forgets what they look like when garbage
 * is collected several times while none is queued, as in a process that is idle, and code that is
 * compiled later is slow for good: 300 to 450 ns for each tick instead of 60, of which a request of a
 * visitor has several. With one that stays V8 cannot forget it.
 */
function keepTick(): void {
  process.nextTick(() => {
    kept.tick ??= executionAsyncResource()
  })
}

/** Release lines of Node with the day of their last security fixes (schedule of nodejs/Release). */
const LAST_FIXES: ReadonlyMap<string, string> = new Map([
  ['20', '2026-04-30'],
  ['22', '2027-04-30'],
  ['23', '2025-06-01'],
  ['24', '2028-04-30'],
  ['25', '2026-06-01'],
  ['26', '2029-04-30'],
])

interface NodeSupportOptions {
  /** As `process.versions.node` has it, such as `20.19.0`. */
  readonly version: string
  /** Wall time, milliseconds since the epoch. */
  readonly now: number
  readonly log: Logger
}

/** Warns when the Node that runs this gets no security fixes any more. */
export function warnOfEndedNode({ version, now, log }: NodeSupportOptions): void {
  const [line = version] = version.split('.')
  const day = LAST_FIXES.get(line)
  if (day === undefined || now < Date.parse(`${day}T23:59:59Z`)) return
  const message = `Node.js ${line} gets no security fixes since ${day}: install a newer version`
  log.warn({ node: version }, message)
}

/**
 * What a stop may take beside the requests that are under way. What takes longer is cut off: the
 * service manager would kill us a little later.
 */
const STOP_WITHIN_MS = 10_000
/** Whoever does not read our log does not hold us up either. */
const FLUSH_WITHIN_MS = 1_000
/** sysexits EX_TEMPFAIL: the SDK is unusable in this process, a new process heals it. */
export const EXIT_RESTART_ME = 75

export interface ServeOptions {
  readonly log: Logger
  readonly stop: AbortSignal
  /** How long requests under way may take to end, in ms. */
  readonly drainMs?: number
  /** Whether garbage is collected while nothing happens: whoever comes just then waits for that. */
  readonly collectsWhenIdle?: boolean
  /** Opens everything, leaving on the closer how each part is closed again. */
  start(closer: Closer): Promise<Served>
}

/** What runs until it is told to stop. */
export interface Served {
  /** Resolves when the process has to be replaced; never on an ordinary stop. */
  readonly broken: Promise<string>
  /** Resolves with the pid of another process that has taken over. */
  readonly left?: Promise<number>
  /** Resolves with a reason when that one has died before this one has ended. */
  readonly bereft?: Promise<string>
}

/** Starts, waits for the stop signal, stops in reverse order. Sets the process's exit code. */
export async function serve(options: ServeOptions): Promise<void> {
  const { log, stop, drainMs = 0, collectsWhenIdle = false, start } = options
  const closer = new Closer(log)
  const askForAnother = (reason: string) => {
    log.fatal({ reason }, 'this process must be replaced')
    process.exitCode = EXIT_RESTART_ME
  }
  keepTick()
  warnOfEndedNode({ version: process.versions.node, now: systemClock.now(), log })
  try {
    const served = await start(closer)
    const heap = collectsWhenIdle ? ownHeap() : undefined
    if (heap) {
      const collector = new IdleCollector({ heap, clock: systemClock, log })
      closer.own('idle collector', collector, (it) => it.stop()).start()
    }
    const stopped = stop.aborted ? Promise.resolve() : once(stop, 'abort').then(() => undefined)
    const left = served.left ?? new Promise<never>(() => {})
    const reason = await Promise.race([stopped, served.broken, left])
    if (typeof reason === 'number') {
      log.info({ pid: reason }, 'the new process has taken over, finishing open requests')
      void served.bereft?.then((how) => {
        // Where both were told to stop, nobody is missing.
        if (!stop.aborted) askForAnother(how)
      })
    } else if (reason !== undefined) {
      askForAnother(reason)
    } else {
      log.info({ signal: stop.reason }, 'stopping')
    }
  } catch (error) {
    // Whoever stops us during the start does not ask for what the start then says.
    if (!stop.aborted) throw error
  } finally {
    await withDeadline(closer.close(), drainMs + STOP_WITHIN_MS, 'stopping').catch((error) =>
      log.warn({ err: error }, 'stop cut off'),
    )
    await withDeadline(flushed(log), FLUSH_WITHIN_MS, 'writing the log').catch(() => {})
  }
}

/** Resolves when what was logged is written. */
function flushed(log: Logger): Promise<void> {
  return new Promise((resolve) => log.flush(() => resolve()))
}

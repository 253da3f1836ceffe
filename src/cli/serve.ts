import { executionAsyncResource } from 'node:async_hooks'
import { once } from 'node:events'
import process from 'node:process'
import { systemClock } from '../base/clock.ts'
import { Closer } from '../base/closer.ts'
import { withDeadline } from '../base/deadline.ts'
import type { Logger } from '../base/logger.ts'
import type { Config } from '../config.ts'
import { MAX_END_MS } from '../gateway/ports/drain.ts'
import { IdleCollector, ownHeap } from './service/idle-collector.ts'
import { lateCaWarning } from './settings-place.ts'

const kept: { tick?: object } = {}

/**
 * Keeps one of the objects that `process.nextTick` queues. V8 forgets their shape when garbage is collected
 * several times while none is queued, as in an idle process. Code that is compiled later then stays slow: 300
 * to 450 ns for each tick in place of 60, with several ticks for each request. One kept object prevents this.
 */
function keepTick(): void {
  process.nextTick(() => {
    kept.tick ??= executionAsyncResource()
  })
}

/** Release lines of Node with the day of their last security fixes (schedule of nodejs/Release). */
export const LAST_FIXES: ReadonlyMap<string, string> = new Map([
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

/** Warns when the running version of Node.js gets no more security fixes. */
export function warnOfEndedNode({ version, now, log }: NodeSupportOptions): void {
  const [line = version] = version.split('.')
  const day = LAST_FIXES.get(line)
  if (day === undefined || now < Date.parse(`${day}T23:59:59Z`)) return
  const message = `Node.js ${line} gets no security fixes since ${day}: install a newer version`
  log.warn({ node: version }, message)
}

/**
 * Limit of a stop, in addition to running requests. Later work is cut off: the service manager would kill the
 * process soon after.
 */
const STOP_WITHIN_MS = 10_000
/** Limit for a log reader that does not read. */
const FLUSH_WITHIN_MS = 1_000
/** sysexits EX_TEMPFAIL: the SDK is unusable in this process, a new process heals it. */
export const EXIT_RESTART_ME = 75

export interface ServeOptions {
  readonly log: Logger
  readonly stop: AbortSignal
  /** How long requests under way may take to end, in ms. */
  readonly drainMs?: number
  /** Opens everything. Each part registers its close on the closer. */
  start(closer: Closer): Promise<Served>
}

/** A running service. */
export interface Served {
  /** Resolves when the process has to be replaced; never on an ordinary stop. */
  readonly broken: Promise<string>
  /** Resolves with the pid of another process that has taken over. */
  readonly left?: Promise<number>
  /** Resolves with a reason if the new process dies before this process has ended. */
  readonly bereft?: Promise<string>
}

/** Time of a gateway for its visitors and agents when it stops. One of several waits for agents to move. */
export function gatewayStopMs({ drainMs, shared }: Config['gateway']): number {
  return drainMs + (shared ? MAX_END_MS : 0)
}

/** Starts, waits for the stop signal, stops in reverse order. Sets the process's exit code. */
export async function serve(options: ServeOptions): Promise<void> {
  const { log, stop, drainMs = 0, start } = options
  const closer = new Closer(log)
  const askForAnother = (reason: string) => {
    log.fatal({ reason }, 'this process must be replaced')
    process.exitCode = EXIT_RESTART_ME
  }
  keepTick()
  const lateCa = lateCaWarning(process.env)
  if (lateCa !== undefined) log.warn(lateCa)
  warnOfEndedNode({ version: process.versions.node, now: systemClock.now(), log })
  try {
    const served = await start(closer)
    const heap = ownHeap()
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
        // After a stop of both processes, none is needed.
        if (!stop.aborted) askForAnother(how)
      })
    } else if (reason !== undefined) {
      askForAnother(reason)
    } else {
      log.info({ signal: stop.reason }, 'stopping')
    }
  } catch (error) {
    // After a stop during the start, errors of the start do not matter.
    if (!stop.aborted) throw error
  } finally {
    await withDeadline(closer.close(), drainMs + STOP_WITHIN_MS, 'stopping').catch((error) =>
      log.warn({ err: error }, 'stop cut off'),
    )
    await withDeadline(flushed(log), FLUSH_WITHIN_MS, 'writing the log').catch(() => {})
  }
}

/** Resolves when all log lines are written. */
function flushed(log: Logger): Promise<void> {
  return new Promise((resolve) => log.flush(() => resolve()))
}

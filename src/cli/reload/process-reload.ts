import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import process from 'node:process'
import { DeadlineError, withDeadline } from '../../base/deadline.ts'
import { createDeferred } from '../../base/deferred.ts'
import type { Logger } from '../../base/logger.ts'
import { type HandoverFailure, type HandoverMessage, PREDECESSOR } from './predecessor.ts'

/** With `process-reload.ts` less than the `TimeoutStartSec` of the unit, within which systemd wants a reload to end. */
const PREPARED_WITHIN_MS = 20_000
const SERVING_WITHIN_MS = 20_000

interface SuccessorOptions {
  /** Listening sockets, for descriptor 3 and following. */
  readonly sockets: readonly number[]
  readonly environment: Readonly<Record<string, string | undefined>>
}

/** The replacement of this process: the program version on disk. */
class Successor {
  /** Resolves when it ends in any other way than it was told to, with how. */
  readonly died: Promise<string>
  readonly #child: ChildProcess
  readonly #ended: Promise<string>

  private constructor(child: ChildProcess) {
    this.#child = child
    this.died = new Promise((resolve) => {
      child.once('exit', (code, signal) => {
        if (code !== 0) resolve(`ended with ${signal ?? code}`)
      })
    })
    this.#ended = new Promise((resolve) => {
      child.once('error', (error) => resolve(`did not start: ${error.message}`))
      child.once('exit', (code, signal) => resolve(`ended with ${signal ?? code}`))
    })
  }

  /** With the arguments of this process. */
  static start({ sockets, environment }: SuccessorOptions): Successor {
    const { pid } = process
    const child = spawn(process.execPath, [...process.execArgv, ...process.argv.slice(1)], {
      stdio: ['ignore', 'inherit', 'inherit', ...sockets, 'ipc'],
      env: {
        ...environment,
        // It cannot be told its own pid, and goes by ours: see `main.ts`.
        LISTEN_PID: `${pid}`,
        LISTEN_FDS: `${sockets.length}`,
        [PREDECESSOR]: `${pid}`,
        WATCHDOG_PID: undefined,
      },
    })
    return new Successor(child)
  }

  get pid(): number {
    return this.#child.pid ?? -1
  }

  /** Resolves when the new process completed all steps that are possible beside this process. */
  prepared(): Promise<void> {
    return this.#hear('prepared', PREPARED_WITHIN_MS)
  }

  /** Tells it that it may go on; resolves when it serves. */
  takeOver(): Promise<void> {
    const heard = this.#hear('serving', SERVING_WITHIN_MS)
    const message: HandoverMessage = 'released'
    // When that does not reach it, it does not answer.
    this.#child.send(message, () => {})
    return heard
  }

  /** It goes its own way. */
  release(): void {
    if (this.#child.connected) this.#child.disconnect()
    this.#child.unref()
  }

  /** Kills the process. Resolves when it has ended and holds nothing. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.#ended
  }

  async #hear(expected: HandoverMessage, withinMs: number): Promise<void> {
    const listening = new AbortController()
    const { signal } = listening
    const heard = once(this.#child, 'message', { signal }).then(([message]) => {
      const { failed } = message as Partial<HandoverFailure>
      if (failed !== undefined) throw new Error(`the new process cannot start: ${failed}`)
      if (message !== expected)
        throw new Error(`unexpected message of the new process: ${JSON.stringify(message)}`)
    })
    const ended = this.#ended.then((how) => {
      throw new Error(`the new process ${how}; see the log of the service`)
    })
    try {
      await withDeadline(Promise.race([heard, ended]), withinMs, 'starting the new process')
    } finally {
      heard.catch(() => {})
      listening.abort()
    }
  }
}

/** Init processes of containers. Each ends when its one child ends. */
const INITS: ReadonlySet<string> = new Set(['catatonit', 'docker-init', 'dumb-init', 'tini'])

/** Position of a process in the system. */
interface ProcessPlace {
  readonly pid: number
  readonly ppid: number
  /** Name of the first process. */
  readonly firstName: string | undefined
}

/**
 * The reason why another process cannot replace this one, with a remedy. Undefined if it can: systemd learns
 * of the new process, or nothing waits for this one.
 */
export function whyIrreplaceable({ pid, ppid, firstName }: ProcessPlace): string | undefined {
  const isFirst = pid === 1 || (ppid === 1 && INITS.has(firstName ?? ''))
  if (!isFirst) return undefined
  return 'the container ends together with this process. Restart the container instead'
}

export function ownPlace(): ProcessPlace {
  const { pid, ppid } = process
  return { pid, ppid, firstName: nameOfFirst() }
}

function nameOfFirst(): string | undefined {
  try {
    return readFileSync('/proc/1/comm', 'utf8').trim()
  } catch {
    return undefined
  }
}

/**
 * State of a process that may be replaced.
 *
 * | state       | the service is  | this process waits for                                         |
 * |-------------|-----------------|----------------------------------------------------------------|
 * | `serving`   | this process    | a reload                                                       |
 * | `reloading` | this process    | the new process, which may already have folder and names       |
 * | `stuck`     | this process    | its own release, which hangs: then it takes everything back    |
 * | `left`      | the new process | its running requests                                           |
 * | `bereft`    | no process      | the same: the new process died, another starts after this ends |
 * | `stopped`   | this process    | its end                                                        |
 *
 * The state `left` is final: the new process writes, this one no longer listens, its link ends, and our
 * gateway holds the names. So a bereft process ends, and says so.
 */
export type ReloadState = 'serving' | 'reloading' | 'stuck' | 'left' | 'bereft' | 'stopped'

/**
 * `hung`: the release took too long. `free`: the release is complete. `served`: the new process serves.
 * `died`: the new process ended.
 */
export type ReloadEvent = 'request' | 'failed' | 'hung' | 'free' | 'served' | 'died' | 'stop'

const NEXT: Record<ReloadState, Partial<Record<ReloadEvent, ReloadState>>> = {
  serving: { request: 'reloading', stop: 'stopped' },
  reloading: { failed: 'serving', hung: 'stuck', served: 'left', stop: 'stopped' },
  stuck: { free: 'serving', stop: 'stopped' },
  left: { died: 'bereft' },
  bereft: {},
  stopped: {},
}

/** The state after an event; an event that means nothing in a state changes nothing. */
export function nextReloadState(state: ReloadState, event: ReloadEvent): ReloadState {
  return NEXT[state][event] ?? state
}

/**
 * Running requests end or are aborted within 7 s. Together with the start of the next process, this takes
 * less than 60 s.
 */
const RELEASED_WITHIN_MS = 10_000

/** The part of a service that a reload uses; see `Gateway`. */
export interface ReloadableService {
  /** Releases everything that only one process may hold. When it throws, nothing has changed. */
  release(): Promise<void>
  /** Takes it back. Throws when not all of it can be had. */
  reclaim(): Promise<void>
  /** The new process serves: no new connections here. */
  handOver(): void
  /** Listening sockets for the new process. Throws a StartError if they cannot be passed on. */
  sockets(): number[]
}

/** Reports to the service manager; see `Supervision`. */
export interface ReloadNews {
  reloading(): void
  reloadFailed(): void
  leaveTo(pid: number): void
  /** The new process died: this process is the service again, and ends. */
  bereft(sentence: string): void
}

export interface ProcessReloadOptions {
  readonly service: ReloadableService
  readonly news: ReloadNews
  /** The reason why a reload is refused now, with a remedy. */
  readonly refusal?: (() => string | undefined) | undefined
  /** Environment of the new process. */
  readonly environment: () => Readonly<Record<string, string | undefined>>
  readonly log: Logger
  /** For letting go, in ms. */
  readonly releasedWithinMs?: number
  readonly place?: () => ProcessPlace
}

/**
 * Replaces a running service with the program version on disk, while both listen on the same sockets. If the
 * new process does not come up, this process continues and says so.
 *
 * | until the new process says | folder, database, writes | sockets | visitors are served by                  |
 * |----------------------------|--------------------------|---------|-----------------------------------------|
 * | `prepared`                 | old                      | old     | the old process                         |
 * | `released`, to it          | none                     | old     | the old process                         |
 * | `serving`                  | new                      | both    | either process                          |
 * | end                        | new                      | new     | the new process; running requests stay  |
 *
 * The table `NEXT` has the states of this process.
 */
export class ProcessReload {
  readonly #options: ProcessReloadOptions
  readonly #left = createDeferred<number>()
  readonly #bereft = createDeferred<string>()
  #state: ReloadState = 'serving'
  #successor: Successor | undefined
  #attempted: Promise<unknown> = Promise.resolve()
  #problem: string | undefined

  constructor(options: ProcessReloadOptions) {
    this.#options = options
  }

  /** Resolves with the pid of the process that serves from then on. */
  get left(): Promise<number> {
    return this.#left.promise
  }

  /** Resolves with a reason if the new process dies before this process has ended. */
  get bereft(): Promise<string> {
    return this.#bereft.promise
  }

  /** Why the last reload failed, for people. */
  get problem(): string | undefined {
    return this.#problem
  }

  /** Never rejects. A request during a reload joins it. */
  async request(): Promise<void> {
    const { news, log } = this.#options
    if (this.#is('stuck')) log.error(`cannot start another reload: ${this.#problem}`)
    if (!this.#is('serving')) return
    const refusal = this.#refusal()
    if (refusal !== undefined) {
      news.reloading()
      this.#problem = `the reload was refused: ${refusal}`
      log.error(this.#problem)
      news.reloadFailed()
      return
    }
    this.#move('request')
    this.#problem = undefined
    news.reloading()
    log.info('reloading, starting a new process')
    const attempt = this.#attempt()
    this.#attempted = attempt
    const successor = await attempt
    // A stop in the same moment has ended it.
    if (successor && this.#is('reloading')) this.#leaveTo(successor)
  }

  /** A stop during a reload ends both processes. Resolves after everything was taken back. */
  async stop(): Promise<void> {
    const isReloading = this.#is('reloading')
    this.#move('stop')
    if (!isReloading) return
    await this.#successor?.kill()
    await this.#attempted
  }

  #move(event: ReloadEvent): void {
    this.#state = nextReloadState(this.#state, event)
  }

  /** Checked again after each await: a stop may come at any time. */
  #is(state: ReloadState): boolean {
    return this.#state === state
  }

  #refusal(): string | undefined {
    const { refusal, place = ownPlace } = this.#options
    return whyIrreplaceable(place()) ?? refusal?.()
  }

  /** Undefined if no new process serves. */
  async #attempt(): Promise<Successor | undefined> {
    const { news, log } = this.#options
    try {
      return await this.#replace()
    } catch (error) {
      if (this.#is('stopped')) return undefined
      this.#move('failed')
      const { message } = error as Error
      this.#problem = `the reload failed: ${message}`
      log.error({ err: error }, 'the reload failed, this process continues')
      news.reloadFailed()
      return undefined
    }
  }

  /** No way back: the new process writes. */
  #leaveTo(successor: Successor): void {
    const { service, news, log } = this.#options
    this.#move('served')
    news.leaveTo(successor.pid)
    try {
      service.handOver()
    } catch (error) {
      log.error({ err: error }, 'cannot hand over all resources to the new process')
    }
    successor.release()
    void successor.died.then((how) => this.#loseSuccessor(how))
    this.#left.resolve(successor.pid)
  }

  #loseSuccessor(how: string): void {
    this.#move('died')
    const reason = `the new process ${how}`
    this.#options.news.bereft(reason)
    this.#bereft.resolve(reason)
  }

  async #replace(): Promise<Successor> {
    const { service, environment } = this.#options
    const successor = Successor.start({ sockets: service.sockets(), environment: environment() })
    this.#successor = successor
    try {
      await successor.prepared()
      await this.#release()
    } catch (error) {
      await successor.kill()
      throw error
    }
    try {
      await successor.takeOver()
      return successor
    } catch (error) {
      // It may have written by now: nothing is taken back before it is gone.
      await successor.kill()
      // After a stop, nothing is needed any longer.
      if (!this.#is('stopped')) await this.#reclaim()
      throw error
    }
  }

  async #release(): Promise<void> {
    const { service, releasedWithinMs = RELEASED_WITHIN_MS } = this.#options
    const released = service.release()
    try {
      await withDeadline(released, releasedWithinMs, 'releasing the data directory')
    } catch (error) {
      if (!(error instanceof DeadlineError)) throw error
      this.#move('hung')
      void this.#takeBackAfter(released, error.message)
      const still = `visitors are served, the management API refuses changes until this ends or the service is restarted`
      throw new Error(`${error.message}: ${still}`, { cause: error })
    }
  }

  /** A hanging release may still complete. When it throws, nothing was released. */
  async #takeBackAfter(released: Promise<void>, message: string): Promise<void> {
    const { service, news, log } = this.#options
    const wasReleased = await released.then(
      () => true,
      () => false,
    )
    if (!this.#is('stuck')) return
    try {
      if (wasReleased) await service.reclaim()
      this.#problem = `the reload failed: ${message}`
    } catch (error) {
      log.error({ err: error }, 'cannot take back the resources released by the reload')
    }
    this.#move('free')
    if (this.#is('serving')) news.reloadFailed()
  }

  async #reclaim(): Promise<void> {
    const { service } = this.#options
    try {
      await service.reclaim()
    } catch (error) {
      const { message } = error as Error
      throw new Error(
        `the new process did not start, and ${message}: visitors are served, the management API refuses changes until a restart`,
        { cause: error },
      )
    }
  }
}

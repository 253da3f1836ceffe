import { DeadlineError, withDeadline } from '../../base/deadline.ts'
import { createDeferred } from '../../base/deferred.ts'
import type { Logger } from '../../base/logger.ts'
import { nextReloadState, type ReloadEvent, type ReloadState } from './reload-state.ts'
import { Successor } from './successor.ts'
import { ownPlace, type ProcessPlace, whyIrreplaceable } from './why-irreplaceable.ts'

/** Requests under way end or are broken off within 7 s; together with `successor.ts` less than 60 s. */
const RELEASED_WITHIN_MS = 10_000

/** What of a service a reload works with; see `Gateway`. */
export interface ReloadableService {
  /** Lets go of what only one process may have. When it throws, all is as before. */
  release(): Promise<void>
  /** Takes it back. Throws when not all of it can be had. */
  reclaim(): Promise<void>
  /** The other process serves: nobody new is let in here. */
  leave(): void
  /** Where it listens, for the other process. Throws a StartError when that cannot be passed on. */
  sockets(): number[]
}

/** What the service manager is told; see `Supervision`. */
export interface ReloadNews {
  reloading(): void
  reloadFailed(): void
  leaveTo(pid: number): void
  /** That process has died: this one is the service again, and ends. */
  bereft(sentence: string): void
}

export interface ProcessReloadOptions {
  readonly service: ReloadableService
  readonly news: ReloadNews
  /** Why it is not reloaded now, and what to do instead. */
  readonly refusal?: (() => string | undefined) | undefined
  /** Of the new process. */
  readonly environment: () => Readonly<Record<string, string | undefined>>
  readonly log: Logger
  /** For letting go, in ms. */
  readonly releasedWithinMs?: number
  readonly place?: () => ProcessPlace
}

/**
 * Replaces a running service by the program as it lies on disk now, while both listen on the same
 * sockets. When the new process does not come up, this one serves on and says so. Who has what:
 *
 * | until the new one says | folder, database, writes | sockets | who is served |
 * |------------------------|--------------------------|---------|---------------|
 * | `prepared`             | old                      | old     | by the old    |
 * | `released`, to it      | nobody                   | old     | by the old    |
 * | `serving`              | new                      | both    | by either     |
 * | nothing more           | new                      | new     | by the new; what is under way ends where it is |
 *
 * What becomes of this process by that is the table in reload-state.ts.
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

  /** Resolves with a reason when that process has died before this one has ended. */
  get bereft(): Promise<string> {
    return this.#bereft.promise
  }

  /** Why the last reload failed, for people. */
  get problem(): string | undefined {
    return this.#problem
  }

  /** Never rejects; what is asked for while one is under way is that one. */
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

  /** A stop in the middle of a reload ends both; what is being taken back is back before this resolves. */
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

  /** Asked anew after each await: a stop may come at any time. */
  #is(state: ReloadState): boolean {
    return this.#state === state
  }

  #refusal(): string | undefined {
    const { refusal, place = ownPlace } = this.#options
    return whyIrreplaceable(place()) ?? refusal?.()
  }

  /** Undefined when there is none that serves. */
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

  /** From here on nothing is undone: the other one writes. */
  #leaveTo(successor: Successor): void {
    const { service, news, log } = this.#options
    this.#move('served')
    news.leaveTo(successor.pid)
    try {
      service.leave()
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
      // Who stops needs none of it any more.
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

  /** What hangs may end yet; when it throws, nothing was let go of. */
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

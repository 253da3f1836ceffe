import { createDeferred } from '../../base/deferred.ts'
import type { Logger } from '../../base/logger.ts'
import { Successor } from './successor.ts'

/** What of a service a reload works with; see `Gateway` and `Daemon`. */
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
}

export interface ProcessReloadOptions {
  readonly service: ReloadableService
  /** What refuses changes when they cannot be taken back, as messages name it: `management API`. */
  readonly api: string
  readonly news: ReloadNews
  /** Why it is not reloaded now, and what to do instead. */
  readonly refusal?: (() => string | undefined) | undefined
  /** Of the new process. */
  readonly environment: () => Readonly<Record<string, string | undefined>>
  readonly log: Logger
}

/** `left`: another process serves, and this one ends what is under way. */
type State = 'serving' | 'reloading' | 'left' | 'stopped'

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
 */
export class ProcessReload {
  readonly #options: ProcessReloadOptions
  readonly #left = createDeferred<number>()
  #state: State = 'serving'
  #successor: Successor | undefined
  #problem: string | undefined

  constructor(options: ProcessReloadOptions) {
    this.#options = options
  }

  /** Resolves with the pid of the process that serves from then on. */
  get left(): Promise<number> {
    return this.#left.promise
  }

  /** Why the last reload failed, for people. */
  get problem(): string | undefined {
    return this.#problem
  }

  /** Never rejects; what is asked for while one is under way is that one. */
  async request(): Promise<void> {
    if (this.#state !== 'serving') return
    const { service, news, log } = this.#options
    const refusal = this.#options.refusal?.()
    if (refusal !== undefined) {
      news.reloading()
      this.#problem = `the reload was refused: ${refusal}`
      log.error(this.#problem)
      news.reloadFailed()
      return
    }
    this.#state = 'reloading'
    this.#problem = undefined
    news.reloading()
    log.info('reloading: a new process is to take over')
    try {
      const successor = await this.#replace()
      this.#state = 'left'
      news.leaveTo(successor.pid)
      service.leave()
      successor.release()
      this.#left.resolve(successor.pid)
    } catch (error) {
      if (this.#hasStopped()) return
      this.#state = 'serving'
      const { message } = error as Error
      this.#problem = `the reload failed: ${message}`
      log.error({ err: error }, 'the reload failed: this process serves on')
      news.reloadFailed()
    }
  }

  /** A stop in the middle of a reload ends both. */
  async stop(): Promise<void> {
    const isReloading = this.#state === 'reloading'
    this.#state = 'stopped'
    if (isReloading) await this.#successor?.kill()
  }

  /** It may stop at any time. */
  #hasStopped(): boolean {
    return this.#state === 'stopped'
  }

  async #replace(): Promise<Successor> {
    const { service, environment } = this.#options
    const successor = Successor.start({ sockets: service.sockets(), environment: environment() })
    this.#successor = successor
    try {
      await successor.prepared()
      await service.release()
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
      await this.#reclaim()
      throw error
    }
  }

  async #reclaim(): Promise<void> {
    const { service, api } = this.#options
    try {
      await service.reclaim()
    } catch (error) {
      const { message } = error as Error
      throw new Error(
        `the new process did not come up, and ${message}: visitors are served, the ${api} refuses changes until a restart`,
        { cause: error },
      )
    }
  }
}

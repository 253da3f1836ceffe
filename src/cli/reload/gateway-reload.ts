import { StartError } from '../../base/app-error.ts'
import { createDeferred } from '../../base/deferred.ts'
import { formatListenAddress, type ListenAddress } from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import { Successor } from './successor.ts'

/** What of a gateway a reload works with; see `Gateway`. */
export interface ReloadableGateway {
  release(): Promise<void>
  reclaim(): Promise<void>
  leave(): void
}

/** What the service manager is told; see `Supervision`. */
export interface ReloadNews {
  reloading(): void
  reloadFailed(): void
  leaveTo(pid: number): void
}

export interface GatewayReloadOptions {
  readonly gateway: ReloadableGateway
  readonly news: ReloadNews
  /** Where the gateway listens, each with its socket where that was inherited. */
  readonly listens: readonly ListenAddress[]
  /** Why this gateway is never reloaded, and what to do instead. */
  readonly refusal?: string | undefined
  readonly environment: Readonly<Record<string, string | undefined>>
  readonly log: Logger
}

/** `left`: another process serves, and this one ends what is under way. */
type State = 'serving' | 'reloading' | 'left' | 'stopped'

/**
 * Replaces a running gateway by the program as it lies on disk now, while both listen on the same
 * sockets. When the new process does not come up, this one serves on and says so.
 */
export class GatewayReload {
  readonly #options: GatewayReloadOptions
  readonly #left = createDeferred<number>()
  #state: State = 'serving'
  #successor: Successor | undefined
  #problem: string | undefined

  constructor(options: GatewayReloadOptions) {
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
    const { gateway, news, refusal, log } = this.#options
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
      gateway.leave()
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
    const { gateway, environment } = this.#options
    const successor = Successor.start({ sockets: this.#sockets(), environment })
    this.#successor = successor
    try {
      await successor.prepared()
      await gateway.release()
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
    try {
      await this.#options.gateway.reclaim()
    } catch (error) {
      const { message } = error as Error
      throw new Error(
        `the new process did not come up, and ${message}: visitors are served, the management API refuses changes until a restart`,
        { cause: error },
      )
    }
  }

  #sockets(): number[] {
    return this.#options.listens.map(({ fd, ...address }) => {
      if (fd !== undefined) return fd
      const where = formatListenAddress(address)
      const remedy = 'run device-agent service install --gateway, or restart it instead'
      throw new StartError(`a reload needs device-gateway.socket to listen on ${where}: ${remedy}`)
    })
  }
}

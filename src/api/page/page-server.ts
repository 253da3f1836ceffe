import type { RequestListener } from 'node:http'
import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import type { ListenAddress } from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import { HttpServer } from '../../http/http-server.ts'

const RETRY_MS = 10_000

export interface PageServerOptions {
  readonly listener: RequestListener
  readonly target: ListenAddress
  readonly log: Logger
  readonly clock: Clock
}

/**
 * The page for others in the network. Its address may come later, as with DHCP, and no tunnel waits
 * for that: it tries again until it listens.
 */
export class PageServer {
  readonly #options: PageServerOptions
  readonly #server: HttpServer
  readonly #stopping = new AbortController()
  #running: Promise<void> | undefined

  constructor(options: PageServerOptions) {
    this.#options = options
    this.#server = new HttpServer({ name: 'device page', ...options })
  }

  /** The listen address; undefined while it does not listen. */
  get address(): ListenAddress | undefined {
    const { port } = this.#server
    return port === 0 ? undefined : { ...this.#options.target, port }
  }

  /** Resolves after the first try. */
  async start(): Promise<void> {
    if (!(await this.#try())) this.#running = this.#keepTrying()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#running
    await this.#server.stop()
  }

  async #keepTrying(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await clock.sleep(RETRY_MS, signal).catch(() => {})
      if (signal.aborted || (await this.#try())) return
    }
  }

  async #try(): Promise<boolean> {
    const { log } = this.#options
    try {
      await this.#server.start()
      log.info({ address: this.address }, 'the device page is available in the network')
      return true
    } catch (error) {
      if (!(error instanceof StartError)) throw error
      const remedy = 'Set AGENT_PAGE_LISTEN to an address of this device with a free port.'
      log[this.#running ? 'debug' : 'error'](
        { reason: error.message, remedy },
        'device page not available yet',
      )
      return false
    }
  }
}

import type { Logger } from '../base/logger.ts'
import type { KeptValues } from './kept-values.ts'

/** All endpoints of a service have the port of its ingress: it makes URLs before they are open. */
export class PublicPort {
  readonly #kept: KeptValues
  readonly #log: Logger
  #port: string

  constructor(kept: KeptValues, log: Logger) {
    this.#kept = kept
    this.#log = log
    this.#port = kept.get('public-port') ?? ''
  }

  /** Learns it from the URL of an endpoint that is open. */
  learnFrom(url: string): void {
    const { protocol, port } = new URL(url)
    // A TCP address has a port of its own.
    if (protocol === 'tcp:' || port === this.#port) return
    this.#port = port
    try {
      this.#kept.set('public-port', port)
    } catch (error) {
      this.#log.warn({ err: error }, 'cannot save the public port')
    }
  }

  urlOf(domain: string): string {
    return `https://${domain}${this.#port === '' ? '' : `:${this.#port}`}`
  }
}

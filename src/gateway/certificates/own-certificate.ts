import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createSecureContext, type SecureContext } from 'node:tls'
import { StartError } from '../../base/app-error.ts'
import type { Logger } from '../../base/logger.ts'

export interface OwnCertificateOptions {
  /** PEM chain, leaf first. */
  readonly certPath: string
  readonly keyPath: string
  readonly log: Logger
}

/** The certificate that the gateway's owner brings along; read again when its files change. */
export class OwnCertificate {
  readonly #options: OwnCertificateOptions
  #pem = ''
  #context: SecureContext | undefined
  #endsAt: number | undefined

  constructor(options: OwnCertificateOptions) {
    this.#options = options
  }

  /** Undefined before the first `load()`. */
  get context(): SecureContext | undefined {
    return this.#context
  }

  /** When it is no good any more, in milliseconds since the epoch. */
  get endsAt(): number | undefined {
    return this.#endsAt
  }

  /** Throws a StartError when the files cannot be used. */
  load(): void {
    const { certPath, keyPath } = this.#options
    try {
      const cert = readFileSync(certPath, 'utf8')
      const key = readFileSync(keyPath, 'utf8')
      if (cert + key === this.#pem) return
      this.#context = createSecureContext({ cert, key, minVersion: 'TLSv1.2' })
      this.#endsAt = Date.parse(new X509Certificate(cert).validTo)
      this.#pem = cert + key
    } catch (error) {
      throw new StartError(
        `The certificate ${certPath} with the key ${keyPath} cannot be used: ${(error as Error).message}.`,
        { cause: error },
      )
    }
  }

  /** Like `load()`, but what is served stays when the new files are no good. */
  reload(): void {
    try {
      this.load()
    } catch (error) {
      this.#options.log.error({ err: error }, 'certificate not reloaded')
    }
  }
}

import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { StartError } from '../../base/app-error.ts'
import type { Logger } from '../../base/logger.ts'
import { type ServedCertificate, served } from './certificate-file.ts'

/** Only the owner can renew it, so warnings start this early. */
const WARN_BEFORE_MS = 14 * 86_400_000

/** Advice for a certificate in GATEWAY_TLS_CERT that expires soon or has expired. */
export function ownCertificateProblem(endsAt: number | undefined, now: number): string | undefined {
  if (endsAt === undefined || now < endsAt - WARN_BEFORE_MS) return undefined
  const verb = now < endsAt ? 'expires' : 'has expired'
  return `The certificate in GATEWAY_TLS_CERT ${verb} on ${new Date(endsAt).toISOString().slice(0, 10)}. Replace it.`
}

export interface OwnCertificateOptions {
  /** PEM chain, leaf first. */
  readonly certPath: string
  readonly keyPath: string
  readonly log: Logger
}

/** Certificate that the gateway's owner has configured. It is read again when its files change. */
export class OwnCertificate {
  readonly #options: OwnCertificateOptions
  #served: ServedCertificate | undefined
  #endsAt: number | undefined

  constructor(options: OwnCertificateOptions) {
    this.#options = options
  }

  /** Undefined before the first `load()`. */
  get served(): ServedCertificate | undefined {
    return this.#served
  }

  /** Expiry, in milliseconds since the epoch. */
  get endsAt(): number | undefined {
    return this.#endsAt
  }

  /** Throws a StartError if the files cannot be used. */
  load(): void {
    const { certPath, keyPath } = this.#options
    try {
      const certPem = readFileSync(certPath, 'utf8')
      const keyPem = readFileSync(keyPath, 'utf8')
      if (certPem === this.#served?.certPem && keyPem === this.#served.keyPem) return
      const next = served({ certPem, keyPem })
      this.#endsAt = Date.parse(new X509Certificate(certPem).validTo)
      this.#served = next
    } catch (error) {
      throw new StartError(
        `The certificate ${certPath} cannot be used with the key ${keyPath}: ${(error as Error).message}.`,
        { cause: error },
      )
    }
  }

  /** Like `load()`, but keeps the current certificate if the new files are invalid. */
  reload(): void {
    try {
      this.load()
    } catch (error) {
      this.#options.log.error(
        { err: error },
        'certificate not reloaded: the previous certificate stays in use',
      )
    }
  }
}

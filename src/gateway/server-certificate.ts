import { createSecureContext, type SecureContext } from 'node:tls'
import type { Clock } from '../base/clock.ts'
import { type CertificateAuthority, LEAF_LIFE_MS } from './certificate-authority.ts'
import {
  type KeptCertificate,
  keep,
  loadCertificate,
  normalName,
  saveCertificate,
} from './certificate-file.ts'

/** A certificate is replaced when a third of its life is left. */
const RENEW_BEFORE_MS = LEAF_LIFE_MS / 3

export interface ServerCertificateOptions {
  /** Where the certificate outlives the process; without it, it does not. */
  readonly path?: string
  readonly names: readonly string[]
  readonly authority: CertificateAuthority
  readonly clock: Clock
}

/** One certificate of the own CA: issued when it is missing, replaced before it ends. */
export class ServerCertificate {
  readonly #options: ServerCertificateOptions
  #kept: KeptCertificate | undefined
  #context: SecureContext | undefined

  constructor(options: ServerCertificateOptions) {
    this.#options = options
  }

  /** When it will be replaced, in milliseconds since the epoch; undefined before the first issue. */
  get renewsAt(): number | undefined {
    return this.#kept && this.#kept.notAfter - RENEW_BEFORE_MS
  }

  /** The certificate and key to serve; undefined before the first `refresh()`. */
  get kept(): KeptCertificate | undefined {
    return this.#kept
  }

  /** The same for `SNICallback`. */
  get context(): SecureContext | undefined {
    return this.#context
  }

  /** Loads or issues what is needed. True when there is something new to serve. */
  async refresh(): Promise<boolean> {
    if (this.#kept && this.#isGood(this.#kept)) return false
    this.#kept = this.#load() ?? (await this.#issue())
    const { certPem: cert, keyPem: key } = this.#kept
    this.#context = createSecureContext({ cert, key, minVersion: 'TLSv1.2' })
    return true
  }

  #load(): KeptCertificate | undefined {
    const { path, authority } = this.#options
    const kept = path === undefined ? undefined : loadCertificate(path, authority.certPem)
    return kept && this.#isGood(kept) ? kept : undefined
  }

  async #issue(): Promise<KeptCertificate> {
    const { path, names, authority } = this.#options
    const issued = await authority.issue(names)
    if (path !== undefined) saveCertificate(path, issued)
    return keep(issued)
  }

  #isGood({ names, notBefore, notAfter }: KeptCertificate): boolean {
    const now = this.#options.clock.now()
    return (
      notBefore <= now &&
      now < notAfter - RENEW_BEFORE_MS &&
      this.#options.names.every((name) => names.includes(normalName(name)))
    )
  }
}

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Client } from 'acme-client'
import { StartError } from '../../base/app-error.ts'
import { writeFileDurably } from '../../base/file.ts'
import { Limiter } from '../../base/limiter.ts'
import type { CertificateSource, IssuedCertificate } from '../certificate-file.ts'
import { challengeTarget } from '../dns-target.ts'
import { createPrivateKeyPem } from '../private-key.ts'
import type { ReservedDomain } from '../reserved-domain-store.ts'
import type { ChallengeZone } from './challenge-zone.ts'

/** Orders under way at once; authorities limit them too. */
const MAX_ORDERS = 4
const REQUEST_MS = 30_000

export interface AcmeAuthorityOptions {
  /** Where the authority's directory is (RFC 8555 section 7.1.1). */
  readonly directoryUrl: string
  /** Whom the authority may write to when something is wrong. */
  readonly email: string | undefined
  /** Holds `acme-account.key`; made at the first order. */
  readonly folder: string
  /** Where the authority looks for the answers to its challenges. */
  readonly zone: ChallengeZone
  readonly cnameBase: string
}

/** An authority that issues over ACME (RFC 8555) to who answers its DNS challenges. */
export class AcmeAuthority {
  readonly #options: AcmeAuthorityOptions
  readonly #orders = new Limiter(MAX_ORDERS)
  #opening: Promise<Client> | undefined

  constructor(options: AcmeAuthorityOptions) {
    this.#options = options
  }

  /** Tells the certificates of one authority from those of another. */
  get name(): string {
    return new URL(this.#options.directoryUrl).hostname
  }

  /** The source of certificates for one domain, whose challenges its CNAME record leads here. */
  sourceFor(domain: ReservedDomain): CertificateSource {
    return {
      issue: (names) => this.#orders.run(() => this.#order(domain, names)),
      // Chains change; what lies under this authority's name with its own key is good.
      hasIssued: () => true,
    }
  }

  async #order(domain: ReservedDomain, names: readonly string[]): Promise<IssuedCertificate> {
    const { zone, cnameBase, email } = this.#options
    const { crypto } = await import('acme-client')
    const client = await this.#client()
    const keyPem = await createPrivateKeyPem(domain.privateKeyType)
    const [, csr] = await crypto.createCsr({ altNames: [...names] }, keyPem)
    const target = challengeTarget(domain, cnameBase)
    const certPem = await client.auto({
      csr,
      ...(email === undefined ? {} : { email }),
      // Who names an authority in the settings has agreed to its terms.
      termsOfServiceAgreed: true,
      challengePriority: ['dns-01'],
      // The client would ask the machine's resolver, which may know another world.
      skipChallengeVerification: true,
      challengeCreateFn: async (_authorization, { type }, value) => {
        if (type !== 'dns-01') throw new Error(`the authority offers ${type}, not dns-01`)
        zone.publish(target, value)
      },
      challengeRemoveFn: async (_authorization, _challenge, value) => zone.withdraw(target, value),
    })
    return { certPem, keyPem }
  }

  /** The client is large, and most gateways never need it. */
  #client(): Promise<Client> {
    this.#opening ??= this.#open().catch((error) => {
      this.#opening = undefined
      throw error
    })
    return this.#opening
  }

  async #open(): Promise<Client> {
    const { directoryUrl, folder } = this.#options
    const { axios, Client } = await import('acme-client')
    axios.defaults.timeout = REQUEST_MS
    // There is one schedule of retries, that of the domain.
    Object.assign(axios.defaults, { acmeSettings: { retryMaxAttempts: 0 } })
    return new Client({ directoryUrl, accountKey: await readAccountKey(folder) })
  }
}

async function readAccountKey(folder: string): Promise<string> {
  const path = join(folder, 'acme-account.key')
  if (!existsSync(path)) writeFileDurably(path, await createPrivateKeyPem())
  const keyPem = readFileSync(path, 'utf8')
  if (keyPem.includes('PRIVATE KEY')) return keyPem
  throw new StartError(`${path} is no private key: put it back from a backup, or delete it.`)
}

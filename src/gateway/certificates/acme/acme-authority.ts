import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { writeFileDurably } from '../../../base/file.ts'
import { Semaphore } from '../../../base/semaphore.ts'
import { challengeTarget } from '../../records/dns-target.ts'
import { createPrivateKeyPem } from '../../records/private-key.ts'
import type { ReservedDomain } from '../../records/reserved-domain-store.ts'
import type { CertificateSource, IssuedCertificate } from '../certificate-file.ts'
import type { AcmeAccount, AcmeAccountOptions } from './acme-account.ts'
import type { ChallengeZone } from './challenge-zone.ts'

const ACCOUNT_KEY = 'acme-account.key'
/** Orders under way at once; authorities limit them too. */
const MAX_ORDERS = 4

export interface AcmeAuthorityOptions extends Omit<AcmeAccountOptions, 'accountKey'> {
  /** Holds `acme-account.key`; made at the first order. */
  readonly folder: string
  /** Where the authority looks for the answers to its challenges. */
  readonly zone: ChallengeZone
  readonly cnameBase: string
}

/** An authority that issues over ACME (RFC 8555) to who answers its DNS challenges. */
export class AcmeAuthority {
  readonly #options: AcmeAuthorityOptions
  readonly #orders = new Semaphore(MAX_ORDERS)
  #opening: Promise<AcmeAccount> | undefined

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
    const { zone, cnameBase } = this.#options
    const account = await this.#account()
    const keyPem = await createPrivateKeyPem(domain.privateKeyType)
    const target = challengeTarget(domain, cnameBase)
    const certPem = await account.order({
      names,
      keyPem,
      publish: (value) => zone.publish(target, value),
      withdraw: (value) => zone.withdraw(target, value),
    })
    return { certPem, keyPem }
  }

  #account(): Promise<AcmeAccount> {
    this.#opening ??= this.#open().catch((error) => {
      this.#opening = undefined
      throw error
    })
    return this.#opening
  }

  async #open(): Promise<AcmeAccount> {
    const { AcmeAccount } = await import('./acme-account.ts')
    return new AcmeAccount({ ...this.#options, accountKey: await readAccountKey(this.#options) })
  }
}

async function readAccountKey({ folder }: AcmeAuthorityOptions): Promise<string> {
  const path = join(folder, ACCOUNT_KEY)
  const keyPem = existsSync(path) ? readFileSync(path, 'utf8') : await makeAccountKey(path)
  if (keyPem.includes('PRIVATE KEY')) return keyPem
  throw new Error(`${ACCOUNT_KEY} is no private key: put it back from a backup, or delete it`)
}

async function makeAccountKey(path: string): Promise<string> {
  const keyPem = await createPrivateKeyPem()
  try {
    writeFileDurably(path, keyPem)
  } catch (error) {
    // People read this in the status of their domains; the log has the path.
    const { code = 'unknown' } = error as NodeJS.ErrnoException
    throw new Error(
      `${ACCOUNT_KEY} cannot be written (${code}): free space, or make its folder writable`,
      { cause: error },
    )
  }
  return keyPem
}

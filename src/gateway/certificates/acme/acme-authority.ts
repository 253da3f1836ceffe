import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Clock } from '../../../base/clock.ts'
import type { Closer } from '../../../base/closer.ts'
import { writeFileDurably } from '../../../base/file.ts'
import type { ListenAddress } from '../../../base/listen-address.ts'
import type { Logger } from '../../../base/logger.ts'
import { Semaphore } from '../../../base/semaphore.ts'
import { challengeTarget, challengeZone } from '../../records/domain-name.ts'
import { createPrivateKeyPem, isPrivateKey } from '../../records/private-key.ts'
import type { ReservedDomain } from '../../records/reserved-domain-store.ts'
import type { IssuedCertificate } from '../certificate-file.ts'
import type { ManagedCertificate, ManagedCertificateOptions } from '../server-certificate.ts'
import type {
  AcmeAccount,
  AcmeAccountOptions,
  AcmeOrder,
  ChallengeAnswer,
  ChallengeType,
} from './acme-account.ts'
import { AcmeCertificate } from './acme-certificate.ts'
import { ChallengeAnswers } from './challenge-answers.ts'
import { answerDns, answerDnsReading } from './dns-answer.ts'
import { DnsListener } from './dns-listener.ts'
import { EarlierCertificate, type EarlierCertificateOptions } from './earlier-certificate.ts'
import {
  ChallengeZone,
  httpName,
  type OrderBook,
  type SiteOrder,
  tlsAlpnName,
} from './order-book.ts'
import type { Gated, OrderGate } from './order-gate.ts'
import { SharedCertificate } from './shared-certificate.ts'

interface AcmeOptions {
  /** Data directory of the gateway. */
  readonly dataDir: string
  /** Unset: no certificates are ordered. */
  readonly acme: { readonly directoryUrl: string; readonly email: string | undefined } | undefined
  /** Address for the authority's DNS queries about challenges. */
  readonly dnsListen: ListenAddress | undefined
  readonly cnameBase: string
  readonly clock: Clock
  readonly log: Logger
}

interface OpenAcme {
  readonly authority: AcmeAuthority | undefined
  /** Answers of the public listeners, if there is an authority. */
  readonly challenges: ChallengeAnswers | undefined
  readonly dns: DnsListener | undefined
  readonly dnsAddress: ListenAddress | undefined
}

/** Creates the configured authority and the DNS server for its challenges, before the first order. */
export async function openAcme(
  { acme, dnsListen, cnameBase, dataDir: folder, clock, log }: AcmeOptions,
  book: OrderBook | undefined,
  closer: Closer,
): Promise<OpenAcme> {
  const zone = new ChallengeZone(challengeZone(cnameBase))
  const { name } = zone
  const dns =
    dnsListen &&
    new DnsListener({
      listen: dnsListen,
      answer: (message, transport) =>
        book
          ? answerDnsReading(message, { name, read: () => book.zone(name) }, transport)
          : answerDns(message, zone, transport),
      ...{ clock, log },
    })
  if (dns) closer.own('dns listener', dns, (it) => it.stop())
  const dnsAddress = await dns?.start()
  const hasDns = dnsListen !== undefined
  const authority = acme && new AcmeAuthority({ ...acme, folder, zone, cnameBase, hasDns, book })
  const challenges = acme && new ChallengeAnswers({ zone: () => (book ? book.zone(name) : zone) })
  return { authority, challenges, dns, dnsAddress }
}

/** File name of the account key. */
export const ACCOUNT_KEY = 'acme-account.key'
const IN_SITE = `The row ${ACCOUNT_KEY} of the table site_secrets in PostgreSQL`
/** Concurrent orders; authorities limit them too. */
export const MAX_ORDERS = 4

export interface AcmeAuthorityOptions extends Omit<AcmeAccountOptions, 'accountKey'> {
  /** Directory of `acme-account.key`, which the first order creates. */
  readonly folder: string
  /** Zone with the answers to the authority's challenges. */
  readonly zone: ChallengeZone
  readonly cnameBase: string
  /** Whether a DNS server of this gateway answers DNS challenges. */
  readonly hasDns: boolean
  /** Shared orders of several gateways. Unset: this gateway orders alone. */
  readonly book?: OrderBook | undefined
}

/** How the answer to a challenge gets to the authority. */
type Answering = Pick<AcmeOrder, 'publish' | 'withdraw' | 'requireWanted'>

const DNS_ONLY: readonly ChallengeType[] = ['dns-01']

interface Ordered {
  readonly domain: ReservedDomain
  readonly names: readonly string[]
  readonly gate: OrderGate | undefined
  readonly isRenewal: boolean
}

/** An authority that issues certificates over ACME (RFC 8555). */
export class AcmeAuthority {
  readonly #options: AcmeAuthorityOptions
  readonly #orders = new Semaphore(MAX_ORDERS)
  #opening: Promise<AcmeAccount> | undefined

  constructor(options: AcmeAuthorityOptions) {
    this.#options = options
  }

  /** Distinguishes certificates of different authorities. */
  get name(): string {
    return new URL(this.#options.directoryUrl).hostname
  }

  /**
   * Returns the certificate of a domain. With a gate, the public listeners answer its challenges; else its
   * CNAME record leads them to this gateway.
   */
  certificateFor(options: ManagedCertificateOptions & Gated): ManagedCertificate {
    const { domain, gate } = options
    const { zone, cnameBase, book } = this.#options
    const nameOf = ({ type, token }: ChallengeAnswer) => {
      if (type === 'dns-01') return challengeTarget(domain, cnameBase)
      return type === 'http-01' ? httpName(domain.domain, token) : tlsAlpnName(domain.domain)
    }
    if (book) {
      const issue = (names: readonly string[], isRenewal: boolean, order: SiteOrder) =>
        this.#order(
          { domain, names, gate, isRenewal },
          {
            publish: (answer) => order.publish(nameOf(answer), answer.value),
            // It is removed with the order.
            withdraw: () => {},
            requireWanted: () => order.requireOwn(),
          },
        )
      return new SharedCertificate({ ...options, authority: this.name, book, issue })
    }
    const answering: Answering = {
      publish: (answer) => zone.publish(nameOf(answer), answer.value),
      withdraw: (answer) => zone.withdraw(nameOf(answer), answer.value),
    }
    const certificate: AcmeCertificate = new AcmeCertificate({
      ...options,
      names: () => [domain.domain],
      keyType: domain.privateKeyType,
      authority: {
        issue: (names) => {
          const isRenewal = certificate.served !== undefined
          return this.#order({ domain, names, gate, isRenewal }, answering)
        },
        // Chains change, so any certificate with its own key under this authority's name is accepted.
        hasIssued: () => true,
      },
    })
    return certificate
  }

  /** Returns the certificate of an earlier policy of a domain, which is served until there is another. */
  earlierFor(options: EarlierCertificateOptions): EarlierCertificate {
    return new EarlierCertificate({ ...options, authority: this.name, book: this.#options.book })
  }

  /** Also removes the certificates of a released domain from the records of other gateways. */
  async forget({ id }: ReservedDomain): Promise<void> {
    await this.#options.book?.forget(id)
  }

  #order(
    { domain, names, gate, isRenewal }: Ordered,
    answering: Answering,
  ): Promise<IssuedCertificate> {
    if (!gate && !this.#options.hasDns) {
      throw new Error(
        'the challenge dns-01 requires GATEWAY_DNS_LISTEN: set it, or choose the challenge on-demand',
      )
    }
    return this.#orders.run(async () => {
      const account = await this.#account()
      const keyPem = await createPrivateKeyPem(domain.privateKeyType)
      const types = (await gate?.begin({ isRenewal })) ?? DNS_ONLY
      return { certPem: await account.order({ names, keyPem, types, ...answering }), keyPem }
    })
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
    const { book, folder } = this.#options
    const path = join(folder, ACCOUNT_KEY)
    const accountKey = book
      ? // A key from before the cluster becomes the key of the cluster.
        requireKey(await book.accountKey(() => readAccountKey(path, createPrivateKeyPem)), IN_SITE)
      : await readAccountKey(path, () => makeAccountKey(path))
    return new AcmeAccount({ ...this.#options, accountKey })
  }
}

/** Reads the key; `make` creates it if it is missing. Throws if the file contains something else. */
async function readAccountKey(path: string, make: () => Promise<string>): Promise<string> {
  const keyPem = existsSync(path) ? readFileSync(path, 'utf8') : await make()
  return requireKey(keyPem, ACCOUNT_KEY)
}

/** Never replaces the key: a new key means a new account, so a person must decide. */
function requireKey(keyPem: string, where: string): string {
  if (isPrivateKey(keyPem)) return keyPem
  throw new Error(`${where} is not a valid private key: restore it from a backup, or delete it`)
}

async function makeAccountKey(path: string): Promise<string> {
  const keyPem = await createPrivateKeyPem()
  try {
    writeFileDurably(path, keyPem)
  } catch (error) {
    // Shown in the status of domains; the log has the path.
    const { code = 'unknown' } = error as NodeJS.ErrnoException
    throw new Error(
      `${ACCOUNT_KEY} cannot be written (${code}): free disk space, or make its directory writable`,
      { cause: error },
    )
  }
  return keyPem
}

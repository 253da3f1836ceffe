import { hostname } from 'node:os'
import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { isAnyHost, machineAddresses, type PublicName } from '../../base/net/public-names.ts'
import { isInternal } from '../records/domain-name.ts'
import type { ReservedDomainStore } from '../records/reserved-domain-store.ts'
import type { AcmeAuthority } from './acme/acme-authority.ts'
import { CertificateAuthority } from './certificate-authority.ts'
import { CERTIFICATES, type KeptCertificate, type ServedCertificate } from './certificate-file.ts'
import {
  CERTIFICATE_CHECK_MS,
  DomainCertificates,
  type DomainCertificatesDeps,
  type OnDemand,
} from './domain-certificates.ts'
import { OwnCertificate } from './own-certificate.ts'
import { ServerCertificate } from './server-certificate.ts'

/** Interval for checking the wall clock, and the clock step that triggers a check of the certificates. */
const CLOCK_POLL_MS = 5_000
const CLOCK_STEP_MS = 60_000

export interface CertificateKeeperOptions {
  readonly dataDir: string
  /** Host that agents connect to. It is a name in the server certificate. */
  readonly agentHost: string
  /** Other names and addresses of the gateway, for the server certificate. */
  readonly publicNames: readonly PublicName[]
  /** Certificate for the whole HTTPS ingress, instead of certificates of the gateway's CA. */
  readonly tls: { readonly certPath: string; readonly keyPath: string } | undefined
  readonly acme: AcmeAuthority | undefined
  readonly onDemand?: OnDemand | undefined
  readonly domains: ReservedDomainStore
  /** Uploaded certificates. */
  readonly uploads: DomainCertificatesDeps['uploads']
  /** Opens their private keys. */
  readonly seal: DomainCertificatesDeps['seal']
  readonly clock: Clock
  readonly log: Logger
}

/** A host that is online at any gateway, and the account of its endpoint. */
interface OnlineHost {
  readonly host: string
  readonly ownerId: string | null
}

/** All certificates of the gateway, renewed for as long as it runs. */
export class CertificateKeeper {
  /** CA certificate that agents and clients must trust. */
  readonly caCertPath: string
  readonly domains: DomainCertificates
  readonly #options: CertificateKeeperOptions
  readonly #authority: CertificateAuthority
  readonly #server: ServerCertificate
  readonly #own: OwnCertificate | undefined
  readonly #stopping = new AbortController()

  private constructor(options: CertificateKeeperOptions, authority: CertificateAuthority) {
    const { dataDir, tls, clock, log } = options
    this.caCertPath = authority.certPath
    this.domains = new DomainCertificates({
      ...options,
      folder: join(dataDir, CERTIFICATES),
      authority,
    })
    this.#options = options
    this.#authority = authority
    this.#server = new ServerCertificate({
      path: join(dataDir, 'server.pem'),
      names: () => serverNames(options),
      hasOnlyOurNames: true,
      authority,
      clock,
      log,
    })
    this.#own = tls && new OwnCertificate({ ...tls, log })
  }

  /** Loads or creates all certificates. Throws a StartError if a person must act. */
  static async open(options: CertificateKeeperOptions): Promise<CertificateKeeper> {
    const { dataDir: folder, clock, log } = options
    const keeper = new CertificateKeeper(
      options,
      await CertificateAuthority.open({ folder, clock, log }),
    )
    keeper.#own?.load()
    await keeper.#server.refresh()
    await keeper.domains.refresh()
    return keeper
  }

  /** CA certificate that agents and clients must trust, PEM. */
  get caCertPem(): string {
    return this.#authority.certPem
  }

  /** Certificate for agents. */
  get server(): KeptCertificate {
    const { kept } = this.#server
    if (!kept) throw new Error('the server certificate is not loaded')
    return kept
  }

  /** Expiry of the certificate that the gateway's owner has configured, if there is one. */
  get ownEndsAt(): number | undefined {
    return this.#own?.endsAt
  }

  /** Certificate for HTTPS clients; the server certificate if the name is not reserved. */
  served(serverName: string | undefined): ServedCertificate {
    const found =
      this.#own?.served ??
      (serverName === undefined ? undefined : this.domains.served(serverName)) ??
      this.#server.served
    if (!found) throw new Error('no certificate is loaded')
    return found
  }

  /** Makes sure that HTTPS clients of a host get a certificate. `ownerId`: account of the endpoint. */
  async coverHost(host: string, ownerId: string | null): Promise<void> {
    if (!this.#own && !isInternal(host)) await this.domains.cover(host, ownerId)
  }

  /**
   * The same for a visitor of a host that is online at any gateway. Undefined if the host has a certificate.
   * Never rejects: after a failure, the visitor gets the server certificate.
   */
  cover({ host, ownerId }: OnlineHost): Promise<void> | undefined {
    if (this.#own || this.domains.isCovered(host)) return undefined
    return this.coverHost(host, ownerId).catch((err: unknown) => {
      this.#options.log.error({ err, host }, 'certificate not issued')
    })
  }

  /** Renews due certificates until `stop()`. */
  start(onNewServerCertificate: (certificate: KeptCertificate) => void): void {
    // The sleep rejects when the keeper stops; there is no work left then.
    this.#run(onNewServerCertificate).catch(() => {})
  }

  stop(): void {
    this.#stopping.abort()
    this.domains.stop()
  }

  async #run(onNewServerCertificate: (certificate: KeptCertificate) => void): Promise<void> {
    for (;;) {
      await this.#untilNextCheck()
      try {
        this.#own?.reload()
        await this.#authority.refresh()
        if (await this.#server.refresh()) onNewServerCertificate(this.server)
        await this.domains.refresh()
      } catch (error) {
        this.#options.log.error({ err: error }, 'certificates not renewed, will retry')
      }
    }
  }

  /** Ends early if the clock was corrected, because a machine may start with a wrong time. */
  async #untilNextCheck(): Promise<void> {
    const { clock } = this.#options
    const aheadMs = () => clock.now() - clock.monotonic()
    const before = aheadMs()
    const until = clock.monotonic() + CERTIFICATE_CHECK_MS
    while (clock.monotonic() < until && Math.abs(aheadMs() - before) < CLOCK_STEP_MS) {
      await clock.sleep(CLOCK_POLL_MS, this.#stopping.signal)
    }
  }
}

/** Names under which agents may reach this machine. */
function serverNames({ agentHost, publicNames }: CertificateKeeperOptions): string[] {
  const own = isAnyHost(agentHost) ? [hostname().toLowerCase(), ...machineAddresses()] : [agentHost]
  const given = publicNames.map(({ host }) => host)
  return [...new Set(['localhost', '127.0.0.1', '::1', ...own, ...given])]
}

import { X509Certificate } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { ClusterAuthority, requestFor } from './peers/cluster-authority.ts'
import type { ClusterMaterial } from './peers/join-token.ts'
import { keepIdentity, type PeerIdentity } from './peers/peer-identity.ts'

/** A certificate is good for a year: that leaves months for a database that is away, or a broken clock. */
const RENEW_BEFORE_MS = 120 * 86_400_000
const POLL_MS = 12 * 3_600_000

export interface OwnIdentityOptions {
  /** Directory of the identity. */
  readonly folder: string
  readonly identity: PeerIdentity
  readonly material: Pick<ClusterMaterial, 'keepAuthority'>
  readonly onRenewed: (identity: PeerIdentity) => void
  readonly log: Logger
  readonly clock: Clock
}

/**
 * The certificate by which other gateways recognize this one. It is renewed before its end, with the same
 * key.
 */
export class OwnIdentity {
  readonly #options: OwnIdentityOptions
  readonly #stopping = new AbortController()
  #current: PeerIdentity

  constructor(options: OwnIdentityOptions) {
    this.#options = options
    this.#current = options.identity
  }

  get current(): PeerIdentity {
    return this.#current
  }

  start(): void {
    void this.#keep()
  }

  stop(): void {
    this.#stopping.abort('stopped')
  }

  async #keep(): Promise<void> {
    const { clock, log } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await this.#renewWhenDue().catch((err: unknown) => {
        log.warn({ err }, 'the node certificate is not renewed yet')
      })
      await clock.sleep(POLL_MS, signal).catch(() => {})
    }
  }

  async #renewWhenDue(): Promise<void> {
    const { clock, folder, material, onRenewed, log } = this.#options
    const { nodeId, keyPem, certPem } = this.#current
    const endsAt = Date.parse(new X509Certificate(certPem).validTo)
    if (endsAt - clock.now() > RENEW_BEFORE_MS) return
    const kept = await material.keepAuthority(() =>
      Promise.reject(new Error('the cluster has no CA')),
    )
    const authority = await ClusterAuthority.open(kept)
    const renewed = await authority.issue(nodeId, await requestFor(keyPem), clock.now())
    const identity = { ...this.#current, certPem: renewed }
    keepIdentity(folder, identity)
    this.#current = identity
    onRenewed(identity)
    log.info('node certificate renewed')
  }
}

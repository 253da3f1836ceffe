import type { Clock } from '../../../base/clock.ts'
import type { ChallengeType } from './acme-account.ts'
import type { CertificateOrderStore, OrderDelay, WantedOrder } from './certificate-order-store.ts'
import type { OwnAddresses } from './own-addresses.ts'

/** Delays between DNS checks of a name that does not lead here yet. They cost no order. */
const DNS_CHECK_MS = 30_000
const MAX_DNS_CHECK_MS = 600_000
/** Interval for checking whether a name is wanted again. */
const UNWANTED_MS = 5_000

/** Whether an order may be placed now. */
export type OrderVerdict =
  | { readonly kind: 'go' }
  /** No certificate is needed, for example because a wildcard certificate covers the name. */
  | { readonly kind: 'unwanted'; readonly waitMs: number }
  | ({ readonly kind: 'later' } & OrderDelay)

/** Admits the orders for one name. */
export interface OrderGate {
  /** `isEarly`: the delay after the last failure is skipped, because a person asked or has waited. */
  check(of: { readonly isRenewal: boolean; readonly isEarly: boolean }): Promise<OrderVerdict>
  /**
   * Counts an order before it is placed. Rejects if a budget is used up. Returns the types of challenges, the
   * preferred type first: it alternates after failures, because one of the ports may be closed.
   */
  begin(of: { readonly isRenewal: boolean }): Promise<readonly ChallengeType[]>
  /**
   * Records the result of the counted order; without an error the certificate is served. Returns false if no
   * order was counted. Never rejects.
   */
  conclude(error?: string): Promise<boolean>
}

/** For a certificate with a gate. Unset: an order follows whenever the certificate is due. */
export interface Gated {
  readonly gate?: OrderGate | undefined
}

export interface OrderGatesOptions {
  readonly orders: CertificateOrderStore
  readonly addresses: Pick<OwnAddresses, 'problemOf'>
  readonly clock: Clock
}

/** A name that may get a certificate of its own. */
export interface GatedName {
  readonly name: string
  /** Account whose budget it uses. Undefined while the name needs no certificate of its own. */
  readonly account: () => Pick<WantedOrder, 'ownerId'> | undefined
}

/**
 * Admits orders of certificates on demand.
 *
 * INVARIANTS
 * - The name is checked before each order: it is wanted, and DNS leads it to this gateway.
 * - An order is counted on disk before the authority hears of it, so that a crash cannot repeat it for free.
 */
export class OrderGates {
  readonly #options: OrderGatesOptions

  constructor(options: OrderGatesOptions) {
    this.#options = options
  }

  gateFor({ name, account }: GatedName): OrderGate {
    const { orders, addresses, clock } = this.#options
    let dnsFailures = 0
    let counted: string | undefined
    return {
      check: async ({ isRenewal, isEarly }) => {
        const owner = account()
        if (!owner) return { kind: 'unwanted', waitMs: UNWANTED_MS }
        const now = clock.now()
        const failed = isEarly ? undefined : orders.delayAfterFailure(name, now)
        const delay = failed ?? orders.overBudget({ name, ...owner, isRenewal }, now)
        if (delay) return { kind: 'later', ...delay }
        const reason = await addresses.problemOf(name)
        if (reason === undefined) {
          dnsFailures = 0
          return { kind: 'go' }
        }
        const waitMs = Math.min(MAX_DNS_CHECK_MS, DNS_CHECK_MS * 2 ** Math.min(dnsFailures, 10))
        dnsFailures += 1
        return { kind: 'later', reason, waitMs }
      },
      begin: async ({ isRenewal }) => {
        const owner = account()
        if (!owner) throw new Error('the certificate is no longer needed')
        const now = clock.now()
        const types = typesAfter(orders.failuresOf(name, now))
        const id = await orders.begin({ name, ...owner, isRenewal }, now)
        if (typeof id !== 'string') throw new Error(id.reason)
        counted = id
        return types
      },
      conclude: async (error) => {
        const id = counted
        counted = undefined
        // Without a result on disk, the order counts as failed.
        if (id !== undefined) await orders.conclude(id, error).catch(() => {})
        return id !== undefined
      },
    }
  }
}

function typesAfter(failures: number): readonly ChallengeType[] {
  return failures % 2 === 0 ? ['tls-alpn-01', 'http-01'] : ['http-01', 'tls-alpn-01']
}

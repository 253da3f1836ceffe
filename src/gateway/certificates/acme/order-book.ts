import type { PrivateKeyType } from '../../records/private-key.ts'

/**
 * Names of answers to challenges on the public ports. The space keeps them apart from the DNS names of the
 * zone.
 */
export const tlsAlpnName = (host: string) => `${host} tls-alpn-01`
export const httpName = (host: string, token: string) => `${host} http-01 ${token}`

/** Answers to the challenges of all orders that are under way. */
export interface ZoneView {
  /** Top name of the zone, lower case. */
  readonly name: string
  /** TXT values of a lower-case name. Undefined while they are not known. */
  valuesOf(name: string): readonly string[] | undefined
}

/** Answers to ACME challenges (RFC 8555 section 8, RFC 8737), for as long as they are needed. */
export class ChallengeZone implements ZoneView {
  readonly name: string
  readonly #valuesOf = new Map<string, Set<string>>()

  constructor(name: string) {
    this.name = name
  }

  /** Adds a value. A name may have several values, because orders can overlap. */
  publish(name: string, value: string): void {
    const values = this.#valuesOf.get(name) ?? new Set()
    this.#valuesOf.set(name, values.add(value))
  }

  withdraw(name: string, value: string): void {
    const values = this.#valuesOf.get(name)
    values?.delete(value)
    if (values?.size === 0) this.#valuesOf.delete(name)
  }

  valuesOf(name: string): readonly string[] {
    return [...(this.#valuesOf.get(name) ?? [])]
  }
}

/** Whether the name is the zone itself or below it. */
export function isInZone(name: string, { name: zone }: Pick<ZoneView, 'name'>): boolean {
  return name === zone || name.endsWith(`.${zone}`)
}

/** Identifies a certificate. Another key type or authority means another certificate. */
export interface CertificateId {
  readonly domainId: string
  readonly authority: string
  readonly keyType: PrivateKeyType
}

/**
 * Shared record of a certificate in the cluster. Times are from the database, in milliseconds since the
 * epoch.
 */
export interface CertificateRecord {
  /** Rises with each change; 0 while there is no record. */
  readonly number: number
  /** Chain and key; undefined before the first issue. */
  readonly pem: string | undefined
  /** Start of the current or last order. */
  readonly startedAt: number | undefined
  /** Why the last order failed. Undefined if it succeeded, or an order is under way. */
  readonly error: string | undefined
  readonly retriesAt: number | undefined
  readonly failingSince: number | undefined
}

export type Claimed =
  | { readonly order: SiteOrder }
  /** Refused now, or for this gateway. `problem`: reason for people, if a person must act. */
  | { readonly waitMs: number; readonly problem?: string | undefined }

/** Result of an order. If both are unset, the order was abandoned and another may begin at once. */
export interface OrderOutcome {
  readonly pem?: string
  readonly error?: string
}

/** An order that only this gateway may place, until it is concluded or another gateway takes it over. */
export interface SiteOrder {
  /** Once this resolves, each gateway answers the challenge. Rejects if another gateway has the order. */
  publish(name: string, value: string): Promise<void>
  /** Rejects if another gateway has the order by now. */
  requireOwn(): Promise<void>
  /** Retries until the outcome is stored, or another gateway has the order. Never rejects. */
  conclude(outcome: OrderOutcome): Promise<void>
}

/**
 * Shared orders of several gateways. One gateway orders each certificate, and all gateways get it. A gateway
 * claims an order first.
 */
export interface OrderBook {
  /** Returns the local copy of the record, which may be slightly outdated. */
  find(id: CertificateId): CertificateRecord
  /** Calls `listener` when a certificate has news. Returns a function that stops that. */
  follow(id: CertificateId, listener: () => void): () => void
  /**
   * `seen`: number of the record that the request is based on. Rejects while the database cannot be reached.
   */
  claim(id: CertificateId, seen: number): Promise<Claimed>
  /** Ends the wait after a failure, a few times an hour. */
  retry(id: CertificateId): Promise<void>
  /** Deletes the keys of a released domain. */
  forget(domainId: string): Promise<void>
  /** Returns the shared account key, PEM. `make` creates it if the cluster has no key yet. */
  accountKey(make: () => Promise<string>): Promise<string>
  /** Current challenges of all orders. Never rejects. */
  zone(name: string): Promise<ZoneView>
}

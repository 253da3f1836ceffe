import type { PrivateKeyType } from '../../records/private-key.ts'

/** What a name server has to know of the zone in which challenges are answered. */
export interface ZoneView {
  /** The name above all others in it, lower case. */
  readonly name: string
  /** The TXT values of a lower-case name; undefined when nobody knows at the moment. */
  valuesOf(name: string): readonly string[] | undefined
}

/** The answers to ACME's DNS challenges (RFC 8555 section 8.4), there while they are asked for. */
export class ChallengeZone implements ZoneView {
  readonly name: string
  readonly #valuesOf = new Map<string, Set<string>>()

  constructor(name: string) {
    this.name = name
  }

  /** A name may carry several values: orders can overlap. */
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

/** True for the zone itself and everything below it. */
export function isInZone(name: string, { name: zone }: Pick<ZoneView, 'name'>): boolean {
  return name === zone || name.endsWith(`.${zone}`)
}

/** Which certificate: another kind of key, or another authority, makes another one. */
export interface CertificateId {
  readonly domainId: string
  readonly authority: string
  readonly keyType: PrivateKeyType
}

/** What all gateways of a site know of a certificate. Times are those of the database, in ms since the epoch. */
export interface CertificateRecord {
  /** Rises with each change; 0 while nothing is known. */
  readonly number: number
  /** Chain and key; undefined before the first was issued. */
  readonly pem: string | undefined
  /** Of the order that is under way, or was last. */
  readonly startedAt: number | undefined
  /** Why the last order failed; undefined when it did not, or one is under way. */
  readonly error: string | undefined
  readonly retriesAt: number | undefined
  readonly failingSince: number | undefined
}

export type Claimed =
  | { readonly order: SiteOrder }
  /** Not now, or not by this gateway; `problem` is what people have to do something about, for them. */
  | { readonly waitMs: number; readonly problem?: string | undefined }

/** What becomes of an order; neither: it was given up, and another may begin at once. */
export interface OrderOutcome {
  readonly pem?: string
  readonly error?: string
}

/** An order that this gateway alone may place, until it is concluded or another one takes it over. */
export interface SiteOrder {
  /** When it resolves, each gateway answers the challenge. Rejects when the order is another's. */
  publish(name: string, value: string): Promise<void>
  /** Rejects when the order is another gateway's by now. */
  requireOwn(): Promise<void>
  /** Tried until it is kept, or the order is another's. Never rejects. */
  conclude(outcome: OrderOutcome): Promise<void>
}

/**
 * The orders of several gateways: each certificate is ordered by one of them, and all have what was
 * issued. Whoever wants one claims it first.
 */
export interface OrderBook {
  /** What is known here; it may be a moment old. */
  find(id: CertificateId): CertificateRecord
  /** Calls `listener` when there is something new of a certificate; returns how to stop that. */
  follow(id: CertificateId, listener: () => void): () => void
  /** `seen` is the number of the record on which the wish is based. Rejects while nobody can be asked. */
  claim(id: CertificateId, seen: number): Promise<Claimed>
  /** Ends the wait after a failure, a few times an hour. */
  retry(id: CertificateId): Promise<void>
  /** The domain was given up: its keys go. */
  forget(domainId: string): Promise<void>
  /** The key of the account that all have together, PEM; `make` gives that of a site that has none. */
  accountKey(make: () => Promise<string>): Promise<string>
  /** The challenges of all orders, as they are at this moment. Never rejects. */
  zone(name: string): Promise<ZoneView>
}

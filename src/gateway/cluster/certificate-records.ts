import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { CertificateId, CertificateRecord } from '../certificates/acme/order-book.ts'
import { Cursor } from './postgres/database-follower.ts'
import type { PostgresConnection } from './postgres/postgres-connection.ts'

/** Rows of one message: each has a chain and a key, and has to come within the time for a statement. */
const MAX_ROWS = 100
const NOTHING: CertificateRecord = {
  ...{ number: 0, pem: undefined, startedAt: undefined, error: undefined },
  ...{ retriesAt: undefined, failingSince: undefined },
}

interface Row {
  readonly [column: string]: unknown
  readonly domain: string
  readonly authority: string
  readonly key_type: string
  readonly number: number
  readonly pem: string | null
  readonly started_at: number | null
  readonly error: string | null
  readonly failing_since: number | null
  readonly next_at: number
}

export interface CertificateRecordsOptions {
  readonly connection: Pick<PostgresConnection, 'query'>
  readonly lookMs: number
  readonly log: Logger
  readonly clock: Clock
}

/** Certificates of the site, as of the last poll. */
export class CertificateRecords {
  readonly #options: CertificateRecordsOptions
  readonly #cursor: Cursor
  #records = new Map<string, CertificateRecord>()
  readonly #listeners = new Map<string, () => void>()
  #seen = 0
  /** The database contradicts the known records: it may have been restored from an older copy. */
  #isDoubted = false
  /** Number of each record that was last refused as changed. */
  readonly #refused = new Map<string, number>()
  #reading: Promise<void> = Promise.resolve()

  constructor(options: CertificateRecordsOptions) {
    this.#options = options
    const { lookMs: pollMs, clock } = options
    this.#cursor = new Cursor({ poll: () => this.#poll(), pollMs, clock })
  }

  start(): void {
    this.#cursor.start()
    this.#cursor.wake()
  }

  stop(): Promise<void> {
    return this.#cursor.stop()
  }

  find(id: CertificateId): CertificateRecord {
    return this.#records.get(keyOf(id)) ?? NOTHING
  }

  /** See `OrderBook`. */
  follow(id: CertificateId, listener: () => void): () => void {
    const key = keyOf(id)
    this.#listeners.set(key, listener)
    return () => {
      if (this.#listeners.get(key) === listener) this.#listeners.delete(key)
    }
  }

  /**
   * The database has a different record than `seen`. Only a second report of the same number counts: the
   * first may be caused by a newer change.
   */
  doubt(id: CertificateId, seen: number): void {
    this.#isDoubted ||= this.#refused.get(keyOf(id)) === seen
    this.#refused.set(keyOf(id), seen)
  }

  /** Removes the keys of a deleted domain, including those that are being read. */
  async forget(domainId: string): Promise<void> {
    await this.#reading
    for (const records of [this.#records, this.#refused]) {
      for (const key of records.keys()) {
        if (key.startsWith(`${domainId} `) || key.startsWith(`${domainId}:`)) records.delete(key)
      }
    }
  }

  #poll(): Promise<void> {
    this.#reading = this.#readChanges().catch((err: unknown) => {
      this.#options.log.debug({ err }, 'the shared certificates were not read')
    })
    return this.#reading
  }

  async #readChanges(): Promise<void> {
    const [head] = await this.#options.connection.query<{ number: number }>(
      'SELECT number FROM certificate_head',
    )
    const latest = head?.number ?? 0
    const seen = this.#seen
    if (latest === seen && !this.#isDoubted) return
    const isAll = this.#isDoubted || latest <= seen || seen === 0
    // Missing rows are removed.
    const records = new Map(isAll ? [] : this.#records)
    const told = new Set(isAll ? this.#records.keys() : [])
    for await (const row of this.#rowsAfter(isAll ? 0 : seen)) {
      const key = keyOf({ ...row, domainId: row.domain, keyType: row.key_type })
      records.set(key, recordOf(row))
      told.add(key)
    }
    this.#records = records
    if (isAll) {
      this.#isDoubted = false
      this.#refused.clear()
    }
    this.#seen = latest
    for (const key of told) this.#listeners.get(key)?.()
  }

  /** A row that changes meanwhile has a later number, and comes again. */
  async *#rowsAfter(number: number): AsyncGenerator<Row> {
    let last = number
    for (;;) {
      const rows = await this.#options.connection.query<Row>(
        `SELECT domain, authority, key_type, number, pem, started_at, error, failing_since, next_at
         FROM certificates WHERE number > $1 ORDER BY number LIMIT ${MAX_ROWS}`,
        [last],
      )
      yield* rows
      last = rows.at(-1)?.number ?? last
      if (rows.length < MAX_ROWS) return
    }
  }
}

type LooseId = Pick<CertificateId, 'domainId' | 'authority'> & { readonly keyType: string }

function keyOf({ domainId, authority, keyType }: LooseId): string {
  return `${domainId} ${authority} ${keyType}`
}

function recordOf({ number, pem, started_at, error, failing_since, next_at }: Row) {
  return {
    number,
    pem: pem ?? undefined,
    startedAt: started_at ?? undefined,
    error: error ?? undefined,
    retriesAt: error === null ? undefined : next_at,
    failingSince: failing_since ?? undefined,
  }
}

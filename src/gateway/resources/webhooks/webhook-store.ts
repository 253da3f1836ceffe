import type { Database, Statement } from '../../../store/database.ts'
import type { Migration } from '../../../store/migrations.ts'
import type { EventType } from '../../records/event-store.ts'
import { ResourceTable } from '../../records/resource-table.ts'

export const WEBHOOK_MIGRATIONS: readonly Migration[] = [
  {
    id: 'webhook-endpoints-1',
    sql: `CREATE TABLE webhook_endpoints (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE CASCADE,
      url TEXT NOT NULL,
      description TEXT NOT NULL,
      event_types TEXT NOT NULL CHECK (json_valid(event_types)),
      secret TEXT NOT NULL,
      active INTEGER NOT NULL CHECK (active IN (0, 1)),
      delivered INTEGER NOT NULL,
      missed INTEGER NOT NULL,
      created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID`,
  },
  {
    id: 'webhook-endpoints-2',
    sql: `ALTER TABLE webhook_endpoints
      ADD COLUMN old_secrets TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(old_secrets))`,
  },
]

/** A replaced secret, which also signs until its end. Milliseconds since the epoch. */
export interface OldSecret {
  readonly secret: string
  readonly until: number
}

/** A receiver of events. */
export interface WebhookEndpoint {
  /** `wh_<ksuid>` */
  readonly id: string
  /** Account of its events; null: all accounts. */
  readonly ownerId: string | null
  readonly url: string
  readonly description: string
  /** Without any, it gets all. */
  readonly eventTypes: readonly EventType[]
  /** `whsec_` and base64. It signs deliveries, so it is stored as plain text. */
  readonly secret: string
  /** Newest first. */
  readonly oldSecrets: readonly OldSecret[]
  /** While false, nothing is sent; it goes on from where it was. */
  readonly isActive: boolean
  /** The sequence of the last event that it has taken, or does not want. */
  readonly delivered: number
  /** Events that had left the gateway's log before it took them. */
  readonly missed: number
  readonly createdAt: number
}

export class WebhookStore extends ResourceTable<WebhookEndpoint> {
  readonly #database: Database
  readonly #ids: Statement<[], string>
  readonly #countOf: Statement<[string | null], number>
  readonly #farthest: Statement<[], number>
  readonly #noteDelivered: Statement<[number, number, string]>
  readonly #deactivate: Statement<[string]>

  constructor(database: Database) {
    super({
      database,
      name: 'webhook_endpoints',
      columns: {
        id: 'plain',
        ownerId: 'plain',
        url: 'plain',
        description: 'plain',
        eventTypes: 'json',
        secret: 'plain',
        oldSecrets: 'json',
        isActive: 'flag',
        delivered: 'plain',
        missed: 'plain',
        createdAt: 'plain',
      },
    })
    this.#database = database
    this.#ids = database.prepare<[], string>('SELECT id FROM webhook_endpoints ORDER BY id').pluck()
    this.#countOf = database
      .prepare<[string | null], number>(
        'SELECT count(*) FROM webhook_endpoints WHERE owner_id IS ?',
      )
      .pluck()
    this.#farthest = database
      .prepare<[], number>('SELECT coalesce(max(delivered), 0) FROM webhook_endpoints')
      .pluck()
    this.#noteDelivered = database.prepare(
      'UPDATE webhook_endpoints SET delivered = ?, missed = missed + ? WHERE id = ?',
    )
    this.#deactivate = database.prepare('UPDATE webhook_endpoints SET active = 0 WHERE id = ?')
  }

  ids(): string[] {
    return this.#ids.all()
  }

  /** Number of an account; null: the gateway's owner. */
  countOf(ownerId: string | null): number {
    return this.#countOf.get(ownerId) ?? 0
  }

  /** The sequence of the newest event that any has taken; 0 without any. */
  get farthest(): number {
    return this.#farthest.get() ?? 0
  }

  /** It has taken all up to `sequence` but `missed` of them, which are gone. */
  noteDelivered(id: string, sequence: number, missed = 0): void {
    this.#database.join(() => this.#noteDelivered.run(sequence, missed, id))
  }

  deactivate(id: string): void {
    this.#database.join(() => this.#deactivate.run(id))
  }
}

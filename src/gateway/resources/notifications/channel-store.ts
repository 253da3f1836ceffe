import type { Database, Statement } from '../../../store/database.ts'
import type { Migration } from '../../../store/migrations.ts'
import type { EventType } from '../../records/event-store.ts'
import { ResourceTable } from '../../records/resource-table.ts'
import type { QuietTimes } from './quiet-times.ts'

export const NOTIFICATION_MIGRATIONS: readonly Migration[] = [
  {
    id: 'notification-channels-1',
    sql: `CREATE TABLE notification_channels (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE CASCADE,
      name TEXT NOT NULL,
      kind TEXT NOT NULL,
      addresses TEXT NOT NULL CHECK (json_type(addresses) = 'array'),
      url TEXT,
      event_types TEXT NOT NULL CHECK (json_type(event_types) = 'array'),
      tags TEXT NOT NULL CHECK (json_type(tags) = 'array'),
      offline_ms INTEGER NOT NULL,
      quiet_times TEXT CHECK (json_valid(quiet_times)),
      time_zone TEXT NOT NULL,
      active INTEGER NOT NULL CHECK (active IN (0, 1)),
      created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX notification_channels_owner ON notification_channels (owner_id);
    CREATE TABLE notification_states (
      id TEXT PRIMARY KEY REFERENCES notification_channels (id) ON DELETE CASCADE,
      position INTEGER NOT NULL,
      left_out INTEGER NOT NULL,
      last_sent_at INTEGER,
      failures INTEGER NOT NULL,
      problem TEXT,
      next_try_at INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE notification_notices (
      id TEXT PRIMARY KEY,
      channel_id TEXT NOT NULL REFERENCES notification_channels (id) ON DELETE CASCADE,
      due_at INTEGER,
      told_at INTEGER,
      content TEXT NOT NULL CHECK (json_valid(content))
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX notification_notices_due ON notification_notices (channel_id, due_at)`,
  },
]

export const CHANNEL_KINDS = [
  'email',
  'slack',
  'discord',
  'teams',
  'mattermost',
  'ntfy',
  'telegram',
  'webhook',
] as const
export type ChannelKind = (typeof CHANNEL_KINDS)[number]

/** A way to notify people. */
export interface NotificationChannel {
  /** `nc_<ksuid>` */
  readonly id: string
  /** Account of its events; null: all accounts. */
  readonly ownerId: string | null
  readonly name: string
  readonly kind: ChannelKind
  /** Recipients of mails; empty for chats. */
  readonly addresses: readonly string[]
  /** URL of a chat, which may contain a key; null for mails. */
  readonly url: string | null
  /** Empty: all types. */
  readonly eventTypes: readonly EventType[]
  /** Only devices with one of these tags; empty: all devices. */
  readonly tags: readonly string[]
  /** Minimum time that a device is offline before it is reported. */
  readonly offlineMs: number
  /** Messages wait during these times. */
  readonly quietTimes: QuietTimes | null
  /** IANA name, for quiet times and for times in messages. */
  readonly timeZone: string
  /** While false, messages wait. */
  readonly isActive: boolean
  readonly createdAt: number
}

/** Progress of a channel, which its gateway writes. */
export interface ChannelState {
  /** Id of the channel. */
  readonly id: string
  /** Sequence of the last event that became a notice, or was skipped. */
  readonly position: number
  /** Events without a notice that the next message counts. */
  readonly leftOut: number
  /** Milliseconds since the epoch. */
  readonly lastSentAt: number | null
  /** Failures of the next message in a row. */
  readonly failures: number
  readonly problem: string | null
  readonly nextTryAt: number | null
}

export class NotificationChannelStore extends ResourceTable<NotificationChannel> {
  readonly #countOf: Statement<[string | null], number>

  constructor(database: Database) {
    super({
      database,
      name: 'notification_channels',
      columns: {
        id: 'plain',
        ownerId: 'plain',
        name: 'plain',
        kind: 'plain',
        addresses: 'json',
        url: 'plain',
        eventTypes: 'json',
        tags: 'json',
        offlineMs: 'plain',
        quietTimes: 'json',
        timeZone: 'plain',
        isActive: 'flag',
        createdAt: 'plain',
      },
    })
    this.#countOf = database
      .prepare<[string | null], number>(
        'SELECT count(*) FROM notification_channels WHERE owner_id IS ?',
      )
      .pluck()
  }

  /** Number of an account; null: the gateway's owner. */
  countOf(ownerId: string | null): number {
    return this.#countOf.get(ownerId) ?? 0
  }
}

/** The state of each channel. It is a table of its own, so that only people change channels. */
export class ChannelStateStore extends ResourceTable<ChannelState> {
  readonly #farthest: Statement<[], number>

  constructor(database: Database) {
    super({
      database,
      name: 'notification_states',
      columns: {
        id: 'plain',
        position: 'plain',
        leftOut: 'plain',
        lastSentAt: 'plain',
        failures: 'plain',
        problem: 'plain',
        nextTryAt: 'plain',
      },
    })
    this.#farthest = database
      .prepare<[], number>('SELECT coalesce(max(position), 0) FROM notification_states')
      .pluck()
  }

  /** Sequence of the newest event that a channel has read; 0 without channels. */
  get farthest(): number {
    return this.#farthest.get() ?? 0
  }
}

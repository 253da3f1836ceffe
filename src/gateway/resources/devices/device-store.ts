import type { Database, Statement } from '../../../store/database.ts'
import type { Migration } from '../../../store/migrations.ts'
import type { GoneReason } from '../../endpoints/endpoint.ts'
import { ResourceTable } from '../../records/resource-table.ts'

export const DEVICE_MIGRATIONS: readonly Migration[] = [
  {
    id: 'devices-1',
    sql: `CREATE TABLE devices (
      id TEXT PRIMARY KEY,
      owner_id TEXT REFERENCES bot_users (id) ON DELETE CASCADE,
      credential_id TEXT,
      device_id TEXT,
      name TEXT NOT NULL,
      metadata TEXT NOT NULL,
      tags TEXT NOT NULL CHECK (json_valid(tags)),
      provisioned INTEGER NOT NULL CHECK (provisioned IN (0, 1)),
      created_at INTEGER NOT NULL,
      online INTEGER NOT NULL CHECK (online IN (0, 1)),
      since INTEGER,
      seen_at INTEGER,
      gone_reason TEXT,
      facts TEXT NOT NULL CHECK (json_valid(facts)),
      duplicate TEXT
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX devices_identity ON devices (coalesce(owner_id, ''), device_id)
      WHERE device_id IS NOT NULL;
    CREATE INDEX devices_credential ON devices (credential_id) WHERE device_id IS NULL;
    CREATE INDEX devices_surplus ON devices (coalesce(owner_id, ''), provisioned, online, seen_at);
    CREATE TABLE device_watch (
      id INTEGER PRIMARY KEY CHECK (id = 1),
      watched_at INTEGER NOT NULL
    ) STRICT`,
  },
]

/** Facts of a device from its last connection. */
export interface DeviceFacts {
  /** Address without the port. */
  readonly ip: string
  readonly hostname: string
  readonly agentVersion: string
  readonly os: string
  readonly arch: string
  /** URLs, at most `MAX_URLS`. */
  readonly endpoints: readonly string[]
  /** Node of its current or last connection; undefined for a gateway without others. */
  readonly node?: string
  /** When it came there; of two gateways that tell of it, the later one is right. */
  readonly cameAt?: number
}

export const MAX_URLS = 20

/**
 * A provisioned or seen device. It is identified by its device id within the account, else by its authtoken.
 */
export interface Device {
  /** `dv_<ksuid>` */
  readonly id: string
  /** Bot user of its account; null for the gateway's owner. */
  readonly ownerId: string | null
  /** The authtoken that it was made for, or signed in with last. */
  readonly credentialId: string | null
  /** Device id from the agent; null before the first connection, and for agents without an id. */
  readonly deviceId: string | null
  /** Name given by people; empty without one. */
  readonly name: string
  readonly metadata: string
  /** Sorted, each once. */
  readonly tags: readonly string[]
  /** Created through the API: it stays until it is deleted. A device that was only seen may be removed. */
  readonly isProvisioned: boolean
  /** Milliseconds since the epoch, as all times here. */
  readonly createdAt: number
  readonly isOnline: boolean
  /** When it came online or went; null before it was seen. */
  readonly since: number | null
  /** When it was last known to be there; null before that, and not kept true while it is online. */
  readonly seenAt: number | null
  /** Null while it is online, and before it was seen. */
  readonly goneReason: GoneReason | null
  readonly facts: DeviceFacts
  /** Another process with its identity, the last time that it was refused. */
  readonly duplicate: { readonly seenAt: number; readonly ip: string } | null
}

export class DeviceStore extends ResourceTable<Device> {
  readonly #database: Database
  readonly #byDevice: Statement<[string, string], string>
  readonly #inAnyAccount: Statement<[string], string>
  readonly #byCredential: Statement<[string], string>
  readonly #named: Statement<[string, string], string>
  readonly #lastWith: Statement<[string], string>
  readonly #online: Statement<[], string>
  readonly #count: Statement<[string], number>
  readonly #surplus: Statement<[string], string>
  readonly #watchedAt: Statement<[], number>
  readonly #noteWatched: Statement<[number]>

  constructor(database: Database) {
    super({
      database,
      name: 'devices',
      columns: {
        id: 'plain',
        ownerId: 'plain',
        credentialId: 'plain',
        deviceId: 'plain',
        name: 'plain',
        metadata: 'plain',
        tags: 'json',
        isProvisioned: 'flag',
        createdAt: 'plain',
        isOnline: 'flag',
        since: 'plain',
        seenAt: 'plain',
        goneReason: 'plain',
        facts: 'json',
        duplicate: 'json',
      },
    })
    this.#database = database
    const ids = (rest: string) => `SELECT id FROM devices WHERE ${rest}`
    this.#byDevice = database
      .prepare<[string, string], string>(ids("coalesce(owner_id, '') = ? AND device_id = ?"))
      .pluck()
    const accounts = "(SELECT '' UNION ALL SELECT id FROM bot_users)"
    this.#inAnyAccount = database
      .prepare<[string], string>(
        ids(`coalesce(owner_id, '') IN ${accounts} AND device_id = ? LIMIT 2`),
      )
      .pluck()
    this.#byCredential = database
      .prepare<[string], string>(ids('credential_id = ? AND device_id IS NULL ORDER BY id'))
      .pluck()
    this.#named = database
      .prepare<[string, string], string>(ids("coalesce(owner_id, '') = ? AND name = ? LIMIT 1"))
      .pluck()
    this.#lastWith = database
      .prepare<[string], string>(ids('credential_id = ? ORDER BY id DESC LIMIT 1'))
      .pluck()
    this.#online = database.prepare<[], string>(ids('online = 1')).pluck()
    this.#count = database
      .prepare<[string], number>("SELECT count(*) FROM devices WHERE coalesce(owner_id, '') = ?")
      .pluck()
    this.#surplus = database
      .prepare<[string], string>(
        ids(
          "coalesce(owner_id, '') = ? AND provisioned = 0 AND online = 0 ORDER BY seen_at, id LIMIT 1",
        ),
      )
      .pluck()
    this.#watchedAt = database.prepare<[], number>('SELECT watched_at FROM device_watch').pluck()
    this.#noteWatched = database.prepare(
      'INSERT INTO device_watch (id, watched_at) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET watched_at = excluded.watched_at',
    )
  }

  /** The device of an account that calls itself so. */
  findByDevice(ownerId: string | null, deviceId: string): Device | undefined {
    return this.#found(this.#byDevice.get(ownerId ?? '', deviceId))
  }

  /** The device that calls itself so, if only one account has such a device. */
  findInAnyAccount(deviceId: string): Device | undefined {
    const [id, ...others] = this.#inAnyAccount.all(deviceId)
    return others.length > 0 ? undefined : this.#found(id)
  }

  /** The device that is known by its authtoken alone. */
  findByCredential(credentialId: string): Device | undefined {
    return this.#found(this.#byCredential.get(credentialId))
  }

  /** A device of an account with this name. */
  findByName(ownerId: string | null, name: string): Device | undefined {
    return this.#found(this.#named.get(ownerId ?? '', name))
  }

  /** The newest device that was made for this authtoken, or signed in with it last. */
  findLastWith(credentialId: string): Device | undefined {
    return this.#found(this.#lastWith.get(credentialId))
  }

  /** Devices that were online at the last write. */
  online(): Device[] {
    return this.#online
      .all()
      .map((id) => this.get(id))
      .filter((device) => device !== undefined)
  }

  count(ownerId: string | null): number {
    return this.#count.get(ownerId ?? '') ?? 0
  }

  /** The offline, not provisioned device that was seen longest ago. */
  surplus(ownerId: string | null): string | undefined {
    return this.#surplus.get(ownerId ?? '')
  }

  /** Time of the last check for online devices; undefined before the first. */
  get watchedAt(): number | undefined {
    return this.#watchedAt.get()
  }

  /** A value of this process, not shared with others. */
  noteWatched(at: number): void {
    this.#database.write(() => this.#noteWatched.run(at), { withoutBackup: true })
  }

  #found(id: string | undefined): Device | undefined {
    return id === undefined ? undefined : this.get(id)
  }
}

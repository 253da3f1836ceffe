import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { type Connection, openConnection, openMemory, type Statement } from './connection.ts'
import { type Migration, migrate, pendingMigrations } from './migrations.ts'
import { toStorageError } from './storage-error.ts'

export type { Statement } from './connection.ts'

export interface DatabaseOptions {
  /** The file, or `:memory:` for one that nobody keeps. */
  readonly path: string
  /** The schemas of all owners, each owner's steps in their order. */
  readonly migrations: readonly Migration[]
  /** Says whose file this is (32 bits); a file with another mark is never written to. */
  readonly applicationId: number
  readonly log: Logger
  readonly clock: Clock
}

export interface WriteOptions {
  /** For changes that free space: on a full disk they may use the reserve. */
  readonly mayUseReserve?: boolean
}

/** An open database: owners prepare their statements once and change rows only inside `write()`. */
export class Database {
  readonly #connection: Connection

  constructor(connection: Connection) {
    this.#connection = connection
  }

  prepare<Parameters extends unknown[] | object, Row = unknown>(
    sql: string,
  ): Statement<Parameters extends unknown[] ? Parameters : [Parameters], Row> {
    return this.#connection.prepare(sql)
  }

  /**
   * Runs `change` in one transaction: when this returns, all of it is on stable storage.
   * Throws AppError `storage-full` or `storage-unavailable`, and then none of it happened.
   */
  write<T>(change: () => T, _options: WriteOptions = {}): T {
    if (this.#connection.inTransaction) return change()
    try {
      return this.#connection.transaction(change).immediate()
    } catch (error) {
      throw toStorageError(error)
    }
  }

  /** The cheapest read that proves the database answers. */
  ping(): void {
    this.#connection.prepare('SELECT count(*) FROM schema_migrations').get()
  }

  close(): void {
    this.#connection.close()
  }
}

/** Opens, checks and migrates a database. Throws a StartError when a person has to act. */
export function openDatabase({ path, migrations, applicationId }: DatabaseOptions): Database {
  const connection = path === ':memory:' ? openMemory() : openConnection(path)
  const pending = pendingMigrations(connection, migrations)
  if (pending.length > 0) migrate(connection, pending, applicationId)
  return new Database(connection)
}

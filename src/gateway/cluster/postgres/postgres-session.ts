import { readFileSync } from 'node:fs'
import type { Client, CustomTypesConfig, QueryResult } from 'pg'
import { DeadlineError, withDeadline } from '../../../base/deadline.ts'
import { createDeferred } from '../../../base/deferred.ts'
import { onAbort } from '../../../base/on-abort.ts'
import type { DatabaseAddress } from '../../../settings/database-url.ts'
import { DatabaseError, toDatabaseError } from './database-error.ts'
import { type PasswordSource, readPassword } from './database-password.ts'

/** The oldest that has all that is used here, and that its makers still look after. */
const OLDEST_VERSION = 140_000
const CONNECT_MS = 5_000
/** More than the server's own limit: without an answer for this time, the server is lost. */
const ANSWER_MS = 4_000
const KEEP_ALIVE_MS = 5_000
const INT8 = 20
/**
 * Sets the search path to the schema with our tables, or for them, so that server settings cannot add names
 * before or after it. All types are exact, because the names in this statement itself may be shadowed.
 */
const BEGIN_SESSION = `
SELECT pg_catalog.current_setting('server_version_num'::text)::int AS version,
  pg_catalog.current_setting('transaction_read_only'::text)::bool OR pg_catalog.pg_is_in_recovery()
    AS standby,
  pg_catalog.set_config('search_path'::text, pg_catalog.format('%I, pg_temp'::text, coalesce(
    (SELECT n.nspname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
       ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
     WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('schema_steps'::text)::oid),
    pg_catalog.current_schema()::text)), false)`

/**
 * Milliseconds that the server grants: a statement, a wait for a lock, and a transaction in which
 * nothing happens, which would stop all other writers.
 */
export interface SessionLimits {
  readonly statementMs: number
  readonly lockMs: number
  readonly idleMs: number
  /** How long the client waits for the answer to one statement. */
  readonly answerMs: number
}

export const SESSION_LIMITS: SessionLimits = {
  statementMs: 2_000,
  lockMs: 1_000,
  idleMs: 1_000,
  answerMs: ANSWER_MS,
}

/** One PostgreSQL and how to get in. */
export interface PostgresServer extends PasswordSource {
  readonly address: DatabaseAddress
}

export interface SessionOptions {
  readonly server: PostgresServer
  /** Purpose of the session, shown in `pg_stat_activity`. */
  readonly name: string
  readonly limits?: Partial<SessionLimits>
  /** Called for notifications of channels that the session listens to. */
  readonly onNotice?: (channel: string, payload: string) => void
}

export type Row = Readonly<Record<string, unknown>>

/** Runs statements. Parameters are `$1` and so on; int8 is returned as a number. Throws DatabaseErrors. */
export interface Statements {
  query<R extends Row = Row>(sql: string, values?: readonly unknown[]): Promise<R[]>
}

/**
 * One session of PostgreSQL, from its opening to its end; never reopened.
 * - one statement at a time: callers take turns elsewhere
 * - a statement without an answer ends the session, because its effect is unknown
 */
export class PostgresSession implements Statements {
  readonly #client: Client
  readonly #answerMs: number
  readonly #ended = createDeferred<DatabaseError>()
  #hasEnded = false

  private constructor(client: Client, answerMs: number) {
    this.#client = client
    this.#answerMs = answerMs
    client.on('error', (error) => this.#end(toDatabaseError(error, false)))
    client.on('end', () =>
      this.#end(new DatabaseError('database-unreachable', 'the connection was closed')),
    )
  }

  /** Resolves with the reason when the session has ended; never rejects. */
  get ended(): Promise<DatabaseError> {
    return this.#ended.promise
  }

  /** Throws a DatabaseError, also when `stop` is aborted; nothing stays open then. */
  static async open(options: SessionOptions, stop?: AbortSignal): Promise<PostgresSession> {
    const limits = { ...SESSION_LIMITS, ...options.limits }
    const client = await createClient(options, limits)
    if (stop?.aborted) throw closedHere()
    const session = new PostgresSession(client, limits.answerMs)
    const off = stop && onAbort(stop, () => session.close())
    try {
      await client.connect()
      await session.#checkDatabase()
      return session
    } catch (error) {
      session.close()
      throw toDatabaseError(error, false)
    } finally {
      off?.()
    }
  }

  async query<R extends Row = Row>(sql: string, values?: readonly unknown[]): Promise<R[]> {
    const { rows } = await this.#send<R>(sql, values)
    // Several statements in one text have several results.
    return rows ?? []
  }

  /** Runs all of it or nothing. `work` waits for nothing but statements: others wait for its locks. */
  async transaction<T>(work: (statements: Statements) => Promise<T>): Promise<T> {
    await this.query('BEGIN')
    let result: T
    try {
      result = await work(this)
    } catch (error) {
      // If the rollback cannot be sent, the end of the session causes it.
      await this.query('ROLLBACK').catch(() => this.close())
      throw error instanceof DatabaseError ? error.undone() : error
    }
    const { command } = await this.#send('COMMIT')
    // PostgreSQL ends a transaction in which a statement failed without an error.
    if (command !== 'COMMIT')
      throw new DatabaseError('database-error', 'the transaction was rolled back')
    return result
  }

  /** Ends the session at once. Running statements fail. May be called twice. */
  close(): void {
    this.#end(closedHere())
    // The library's own end() waits for a silent peer, and does not settle a pending connect().
    this.#client.connection.stream.destroy(new Error('the connection was closed here'))
  }

  #end(error: DatabaseError): void {
    this.#hasEnded = true
    this.#ended.resolve(error)
  }

  async #send<R extends Row>(sql: string, values?: readonly unknown[]): Promise<QueryResult<R>> {
    if (this.#hasEnded) throw closedHere()
    try {
      const answer = this.#client.query<R>(sql, values && [...values])
      return await withDeadline(answer, this.#answerMs, 'the answer of the database')
    } catch (error) {
      throw this.#failure(error)
    }
  }

  #failure(error: unknown): DatabaseError {
    const isLate = error instanceof DeadlineError
    const failure = isLate
      ? new DatabaseError('database-slow', `no answer within ${error.ms} ms`, { isUndone: false })
      : toDatabaseError(error, true)
    // A server that has become a standby stays one in this session; the next may meet the primary.
    if (isLate || failure.code === 'database-read-only') {
      this.#end(failure)
      this.close()
    }
    return failure
  }

  async #checkDatabase(): Promise<void> {
    const [row] = await this.query<{ version: number; standby: boolean }>(BEGIN_SESSION)
    if (!row || row.version < OLDEST_VERSION) {
      throw new DatabaseError('database-too-old', `version ${versionText(row?.version)}`)
    }
    if (row.standby) throw new DatabaseError('database-read-only', 'reported by the server')
  }
}

function closedHere(): DatabaseError {
  return new DatabaseError('database-unreachable', 'the connection was closed here')
}

/** The library is loaded here, so that a gateway without PostgreSQL does without it. */
async function createClient(
  { server, name, onNotice }: SessionOptions,
  { statementMs, lockMs, idleMs }: SessionLimits,
): Promise<Client> {
  const { default: pg } = await import('pg')
  const { host, port, database, user } = server.address
  const settings = {
    statement_timeout: statementMs,
    lock_timeout: lockMs,
    idle_in_transaction_session_timeout: idleMs,
    synchronous_commit: 'on',
  }
  // All that the library would otherwise take from the environment or from ~/.pgpass is said here.
  const client = new pg.Client({
    ...{ host, port, database, user },
    password: () => readPassword(server).reveal(),
    ssl: tlsOptions(server.address),
    sslnegotiation: 'postgres',
    application_name: `device-agent ${name}`,
    client_encoding: 'UTF8',
    options: Object.entries(settings)
      .map(([setting, value]) => `-c ${setting}=${value}`)
      .join(' '),
    connectionTimeoutMillis: CONNECT_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    types: { getTypeParser: typeParser(pg.types) },
  })
  client.on('notification', ({ channel, payload = '' }) => onNotice?.(channel, payload))
  return client
}

function tlsOptions({ tls, caPath }: DatabaseAddress) {
  if (tls === 'off') return false
  const ca = caPath === undefined ? undefined : readCa(caPath)
  return { rejectUnauthorized: true, minVersion: 'TLSv1.2' as const, ...(ca ? { ca } : {}) }
}

function readCa(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new DatabaseError('database-tls', `the file of sslrootcert cannot be read (${code})`)
  }
}

function typeParser(types: CustomTypesConfig): CustomTypesConfig['getTypeParser'] {
  return (oid, format) => (oid === INT8 ? safeInteger : types.getTypeParser(oid, format))
}

/** A number that a double cannot hold is a bug that must not pass. */
function safeInteger(text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value)) throw new RangeError(`${text} is too large`)
  return value
}

function versionText(version = 0): string {
  return version >= 100_000 ? `${Math.floor(version / 10_000)}` : 'unknown'
}

/** A row for each way in which the database lets a gateway down. */
interface DatabaseProblem {
  readonly title: string
  /** Remedy for people. */
  readonly remedy: string
  /** Whether it may end by itself; otherwise a person has to act. */
  readonly isTransient: boolean
}

export const DATABASE_ERRORS = {
  'database-unreachable': {
    title: 'The database cannot be reached',
    remedy: 'Check that PostgreSQL runs and that no firewall blocks the connection.',
    isTransient: true,
  },
  'database-starting': {
    title: 'The database is starting or stopping',
    remedy: 'The gateway retries until the database accepts connections.',
    isTransient: true,
  },
  'database-full': {
    title: 'The database has no resources left',
    remedy: 'Raise max_connections, or add disk space or memory.',
    isTransient: true,
  },
  'database-slow': {
    title: 'The database did not answer in time',
    remedy: 'Check pg_stat_activity for locks, and check the disk load.',
    isTransient: true,
  },
  'database-read-only': {
    title: 'The database is read-only or a standby',
    remedy: 'Set GATEWAY_DATABASE_URL to the primary server.',
    isTransient: true,
  },
  'database-conflict': {
    title: 'Another change conflicts with this one',
    remedy: 'Try again.',
    isTransient: true,
  },
  'database-password': {
    title: 'The database rejected the password',
    remedy: 'Set it in GATEWAY_DATABASE_PASSWORD_FILE, or with ALTER ROLE … PASSWORD.',
    isTransient: false,
  },
  'database-refused': {
    title: 'The database rejected this user or machine',
    remedy: 'Add a line for the user and the address of this machine to pg_hba.conf.',
    isTransient: false,
  },
  'database-missing': {
    title: 'The database does not exist',
    remedy: 'Create it with createdb, owned by the user of GATEWAY_DATABASE_URL.',
    isTransient: false,
  },
  'database-privilege': {
    title: 'The database user lacks privileges',
    remedy: 'Make the user of GATEWAY_DATABASE_URL the owner of the database.',
    isTransient: false,
  },
  'database-open': {
    title: 'Other PostgreSQL roles can change functions that the gateway calls',
    remedy:
      'As administrator, run in this database: REVOKE CREATE ON SCHEMA public FROM PUBLIC, and drop ' +
      'foreign objects.',
    isTransient: false,
  },
  'database-tls': {
    title: 'The TLS certificate of the database could not be verified',
    remedy:
      'Set sslrootcert to the CA of its certificate. The certificate must contain the host name.',
    isTransient: false,
  },
  'database-pooler': {
    title: 'GATEWAY_DATABASE_URL points to a connection pooler',
    remedy: 'Point it to PostgreSQL directly. Notifications and locks need a direct connection.',
    isTransient: false,
  },
  'database-too-old': {
    title: 'The database is too old',
    remedy: 'Upgrade to PostgreSQL 14 or newer.',
    isTransient: false,
  },
  'database-newer': {
    title: 'The tables were changed by a newer version',
    remedy: 'Install that version on this gateway too.',
    isTransient: false,
  },
  'replica-failed': {
    title: 'The local copy of the records cannot be updated',
    remedy: 'Check free space and write permission of the data directory. See the log.',
    isTransient: true,
  },
  'database-value': {
    title: 'The database rejected a value',
    remedy: 'The database itself is fine. Check the values of the request.',
    isTransient: false,
  },
  'database-error': {
    title: 'The database reported an error',
    remedy: 'See the log of PostgreSQL.',
    isTransient: true,
  },
} as const satisfies Record<string, DatabaseProblem>

export type DatabaseErrorCode = keyof typeof DATABASE_ERRORS

export interface DatabaseErrorOptions {
  /** Whether the operation certainly did not happen. */
  readonly isUndone?: boolean
  readonly cause?: unknown
}

/** The reason why a database operation failed. Its text contains no secret and no path. */
export class DatabaseError extends Error {
  override readonly name = 'DatabaseError'
  readonly code: DatabaseErrorCode
  readonly isUndone: boolean
  readonly #detail: string

  constructor(code: DatabaseErrorCode, detail: string, options: DatabaseErrorOptions = {}) {
    const { title, remedy } = DATABASE_ERRORS[code]
    super(`${title}: ${detail}. ${remedy}`, options.cause ? { cause: options.cause } : undefined)
    this.code = code
    this.#detail = detail
    this.isUndone = options.isUndone ?? true
  }

  get isTransient(): boolean {
    return DATABASE_ERRORS[this.code].isTransient
  }

  /** The same for an operation that certainly did not happen: a transaction without a commit. */
  undone(): DatabaseError {
    return this.isUndone ? this : new DatabaseError(this.code, this.#detail, { cause: this.cause })
  }
}

/** SQLSTATEs, or their classes, of https://www.postgresql.org/docs/current/errcodes-appendix.html */
const BY_STATE: Readonly<Record<string, DatabaseErrorCode>> = {
  '28P01': 'database-password',
  28000: 'database-refused',
  '3D000': 'database-missing',
  42501: 'database-privilege',
  25006: 'database-read-only',
  '25P03': 'database-slow',
  57014: 'database-slow',
  '55P03': 'database-slow',
  '57P01': 'database-starting',
  '57P02': 'database-starting',
  '57P03': 'database-starting',
  '57P05': 'database-slow',
  23505: 'database-conflict',
  22021: 'database-value',
  40: 'database-conflict',
  53: 'database-full',
  // A connection pooler that rejects our session settings uses this code.
  '08P01': 'database-pooler',
  '08': 'database-unreachable',
}

/** Codes that end a session or connection: an earlier commit may have succeeded. */
const UNKNOWN_OUTCOME = /^(?:08|57P|40003)/
/** Certificate error codes of OpenSSL and Node. */
const TLS_CODE = /^(?:ERR_TLS|ERR_SSL|CERT_|UNABLE_TO|SELF_SIGNED|DEPTH_ZERO|HOSTNAME_MISMATCH)/
const NETWORK_CODE = /^E[A-Z]+$/
const SQLSTATE = /^[0-9A-Z]{5}$/

/**
 * Converts an error of the client library or the system. `isSent`: a statement was sent, so without an answer
 * its outcome is unknown.
 */
export function toDatabaseError(error: unknown, isSent: boolean): DatabaseError {
  if (error instanceof DatabaseError) return error
  const { code, message } = Object(error) as { code?: unknown; message?: unknown }
  const text = typeof message === 'string' ? sentenceOf(message) : 'no reason given'
  if (typeof code === 'string' && SQLSTATE.test(code) && isFromServer(error)) {
    const isUndone = !(isSent && UNKNOWN_OUTCOME.test(code))
    return new DatabaseError(ofState(code), text, { isUndone, cause: error })
  }
  if (typeof code === 'string' && TLS_CODE.test(code)) {
    return new DatabaseError('database-tls', text, { isUndone: !isSent, cause: error })
  }
  // The library's own words when the server speaks no TLS.
  if (/ SSL connection/.test(text)) return new DatabaseError('database-tls', text, { cause: error })
  // The system's own text may name the path of a socket.
  const detail = typeof code === 'string' && NETWORK_CODE.test(code) ? code : text
  return new DatabaseError('database-unreachable', detail, { isUndone: !isSent, cause: error })
}

function ofState(state: string): DatabaseErrorCode {
  return BY_STATE[state] ?? BY_STATE[state.slice(0, 2)] ?? 'database-error'
}

/** Errors of the server have a severity; codes such as `EPIPE` also have five letters. */
function isFromServer(error: unknown): boolean {
  return typeof (error as { severity?: unknown }).severity === 'string'
}

/** Without the end that our sentence has itself. */
function sentenceOf(message: string): string {
  return message.replace(/\s+/g, ' ').replace(/\.$/, '')
}

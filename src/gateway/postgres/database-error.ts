/** A row for each way in which the database lets a gateway down. */
interface DatabaseProblem {
  readonly title: string
  /** What a person does about it. */
  readonly remedy: string
  /** It may go away by itself; otherwise somebody has to act. */
  readonly isTransient: boolean
}

export const DATABASE_ERRORS = {
  'database-unreachable': {
    title: 'The database cannot be reached',
    remedy: 'Is PostgreSQL running, and does the way to it lead through no firewall?',
    isTransient: true,
  },
  'database-starting': {
    title: 'The database starts or stops',
    remedy: 'It is tried again until it takes connections.',
    isTransient: true,
  },
  'database-full': {
    title: 'The database has no room',
    remedy: 'Raise max_connections, or give it more disk or memory.',
    isTransient: true,
  },
  'database-slow': {
    title: 'The database took too long',
    remedy: 'Look at pg_stat_activity for who holds a lock, and at the load of its disk.',
    isTransient: true,
  },
  'database-read-only': {
    title: 'The database is a standby, or takes no writes',
    remedy: 'GATEWAY_DATABASE_URL has to lead to the primary.',
    isTransient: true,
  },
  'database-conflict': {
    title: 'Another change came first',
    remedy: 'Try again.',
    isTransient: true,
  },
  'database-password': {
    title: 'The database refuses the password',
    remedy: 'Set it in GATEWAY_DATABASE_PASSWORD_FILE, or with ALTER ROLE … PASSWORD.',
    isTransient: false,
  },
  'database-refused': {
    title: 'The database refuses this user or this machine',
    remedy: 'pg_hba.conf needs a line for the user and the address of this machine.',
    isTransient: false,
  },
  'database-missing': {
    title: 'There is no such database',
    remedy: 'Make it with createdb, owned by the user of GATEWAY_DATABASE_URL.',
    isTransient: false,
  },
  'database-privilege': {
    title: 'The user may not do that in the database',
    remedy: 'Make the user of GATEWAY_DATABASE_URL the owner of the database.',
    isTransient: false,
  },
  'database-open': {
    title: 'Other roles of the server can make the gateway do what they want',
    remedy:
      'As administrator, in that database: REVOKE CREATE ON SCHEMA public FROM PUBLIC, and drop what ' +
      'is not yours.',
    isTransient: false,
  },
  'database-tls': {
    title: 'The database does not prove who it is',
    remedy: 'sslrootcert has to hold the CA of its certificate, and the certificate its host name.',
    isTransient: false,
  },
  'database-pooler': {
    title: 'A pooler stands before the database',
    remedy: 'Lead GATEWAY_DATABASE_URL to PostgreSQL itself: notifications and locks need that.',
    isTransient: false,
  },
  'database-too-old': {
    title: 'The database is too old',
    remedy: 'PostgreSQL 14 or newer is needed.',
    isTransient: false,
  },
  'database-newer': {
    title: 'A newer version has changed the tables',
    remedy: 'Install that version here, too.',
    isTransient: false,
  },
  'replica-failed': {
    title: 'The copy of the records that this gateway reads cannot be kept up to date',
    remedy:
      'Has the disk of its data folder room, and may the gateway write there? The log says more.',
    isTransient: true,
  },
  'database-value': {
    title: 'The database does not take a value',
    remedy: 'It is no fault of the database: look at what was to be kept.',
    isTransient: false,
  },
  'database-error': {
    title: 'The database reports an error',
    remedy: 'Its log says more.',
    isTransient: true,
  },
} as const satisfies Record<string, DatabaseProblem>

export type DatabaseErrorCode = keyof typeof DATABASE_ERRORS

export interface DatabaseErrorOptions {
  /** What was asked for has not happened; otherwise it may have. */
  readonly isUndone?: boolean
  readonly cause?: unknown
}

/** Why the database did not do what it was asked for; its text holds no secret and no path. */
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

  /** The same, of what was certainly not done: a transaction that was never committed. */
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
  // A connection pooler that does not take our settings for the session says it with this one.
  '08P01': 'database-pooler',
  '08': 'database-unreachable',
}

/** What ends a session, or its connection: a commit before it may have been done. */
const UNKNOWN_OUTCOME = /^(?:08|57P|40003)/
/** How OpenSSL and Node name what is wrong with a certificate. */
const TLS_CODE = /^(?:ERR_TLS|ERR_SSL|CERT_|UNABLE_TO|SELF_SIGNED|DEPTH_ZERO|HOSTNAME_MISMATCH)/
const NETWORK_CODE = /^E[A-Z]+$/
const SQLSTATE = /^[0-9A-Z]{5}$/

/**
 * What an error of the client library or the system means. `isSent` says that a statement was on its
 * way: without an answer nobody knows whether it was done.
 */
export function toDatabaseError(error: unknown, isSent: boolean): DatabaseError {
  if (error instanceof DatabaseError) return error
  const { code, message } = Object(error) as { code?: unknown; message?: unknown }
  const text = typeof message === 'string' ? sentenceOf(message) : 'no reason was given'
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

/** What the server says has a severity; `EPIPE` and its like have five letters, too. */
function isFromServer(error: unknown): boolean {
  return typeof (error as { severity?: unknown }).severity === 'string'
}

/** Without the end that our sentence has itself. */
function sentenceOf(message: string): string {
  return message.replace(/\s+/g, ' ').replace(/\.$/, '')
}

import { SqliteError } from '../../../store/sqlite.ts'
import { DatabaseError } from '../postgres/database-error.ts'

/** Converts an error of the local copy for users. Leaves out the text of SQLite, which may contain paths. */
export function toReplicaError(error: unknown): DatabaseError {
  if (error instanceof DatabaseError) return error
  const detail = error instanceof SqliteError ? error.code : 'internal error'
  return new DatabaseError('replica-failed', detail, { cause: error })
}

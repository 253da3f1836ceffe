import { SqliteError } from '../../../store/sqlite.ts'
import { DatabaseError } from '../postgres/database-error.ts'

/** What fails at the node's own copy, as people are told it: without SQLite's text, which may name paths. */
export function toReplicaError(error: unknown): DatabaseError {
  if (error instanceof DatabaseError) return error
  const detail = error instanceof SqliteError ? error.code : 'internal error'
  return new DatabaseError('replica-failed', detail, { cause: error })
}

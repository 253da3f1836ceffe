import { DatabaseError } from './database-error.ts'
import { PostgresSession, type SessionOptions, type Statements } from './postgres-session.ts'
import { refuseStrangers } from './role-privileges.ts'

/** A step of the schema. Released steps never change. The SQL may have many statements. */
export interface SchemaStep {
  /** Owner and number, such as `nodes-1`. */
  readonly id: string
  readonly sql: string
}

/** `dagw`: lock of all nodes for the length of a transaction. */
const LOCK = 0x64_61_67_77
/** Others may be at it, with tables of any size. */
const STEP_MS = 60_000
const TABLE = 'CREATE TABLE IF NOT EXISTS schema_steps (id text PRIMARY KEY)'

/**
 * Applies the missing steps, all or none, also when several nodes start at once. Returns the ids of the
 * applied steps. Throws a DatabaseError: `database-newer` for an unknown step, and `database-open` when other
 * roles could shadow our functions.
 */
export async function migrateSchema(
  options: Omit<SessionOptions, 'limits'>,
  steps: readonly SchemaStep[],
): Promise<readonly string[]> {
  const limits = { statementMs: STEP_MS, lockMs: STEP_MS, idleMs: STEP_MS, answerMs: STEP_MS }
  const session = await PostgresSession.open({ ...options, limits })
  try {
    return await session.transaction((statements) => apply(statements, steps))
  } finally {
    session.close()
  }
}

async function apply(
  statements: Statements,
  steps: readonly SchemaStep[],
): Promise<readonly string[]> {
  // First of all: CREATE TABLE IF NOT EXISTS of two sessions at once fails in one of them.
  await statements.query('SELECT pg_advisory_xact_lock($1::bigint)', [LOCK])
  await refuseStrangers(statements)
  await statements.query(TABLE)
  const rows = await statements.query<{ id: string }>('SELECT id FROM schema_steps')
  const applied = new Set(rows.map(({ id }) => id))
  requireKnown(applied, steps)
  const missing = steps.filter(({ id }) => !applied.has(id))
  for (const { id, sql } of missing) {
    await statements.query(sql)
    await statements.query('INSERT INTO schema_steps (id) VALUES ($1)', [id])
  }
  return missing.map(({ id }) => id)
}

function requireKnown(applied: ReadonlySet<string>, steps: readonly SchemaStep[]): void {
  const known = new Set(steps.map(({ id }) => id))
  const foreign = [...applied].filter((id) => !known.has(id))
  if (foreign.length === 0) return
  throw new DatabaseError('database-newer', `unknown schema steps: ${foreign.sort().join(', ')}`)
}

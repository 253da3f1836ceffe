import type { Logger } from '../../../base/logger.ts'
import { DatabaseError } from './database-error.ts'
import type { Statements } from './postgres-session.ts'

/** Rights and objects of other roles in the database. */
export interface RolePrivileges {
  /** The schema where our tables are, or will be. */
  readonly schema: string
  /** There are no tables of ours yet. */
  readonly is_new: boolean
  /** Whether all roles may create objects in it that we would call. */
  readonly can_create: boolean
  /** Whether all roles may connect, and so listen and notify like this gateway. */
  readonly can_connect: boolean
  /** Objects of other roles that would be called in place of ours or PostgreSQL's. */
  readonly shadows: readonly string[]
}

const NAMED = 10

/**
 * PostgreSQL prefers a function or operator with better fitting types to ours and its own, and runs it with
 * our rights. So this query qualifies all names, or uses exact types.
 */
const LOOK = `
WITH place AS (
  SELECT n.oid, n.nspname::text AS schema, ARRAY[n.nspowner, d.datdba, me.oid] OPERATOR(pg_catalog.||)
    ARRAY(SELECT oid FROM pg_catalog.pg_roles WHERE rolsuper) AS trusted
  FROM pg_catalog.pg_namespace n, pg_catalog.pg_database d, pg_catalog.pg_roles me
  WHERE n.nspname OPERATOR(pg_catalog.=) pg_catalog.current_schema()
    AND d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
    AND me.rolname OPERATOR(pg_catalog.=) CURRENT_USER::name
), others AS (
  SELECT p.oid::pg_catalog.regprocedure::text AS name FROM place, pg_catalog.pg_proc p
  WHERE p.pronamespace OPERATOR(pg_catalog.=) place.oid
    AND NOT p.proowner OPERATOR(pg_catalog.=) ANY (trusted)
    AND EXISTS (SELECT FROM pg_catalog.pg_proc o
      WHERE o.proname OPERATOR(pg_catalog.=) p.proname AND (
        o.pronamespace OPERATOR(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace::oid
        OR (o.pronamespace OPERATOR(pg_catalog.=) place.oid
          AND o.proowner OPERATOR(pg_catalog.=) ANY (trusted))))
  UNION ALL
  SELECT o.oid::pg_catalog.regoperator::text FROM place, pg_catalog.pg_operator o
  WHERE o.oprnamespace OPERATOR(pg_catalog.=) place.oid
    AND NOT o.oprowner OPERATOR(pg_catalog.=) ANY (trusted)
  UNION ALL
  SELECT c.relname::text FROM place, pg_catalog.pg_class c
  WHERE c.relnamespace OPERATOR(pg_catalog.=) place.oid
    AND c.relname OPERATOR(pg_catalog.=) 'schema_steps'::name
    AND NOT c.relowner OPERATOR(pg_catalog.=) ANY (trusted)
)
SELECT schema,
  pg_catalog.to_regclass('schema_steps'::text) IS NULL AS is_new,
  pg_catalog.has_schema_privilege('public'::name, place.oid, 'CREATE'::text) AS can_create,
  pg_catalog.has_database_privilege('public'::name, pg_catalog.current_database(), 'CONNECT'::text)
    AS can_connect,
  ARRAY(SELECT name FROM others LIMIT ${NAMED}) AS shadows
FROM place`

/** Undefined if there is no schema; the next step reports that. Throws a DatabaseError. */
export async function findStrangers(statements: Statements): Promise<RolePrivileges | undefined> {
  const [row] = await statements.query<{ [column: string]: unknown } & RolePrivileges>(LOOK)
  return row
}

/**
 * Throws `database-open` if objects of other roles shadow ours, or if all roles may create some in a new
 * database. A database in use continues.
 */
export async function refuseStrangers(statements: Statements): Promise<void> {
  const found = await findStrangers(statements)
  if (!found) return
  const { shadows, schema, is_new, can_create } = found
  if (shadows.length > 0) {
    throw new DatabaseError(
      'database-open',
      `other roles created ${shadows.join(', ')} in ${schema}`,
    )
  }
  if (is_new && can_create) {
    throw new DatabaseError('database-open', `all roles can create objects in the schema ${schema}`)
  }
}

/** Warns once of rights that should be revoked. Throws a DatabaseError. */
export async function warnOfStrangers(statements: Statements, log: Logger): Promise<void> {
  const found = await findStrangers(statements)
  if (found?.can_create) {
    log.error(
      { schema: found.schema },
      'all PostgreSQL roles can create functions that this gateway would call, and ' +
        'could read its keys: run REVOKE CREATE ON SCHEMA public FROM PUBLIC',
    )
  }
  if (found?.can_connect) {
    log.warn(
      'all PostgreSQL roles can connect to the database of this gateway and disturb it: run ' +
        'REVOKE ALL ON DATABASE … FROM PUBLIC',
    )
  }
}

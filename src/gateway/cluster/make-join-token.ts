import { StartError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { Secret } from '../../base/secret.ts'
import { SharedMaterial } from './nodes/shared-material.ts'
import { SITE_STEPS } from './open-site.ts'
import { ClusterAuthority } from './peers/cluster-authority.ts'
import { createJoinToken } from './peers/join-token.ts'
import { DatabaseError } from './postgres/database-error.ts'
import { PostgresConnection } from './postgres/postgres-connection.ts'
import type { PostgresServer } from './postgres/postgres-session.ts'
import { migrateSchema } from './postgres/schema.ts'

export interface JoinTokenOptions {
  readonly server: PostgresServer
  /** Milliseconds since the epoch. */
  readonly expiresAt: number
  readonly log: Logger
  readonly clock: Clock
}

/** A token with which one more gateway joins the site of a database. Throws a StartError. */
export async function makeJoinToken({
  server,
  expiresAt,
  log,
  clock,
}: JoinTokenOptions): Promise<Secret> {
  const connection = new PostgresConnection({ server, name: 'join token', log, clock })
  try {
    await migrateSchema({ server, name: 'schema' }, SITE_STEPS)
    connection.start()
    const material = new SharedMaterial(connection)
    const kept = await material.keepAuthority(() => Promise.reject(new NoSiteError()))
    const { fingerprint } = await ClusterAuthority.open(kept)
    const { token, kept: row } = createJoinToken(fingerprint, expiresAt)
    await material.keepJoinToken(row)
    return token
  } catch (error) {
    if (error instanceof NoSiteError) {
      const sentence =
        'No gateway has used GATEWAY_DATABASE_URL yet. The first gateway needs no token.'
      throw new StartError(sentence)
    }
    if (error instanceof DatabaseError) throw new StartError(error.message, { cause: error })
    throw error
  } finally {
    await connection.stop()
  }
}

class NoSiteError extends Error {}

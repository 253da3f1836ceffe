import { join } from 'node:path'
import { TUNNEL_MIGRATIONS } from '../agent/tunnel-store.ts'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { auditMigrations } from '../store/audit-trail.ts'
import { type Database, openDatabase } from '../store/database.ts'
import { API_TOKEN_MIGRATIONS } from './api-token-store.ts'
import { AGENT_EVENT_MIGRATIONS } from './events/event-log.ts'

/** `dagt`: marks the agent's database file. */
export const AGENT_APPLICATION_ID = 0x64616774
/** About 2 MB at most: devices have small disks. */
const AUDIT_BOUNDS = { changes: 5_000, refusals: 1_000 }

export const AGENT_MIGRATIONS = [
  ...TUNNEL_MIGRATIONS,
  ...API_TOKEN_MIGRATIONS,
  ...AGENT_EVENT_MIGRATIONS,
  ...auditMigrations(AUDIT_BOUNDS),
]

export interface AgentDatabaseOptions {
  /** Called when only a new process can write again. */
  readonly onRestartNeeded?: (reason: string) => void
  readonly log: Logger
  readonly clock: Clock
}

/** Path of the agent's database in its data directory. */
export const agentDatabasePath = (dataDir: string) => join(dataDir, 'agent.db')

/**
 * Opens the database. The caller holds the lock of the data directory. Throws a StartError when a person has
 * to act.
 */
export function openAgentDatabase(dataDir: string, options: AgentDatabaseOptions): Database {
  return openDatabase({
    path: agentDatabasePath(dataDir),
    migrations: AGENT_MIGRATIONS,
    applicationId: AGENT_APPLICATION_ID,
    ...options,
  })
}

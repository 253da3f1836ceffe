import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { TableEntry } from './session-table.ts'

/**
 * What a visitor's idle connection has left when the gateway stops, twice the `sweepMs` of the ingress:
 * a request that comes on it has to find its device here.
 */
const KEPT_OPEN_MS = 2_000

export interface Departure {
  /** For what is under way on a session that has to end. */
  readonly withinMs: number
  /** How long visitors who come on idle connections find it here. */
  readonly keptOpenMs?: number
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Sends an agent to another process that listens on the same socket, or to another node. One of ours brings a second
 * session up there and keeps this one for what is under way; any other has one session, which ends as
 * soon as nothing is.
 */
export async function sendAway(
  session: TableEntry,
  { withinMs, keptOpenMs = KEPT_OPEN_MS, clock, log }: Departure,
): Promise<void> {
  if (session.identity.instance !== undefined) {
    try {
      await session.command('restart')
      return
    } catch (error) {
      log.info({ err: error, session: session.id }, 'the agent does not open a second session')
    }
  }
  await clock.sleep(keptOpenMs)
  session.retire(withinMs - keptOpenMs)
}

import type { LinkEvent } from '../link-state.ts'
import type { Problem } from '../problem.ts'

/** Why a session that works is replaced by another one, or ended. */
export const AUTHTOKEN_CHANGED: Problem = {
  reason: 'auth',
  detail: 'the authtoken changed',
  remedy: 'No action needed. The agent connects with the new authtoken.',
  permanent: false,
}

export const RESTART_ASKED: Problem = {
  reason: 'network',
  detail: 'the service asked for a new session',
  remedy: 'No action needed. The agent reconnects automatically.',
  permanent: false,
}

/** `auth`: the account's owner says who may be connected, as with a credential that was revoked. */
export const STOP_ASKED: Problem = {
  reason: 'auth',
  detail: 'the service told this device to stop',
  remedy: 'To connect again, restart the agent or change the authtoken.',
  permanent: true,
}

/** What a problem of the link is to its state. */
export function eventOf(problem: Problem): LinkEvent {
  if (problem === STOP_ASKED) return 'park'
  if (problem.reason === 'duplicate') return 'duplicate'
  return problem.permanent ? 'refused' : 'failed'
}

import type { LinkEvent } from '../link-state.ts'
import type { Problem } from '../problem.ts'

/** Why a session that works is replaced by another one, or ended. */
export const AUTHTOKEN_CHANGED: Problem = {
  reason: 'auth',
  detail: 'the authtoken changed',
  remedy: 'Nothing to do: the agent connects with the new one.',
  permanent: false,
}

export const RESTART_ASKED: Problem = {
  reason: 'network',
  detail: 'the service asked for a new session',
  remedy: 'Nothing to do: the agent connects again by itself.',
  permanent: false,
}

export const NOT_REPLACED: Problem = {
  reason: 'network',
  detail: 'the process that was to take over did not come up',
  remedy: 'Nothing to do: the agent takes its names back with a new session.',
  permanent: false,
}

/** `auth`: the account's owner says who may be connected, as with a credential that was revoked. */
export const STOP_ASKED: Problem = {
  reason: 'auth',
  detail: 'the service asked this device to stop',
  remedy: 'Restart the agent, or give it another authtoken, to connect again.',
  permanent: true,
}

/** What a problem of the link is to its state. */
export function eventOf(problem: Problem): LinkEvent {
  if (problem === STOP_ASKED) return 'park'
  if (problem.reason === 'duplicate') return 'duplicate'
  return problem.permanent ? 'refused' : 'failed'
}

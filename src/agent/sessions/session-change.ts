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

/** `auth`: the account's owner says who may be connected, as with a credential that was revoked. */
export const STOP_ASKED: Problem = {
  reason: 'auth',
  detail: 'the service asked this device to stop',
  remedy: 'Restart the agent, or give it another authtoken, to connect again.',
  permanent: true,
}

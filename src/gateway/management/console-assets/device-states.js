import { formatSpan } from './format.js'

/** What the states of devices are called, and how they look. */
const STATES = {
  online: { label: 'Online', tone: 'good' },
  away: { label: 'Away', tone: 'wait' },
  offline: { label: 'Offline', tone: 'bad' },
  never: { label: 'Never seen', tone: 'plain' },
}

const REASONS = {
  stopped: 'The agent was stopped.',
  disconnected: 'The connection broke, and the agent has not reconnected.',
  silent: 'No answer: no power, no network, or the agent hangs.',
  kicked: 'The agent was stopped by command.',
  revoked: 'The authtoken is no longer valid.',
  duplicate: 'Another process with the same identity replaced it.',
  'gateway-restarted': 'Not reconnected since the gateway restarted.',
}

export const labelOf = (state) => STATES[state].label
export const toneOf = (state) => STATES[state].tone

/** Why a device is not online, as a sentence; empty when it is, or was never seen. */
export const reasonOf = ({ state, reason }) =>
  state === 'away' ? 'Disconnected a moment ago, expected to reconnect.' : (REASONS[reason] ?? '')

/** `for 2 hours`. Empty for a device that was never seen. */
export const sinceOf = ({ since }) => (since ? `for ${formatSpan(since)}` : '')

import { formatDistance } from './format.js'

/** What the states of devices are called, and how they look. */
const STATES = {
  online: { label: 'Online', tone: 'good' },
  away: { label: 'Away', tone: 'wait' },
  offline: { label: 'Offline', tone: 'bad' },
  never: { label: 'Never seen', tone: 'plain' },
}

const REASONS = {
  stopped: 'It said that it stops.',
  disconnected: 'Its connection broke, and it has not come back.',
  silent: 'It does not answer: no power, no network, or it hangs.',
  kicked: 'Somebody told it to stop.',
  revoked: 'Its authtoken is not valid any more.',
  duplicate: 'Another process with its identity took its place.',
  'gateway-restarted': 'It has not come back since the gateway was restarted.',
}

export const labelOf = (state) => STATES[state].label
export const toneOf = (state) => STATES[state].tone

/** Why a device is not online, as a sentence; empty when it is, or was never seen. */
export const reasonOf = ({ state, reason }) =>
  state === 'away' ? 'It was here a moment ago, and is expected back.' : (REASONS[reason] ?? '')

/** `2 hours ago`; of devices that nobody has seen nothing. */
export const sinceOf = ({ since }) => (since ? formatDistance(since) : '')

/**
 * State of the link, which has one serving session.
 *
 * - `suspect`: connected, but the agent cannot reach itself through the service, so no tunnel is reported as
 *   online.
 * - `parked`: ended by a command of the service.
 * - `duplicate`: another device is connected with the same identity. The state stays while the link retries.
 */
export type LinkState =
  | 'connecting'
  | 'up'
  | 'suspect'
  | 'waiting'
  | 'refused'
  | 'duplicate'
  | 'parked'
  | 'stopped'

export type LinkEvent =
  | 'connect'
  | 'connected'
  | 'failed'
  | 'refused'
  | 'duplicate'
  | 'park'
  | 'distrust'
  | 'trust'
  | 'stop'

/** Transitions that are the same from each state. */
const DOWN = {
  failed: 'waiting',
  refused: 'refused',
  duplicate: 'duplicate',
  park: 'parked',
  stop: 'stopped',
} as const

const NEXT: Record<LinkState, Partial<Record<LinkEvent, LinkState>>> = {
  waiting: { ...DOWN, connect: 'connecting' },
  connecting: { ...DOWN, connected: 'up' },
  up: { ...DOWN, distrust: 'suspect' },
  suspect: { ...DOWN, trust: 'up' },
  refused: { ...DOWN, connect: 'connecting' },
  duplicate: { ...DOWN, connected: 'up' },
  parked: { ...DOWN, connect: 'connecting' },
  stopped: {},
}

/** Returns the state after an event. Events that do not apply to a state are ignored. */
export function nextLinkState(state: LinkState, event: LinkEvent): LinkState {
  return NEXT[state][event] ?? state
}

/** Returns the group of a state for `since`: all attempts while the link is down belong to one outage. */
export function kindOf(state: LinkState): string {
  return ['connecting', 'waiting', 'refused', 'duplicate'].includes(state) ? 'down' : state
}

/** True while there is a session to open endpoints on. */
export function hasSession(state: LinkState): boolean {
  return state === 'up' || state === 'suspect'
}

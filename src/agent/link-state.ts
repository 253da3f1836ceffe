/**
 * Health of the one SDK session. `suspect`: connected, but the agent cannot reach itself through
 * the service, so nothing may be called online. `parked`: ended because the service said so.
 * `duplicate`: another device is connected with the same identity; it stays so while the link tries again.
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

/** The ways down, the same from everywhere. */
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

/** The state after an event; an event that means nothing in a state changes nothing. */
export function nextLinkState(state: LinkState, event: LinkEvent): LinkState {
  return NEXT[state][event] ?? state
}

/** What `since` counts: the tries while the link is down are one and the same outage. */
export function kindOf(state: LinkState): string {
  return ['connecting', 'waiting', 'refused', 'duplicate'].includes(state) ? 'down' : state
}

/** True while there is a session to open endpoints on. */
export function hasSession(state: LinkState): boolean {
  return state === 'up' || state === 'suspect'
}

/**
 * Health of the one SDK session. `suspect`: connected, but the agent cannot reach itself through
 * the service, so nothing may be called online.
 */
export type LinkState = 'connecting' | 'up' | 'suspect' | 'waiting' | 'refused' | 'stopped'

export type LinkEvent =
  | 'connect'
  | 'connected'
  | 'failed'
  | 'refused'
  | 'distrust'
  | 'trust'
  | 'stop'

const NEXT: Record<LinkState, Partial<Record<LinkEvent, LinkState>>> = {
  waiting: { connect: 'connecting', failed: 'waiting', refused: 'refused', stop: 'stopped' },
  connecting: { connected: 'up', failed: 'waiting', refused: 'refused', stop: 'stopped' },
  up: { distrust: 'suspect', failed: 'waiting', refused: 'refused', stop: 'stopped' },
  suspect: { trust: 'up', failed: 'waiting', refused: 'refused', stop: 'stopped' },
  refused: { connect: 'connecting', failed: 'waiting', refused: 'refused', stop: 'stopped' },
  stopped: {},
}

/** The state after an event; an event that means nothing in a state changes nothing. */
export function nextLinkState(state: LinkState, event: LinkEvent): LinkState {
  return NEXT[state][event] ?? state
}

/** True while there is a session to open endpoints on. */
export function hasSession(state: LinkState): boolean {
  return state === 'up' || state === 'suspect'
}

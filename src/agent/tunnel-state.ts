/** Actual state of a tunnel, as people see it; whether it is wanted at all is in its row. */
export type TunnelState = 'opening' | 'online' | 'waiting' | 'refused' | 'closing'

/** `replacing`: online as it was wanted before, while what is wanted now is being opened. */
export type SupervisedState = TunnelState | 'replacing'

/** `kept`: what was wanted now cannot be opened, and what is open stays. */
export type TunnelEvent = 'open' | 'replace' | 'opened' | 'kept' | 'failed' | 'refused' | 'close'

/** The ways out of being online. */
const DOWN = { failed: 'waiting', refused: 'refused', close: 'closing' } as const

const NEXT: Record<SupervisedState, Partial<Record<TunnelEvent, SupervisedState>>> = {
  waiting: { open: 'opening', refused: 'refused', close: 'closing' },
  opening: { ...DOWN, opened: 'online' },
  online: { ...DOWN, open: 'opening', replace: 'replacing' },
  replacing: { ...DOWN, open: 'opening', opened: 'online', kept: 'online' },
  refused: { open: 'opening', failed: 'waiting', close: 'closing' },
  closing: {},
}

/** The state after an event; an event that means nothing in a state changes nothing. */
export function nextTunnelState(state: SupervisedState, event: TunnelEvent): SupervisedState {
  return NEXT[state][event] ?? state
}

/** Visitors of a tunnel that is being replaced are served. */
export function shownTunnelState(state: SupervisedState): TunnelState {
  return state === 'replacing' ? 'online' : state
}

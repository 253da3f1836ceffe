/** Actual state of a tunnel for display. Its row tells whether it is wanted. */
export type TunnelState = 'opening' | 'online' | 'waiting' | 'refused' | 'closing'

/** `replacing`: the previous version is online while the new one is being opened. */
export type SupervisedState = TunnelState | 'replacing'

/** `kept`: the new version cannot be opened, and the previous one stays open. */
export type TunnelEvent = 'open' | 'replace' | 'opened' | 'kept' | 'failed' | 'refused' | 'close'

/** Transitions from the online states. */
const DOWN = { failed: 'waiting', refused: 'refused', close: 'closing' } as const

const NEXT: Record<SupervisedState, Partial<Record<TunnelEvent, SupervisedState>>> = {
  waiting: { open: 'opening', refused: 'refused', close: 'closing' },
  opening: { ...DOWN, opened: 'online' },
  online: { ...DOWN, open: 'opening', replace: 'replacing' },
  replacing: { ...DOWN, open: 'opening', opened: 'online', kept: 'online' },
  refused: { open: 'opening', failed: 'waiting', close: 'closing' },
  closing: {},
}

/** Returns the state after an event. Events that do not apply to a state are ignored. */
export function nextTunnelState(state: SupervisedState, event: TunnelEvent): SupervisedState {
  return NEXT[state][event] ?? state
}

/** A tunnel that is being replaced still serves visitors, so it is shown as online. */
export function shownTunnelState(state: SupervisedState): TunnelState {
  return state === 'replacing' ? 'online' : state
}

/** Actual state of a tunnel; whether it is wanted at all is in its row. */
export type TunnelState = 'opening' | 'online' | 'waiting' | 'refused' | 'closing'

export type TunnelEvent = 'open' | 'opened' | 'failed' | 'refused' | 'close'

const NEXT: Record<TunnelState, Partial<Record<TunnelEvent, TunnelState>>> = {
  waiting: { open: 'opening', refused: 'refused', close: 'closing' },
  opening: { opened: 'online', failed: 'waiting', refused: 'refused', close: 'closing' },
  online: { open: 'opening', failed: 'waiting', refused: 'refused', close: 'closing' },
  refused: { open: 'opening', failed: 'waiting', close: 'closing' },
  closing: {},
}

/** The state after an event; an event that means nothing in a state changes nothing. */
export function nextTunnelState(state: TunnelState, event: TunnelEvent): TunnelState {
  return NEXT[state][event] ?? state
}

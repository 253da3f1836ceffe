/**
 * A connection to the database. `waiting`: the last try failed, or the session was lost; the next try
 * comes after a while.
 */
export type ConnectionState = 'idle' | 'opening' | 'ready' | 'waiting' | 'closed'

export type ConnectionEvent = 'open' | 'opened' | 'lost' | 'close'

const NEXT: Record<ConnectionState, Partial<Record<ConnectionEvent, ConnectionState>>> = {
  idle: { open: 'opening', close: 'closed' },
  opening: { opened: 'ready', lost: 'waiting', close: 'closed' },
  ready: { lost: 'waiting', close: 'closed' },
  waiting: { open: 'opening', close: 'closed' },
  closed: {},
}

/** The state after an event; an event that means nothing in a state changes nothing. */
export function nextConnectionState(
  state: ConnectionState,
  event: ConnectionEvent,
): ConnectionState {
  return NEXT[state][event] ?? state
}

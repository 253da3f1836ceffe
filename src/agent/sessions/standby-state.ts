/**
 * The second session, which is authenticated and has no endpoints. `idle`: there is none, and none is
 * tried, because the link itself is down or no try would help.
 */
export type StandbyState = 'idle' | 'connecting' | 'ready' | 'waiting' | 'refused' | 'stopped'

/** `release`: it was taken for the link, or is not wanted now. */
export type StandbyEvent = 'connect' | 'connected' | 'failed' | 'refused' | 'release' | 'stop'

const AWAY = { release: 'idle', stop: 'stopped' } as const
const DOWN = { ...AWAY, failed: 'waiting', refused: 'refused' } as const

const NEXT: Record<StandbyState, Partial<Record<StandbyEvent, StandbyState>>> = {
  idle: { connect: 'connecting', stop: 'stopped' },
  connecting: { ...DOWN, connected: 'ready' },
  ready: DOWN,
  waiting: { ...AWAY, connect: 'connecting' },
  refused: { ...AWAY, connect: 'connecting' },
  stopped: {},
}

/** The state after an event; an event that means nothing in a state changes nothing. */
export function nextStandbyState(state: StandbyState, event: StandbyEvent): StandbyState {
  return NEXT[state][event] ?? state
}

import { describe, expect, it } from 'vitest'
import {
  hasSession,
  type LinkEvent,
  type LinkState,
  nextLinkState,
} from '../../src/agent/link-state.ts'

const EVENTS = [
  'connect',
  'connected',
  'failed',
  'refused',
  'duplicate',
  'park',
  'distrust',
  'trust',
  'stop',
] as const

/** One row per state, one column per event; a dot changes nothing. */
const TABLE: Record<LinkState, string> = {
  waiting: 'connecting . . refused duplicate parked . . stopped',
  connecting: '. up waiting refused duplicate parked . . stopped',
  up: '. . waiting refused duplicate parked suspect . stopped',
  suspect: '. . waiting refused duplicate parked . up stopped',
  refused: 'connecting . waiting . duplicate parked . . stopped',
  duplicate: '. up waiting refused . parked . . stopped',
  parked: 'connecting . waiting refused duplicate . . . stopped',
  stopped: '. . . . . . . . .',
}

const CASES = Object.entries(TABLE).flatMap(([state, row]) =>
  row.split(' ').map((next, column) => [state, EVENTS[column], next === '.' ? state : next]),
) as [LinkState, LinkEvent, LinkState][]

describe('nextLinkState', () => {
  it.each(CASES)('%s + %s = %s', (state, event, next) => {
    expect(nextLinkState(state, event)).toBe(next)
  })
})

it('has a session exactly while it is up or suspect', () => {
  const withSession = (Object.keys(TABLE) as LinkState[]).filter(hasSession)
  expect(withSession).toEqual(['up', 'suspect'])
})

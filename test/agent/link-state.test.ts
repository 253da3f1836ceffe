import { describe, expect, it } from 'vitest'
import {
  hasSession,
  type LinkEvent,
  type LinkState,
  nextLinkState,
} from '../../src/agent/link-state.ts'

const EVENTS = ['connect', 'connected', 'failed', 'refused', 'distrust', 'trust', 'stop'] as const

/** One row per state, one column per event; a dot changes nothing. */
const TABLE: Record<LinkState, string> = {
  waiting: 'connecting . . refused . . stopped',
  connecting: '. up waiting refused . . stopped',
  up: '. . waiting refused suspect . stopped',
  suspect: '. . waiting refused . up stopped',
  refused: 'connecting . waiting . . . stopped',
  stopped: '. . . . . . .',
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

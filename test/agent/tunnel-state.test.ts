import { describe, expect, it } from 'vitest'
import {
  nextTunnelState,
  type SupervisedState,
  shownTunnelState,
  type TunnelEvent,
} from '../../src/agent/tunnel-state.ts'

const EVENTS = ['open', 'replace', 'opened', 'kept', 'failed', 'refused', 'close'] as const

/** One row per state, one column per event; a dot changes nothing. */
const TABLE: Record<SupervisedState, string> = {
  waiting: 'opening . . . . refused closing',
  opening: '. . online . waiting refused closing',
  online: 'opening replacing . . waiting refused closing',
  replacing: 'opening . online online waiting refused closing',
  refused: 'opening . . . waiting . closing',
  closing: '. . . . . . .',
}

const CASES = Object.entries(TABLE).flatMap(([state, row]) =>
  row.split(' ').map((next, column) => [state, EVENTS[column], next === '.' ? state : next]),
) as [SupervisedState, TunnelEvent, SupervisedState][]

describe('nextTunnelState', () => {
  it.each(CASES)('%s + %s = %s', (state, event, next) => {
    expect(nextTunnelState(state, event)).toBe(next)
  })
})

it('shows a tunnel as online while it is being replaced', () => {
  expect(shownTunnelState('replacing')).toBe('online')
  expect(shownTunnelState('opening')).toBe('opening')
})

import { describe, expect, it } from 'vitest'
import {
  nextTunnelState,
  type TunnelEvent,
  type TunnelState,
} from '../../src/agent/tunnel-state.ts'

const EVENTS = ['open', 'opened', 'failed', 'refused', 'close'] as const

/** One row per state, one column per event; a dot changes nothing. */
const TABLE: Record<TunnelState, string> = {
  waiting: 'opening . . refused closing',
  opening: '. online waiting refused closing',
  online: 'opening . waiting refused closing',
  refused: 'opening . waiting . closing',
  closing: '. . . . .',
}

const CASES = Object.entries(TABLE).flatMap(([state, row]) =>
  row.split(' ').map((next, column) => [state, EVENTS[column], next === '.' ? state : next]),
) as [TunnelState, TunnelEvent, TunnelState][]

describe('nextTunnelState', () => {
  it.each(CASES)('%s + %s = %s', (state, event, next) => {
    expect(nextTunnelState(state, event)).toBe(next)
  })
})

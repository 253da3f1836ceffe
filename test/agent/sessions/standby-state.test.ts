import { describe, expect, it } from 'vitest'
import {
  nextStandbyState,
  type StandbyEvent,
  type StandbyState,
} from '../../../src/agent/sessions/standby.ts'

const EVENTS = ['connect', 'connected', 'failed', 'refused', 'release', 'stop'] as const

/** One row per state, one column per event; a dot changes nothing. */
const TABLE: Record<StandbyState, string> = {
  idle: 'connecting . . . . stopped',
  connecting: '. ready waiting refused idle stopped',
  ready: '. . waiting refused idle stopped',
  waiting: 'connecting . . . idle stopped',
  refused: 'connecting . . . idle stopped',
  stopped: '. . . . . .',
}

const CASES = Object.entries(TABLE).flatMap(([state, row]) =>
  row.split(' ').map((next, column) => [state, EVENTS[column], next === '.' ? state : next]),
) as [StandbyState, StandbyEvent, StandbyState][]

describe('nextStandbyState', () => {
  it.each(CASES)('%s + %s = %s', (state, event, next) => {
    expect(nextStandbyState(state, event)).toBe(next)
  })
})

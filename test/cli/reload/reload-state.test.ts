import { describe, expect, it } from 'vitest'
import {
  nextReloadState,
  type ReloadEvent,
  type ReloadState,
} from '../../../src/cli/reload/process-reload.ts'

function through(...events: ReloadEvent[]): ReloadState {
  return events.reduce<ReloadState>(nextReloadState, 'serving')
}

describe('the state of a process that may be replaced', () => {
  it.each<[string, ReloadEvent[], ReloadState]>([
    ['serves on after a failure', ['request', 'failed'], 'serving'],
    ['is reloaded once at a time', ['request', 'request'], 'reloading'],
    [
      'waits for what hangs, whatever else fails',
      ['request', 'hung', 'failed', 'request'],
      'stuck',
    ],
    ['serves when that is over', ['request', 'hung', 'free'], 'serving'],
    ['has left for good', ['request', 'served', 'failed', 'request', 'stop'], 'left'],
    ['is bereft when the new one died', ['request', 'served', 'died', 'stop'], 'bereft'],
    ['misses nobody before', ['request', 'died'], 'reloading'],
    ['leaves to nobody after a stop', ['request', 'stop', 'served'], 'stopped'],
  ])('%s', (_, events, state) => {
    expect(through(...events)).toBe(state)
  })
})

import { getEventListeners } from 'node:events'
import { describe, expect, it } from 'vitest'
import { formatDuration, parseDuration, systemClock } from '../../src/base/clock.ts'

describe('systemClock', () => {
  it('rejects a sleep with the reason of an aborted signal', async () => {
    const controller = new AbortController()
    const sleep = systemClock.sleep(60_000, controller.signal)
    controller.abort(new Error('stopped'))
    await expect(sleep).rejects.toThrow('stopped')
  })

  it('leaves no listener behind when a sleep ends by itself', async () => {
    const { signal } = new AbortController()
    await systemClock.sleep(1, signal)
    expect(getEventListeners(signal, 'abort')).toHaveLength(0)
  })

  it('does not sleep at all with a signal that was aborted before', async () => {
    await expect(systemClock.sleep(60_000, AbortSignal.abort('gone'))).rejects.toBe('gone')
  })
})

describe('parseDuration', () => {
  it.each([
    ['90s', 90_000],
    ['10m', 600_000],
    ['24h', 86_400_000],
    ['1h30m', 5_400_000],
    ['1.5s', 1_500],
    ['250ms', 250],
  ])('reads %s', (text, ms) => {
    expect(parseDuration(text)).toBe(ms)
  })

  it.each(['', '90', 's', '90 s', '-5s', '10m5', '1d', '5ss'])('refuses %j', (text) => {
    expect(parseDuration(text)).toBeUndefined()
  })
})

describe('formatDuration', () => {
  it.each([
    [-5, '0 s'],
    [40_000, '40 s'],
    [180_000, '3 min'],
    [7_500_000, '2 h 5 min'],
    [7_200_000, '2 h'],
    [3 * 86_400_000, '3 days'],
  ])('%d ms reads %s', (ms, text) => {
    expect(formatDuration(ms)).toBe(text)
  })
})

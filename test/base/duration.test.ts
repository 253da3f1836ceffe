import { describe, expect, it } from 'vitest'
import { formatDuration, parseDuration } from '../../src/base/duration.ts'

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

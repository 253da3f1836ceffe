import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { ageText, paintFor, plainLine, tableText } from '../../../src/cli/local/terminal-text.ts'

const terminal = () => Object.assign(new PassThrough(), { isTTY: true })
const plain = paintFor(new PassThrough(), {})

describe('text for a terminal', () => {
  it('has colours where somebody looks, unless they are not wanted', () => {
    expect(paintFor(terminal(), {})('red', 'x')).toBe('\x1b[31mx\x1b[0m')
    expect(paintFor(terminal(), { NO_COLOR: '1' })('red', 'x')).toBe('x')
    expect(paintFor(terminal(), { TERM: 'dumb' })('red', 'x')).toBe('x')
    expect(plain('red', 'x')).toBe('x')
  })

  it('has nothing of others that a terminal would obey', () => {
    expect(plainLine('a\x1b[2Jb\nc\u202ed')).toBe('a [2Jb c d')
    const [, row] = tableText([[{ text: 'NAME' }], [{ text: 'x\x1b]0;y\x07' }]], plain).split('\n')
    expect(row).toBe('x ]0;y')
  })

  it('puts cells below each other, whatever their colour', () => {
    const paint = paintFor(terminal(), {})
    const rows = [
      [{ text: 'A' }, { text: 'B' }],
      [{ text: 'long', colour: 'red' as const }, { text: 'x' }],
    ]
    expect(tableText(rows, plain)).toBe('A     B\nlong  x\n')
    expect(tableText(rows, paint)).toBe('A     B\n\x1b[31mlong\x1b[0m  x\n')
  })

  it.each([
    [0, '0 s'],
    [59, '59 s'],
    [60, '1 min'],
    [3_599, '59 min'],
    [3_600, '1 h'],
    [86_399, '23 h'],
    [86_400, '1 d'],
    [-5, '0 s'],
  ])('says how long ago %d s are: %s', (seconds, text) => {
    expect(ageText('2030-01-01T00:00:00Z', Date.UTC(2030, 0, 1) + seconds * 1_000)).toBe(text)
  })
})

import { describe, expect, it } from 'vitest'
import { Pattern, PatternError, patternSize } from '../../../src/policy/expression/pattern.ts'

describe('patternSize', () => {
  it.each([
    ['abc', 3],
    ['a{1000}', 1_000],
    ['a{3,}', 3],
    ['a{2,9}', 9],
    ['((ab){10}c){5}', 105],
    ['(((a{9}){9}){9}){9}', 6_561],
    ['[a-z{500}]{3}', 3],
    ['[]a]{3}', 3],
    ['[^\\]x]{2}', 2],
    ['[[:alpha:]]{4}', 4],
    ['\\{500}', 5],
    ['\\Qa{500}\\E', 9],
    ['x{,5}', 5],
    ['[\\pL_]{1,40}', 130],
    [')a(', 1],
    ['{5}', 0],
  ])('knows without compiling how long %s is', (source, size) => {
    expect(patternSize(source)).toBe(size)
  })

  it.each(['a{1000}'.repeat(140), '\\pL'.repeat(30), '(abcdefghij){60}'])(
    'keeps %.20s from the compiler',
    (source) => {
      expect(() => new Pattern(source)).toThrow(PatternError)
      expect(() => new Pattern(source)).toThrow(
        `is too complex, about ${patternSize(source)} steps`,
      )
    },
  )
})

import fc from 'fast-check'
import { expect, it } from 'vitest'
import { jsonErrorPosition } from '../../src/base/json.ts'

it.each([
  ['', 1, 1],
  ['nope', 1, 1],
  ['{"a": }', 1, 7],
  ['{"a":1,}', 1, 8],
  ['{"a" 1}', 1, 6],
  ['{"a":1', 1, 7],
  ['{\n  "a": [1, 2\n  "b": 3\n}', 3, 3],
  ['{\n  "a": 1\n}\n}', 4, 1],
  ['["a\nb"]', 1, 2],
  ['[01]', 1, 3],
  ['[1]\n  x', 2, 3],
  ['{"a":1]', 1, 7],
  ['{,}', 1, 2],
])('%j goes wrong in line %i, column %i', (text, line, column) => {
  expect(jsonErrorPosition(text)).toEqual({ line, column })
})

it('finds a mistake exactly where JSON.parse refuses, whatever the text', () => {
  const parses = (text: string) => {
    try {
      JSON.parse(text)
      return true
    } catch {
      return false
    }
  }
  const pieces = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '"a"',
    '"',
    '1',
    '-',
    'true',
    ' ',
    '\n',
    '\\',
  )
  fc.assert(
    fc.property(
      fc.oneof(
        fc.array(pieces).map((p) => p.join('')),
        fc.json(),
      ),
      (text) => {
        expect(jsonErrorPosition(text) === undefined).toBe(parses(text))
      },
    ),
    { numRuns: 2_000 },
  )
})

import { describe, expect, it } from 'vitest'
import { findDomainProblem } from '../../../src/gateway/records/domain-name.ts'

const label63 = 'a'.repeat(63)
const name253 = `${label63}.${label63}.${label63}.${'a'.repeat(57)}.com`

describe('findDomainProblem', () => {
  it.each([
    'a.example.com',
    '*.example.com',
    '*.internal',
    '1.2.example',
    'a-b.example',
    'a--b.example',
    'xn--bcher-kva.example',
    `${label63}.example`,
    name253,
  ])('accepts %s', (name) => {
    expect(findDomainProblem(name)).toBeUndefined()
  })

  it.each([
    ['', 'first-character'],
    ['*', 'wildcard-place'],
    ['example', 'not-qualified'],
    ['a b.example', 'character'],
    ['A.example', 'character'],
    ['bücher.example', 'character'],
    ['a/b.example', 'character'],
    ['a.example:443', 'character'],
    ['[::1]', 'character'],
    ['a_b.example', 'underscore'],
    ['a..example', 'repeated-dot'],
    ['.example', 'first-character'],
    ['a.example.', 'first-character'],
    ['*.', 'first-character'],
    ['-a.example', 'first-character'],
    ['a-.example', 'last-character'],
    ['a.example-', 'last-character'],
    ['ab--c.example', 'hyphens'],
    ['xn--ab-.example', 'last-character'],
    ['xn--zzzzzzz99999.example', 'punycode'],
    ['a.*.example', 'wildcard-place'],
    ['*.*.example', 'wildcard-place'],
    ['a*.example', 'wildcard-place'],
    ['127.0.0.1', 'top-level'],
    [`${label63}a.example`, 'label-length'],
    [`a${name253}`, 'length'],
  ])('finds in %j: %s', (name, problem) => {
    expect(findDomainProblem(name)).toBe(problem)
  })
})

import { describe, expect, it } from 'vitest'
import {
  plainAuthority,
  plainHost,
  plainValues,
} from '../../../src/policy/exchange/request-path.ts'

describe('plainHost()', () => {
  it.each([
    ['a.test', 'a.test'],
    ['A.Test', 'a.test'],
    ['a.test.', 'a.test'],
    ['A.test.:8443', 'a.test'],
    ['a.test:', 'a.test'],
    ['192.0.2.1:80', '192.0.2.1'],
    ['[2001:DB8::1]', '[2001:db8::1]'],
    ['[2001:DB8::1]:8443', '[2001:db8::1]'],
    ['[::1].', '[::1]'],
    ['', ''],
    ['.', '.'],
  ])('of %s is %s', (host, plain) => {
    expect(plainHost(host)).toBe(plain)
  })
})

describe('plainAuthority()', () => {
  it.each([
    ['A.test.:443', 'https', 'a.test'],
    ['A.test:443', 'http', 'a.test:443'],
    ['a.test:80', 'http', 'a.test'],
    ['a.test:', 'https', 'a.test'],
    ['a.test.:8443', 'https', 'a.test:8443'],
    ['[::1]:8443', 'https', '[::1]:8443'],
    ['[::1]:443', 'https', '[::1]'],
  ] as const)('of %s over %s is %s', (authority, scheme, plain) => {
    expect(plainAuthority(authority, scheme)).toBe(plain)
  })
})

describe('plainValues()', () => {
  it('changes headers with a host alone', () => {
    expect(plainValues('Host', ['A.test.:1'])).toEqual(['a.test'])
    expect(plainValues('X-Forwarded-Host', ['A.test', 'b.test:80'])).toEqual(['a.test', 'b.test'])
    expect(plainValues('x-tag', ['A.test.:1'])).toEqual(['A.test.:1'])
    expect(plainValues('cost', ['A.test.:1'])).toEqual(['A.test.:1'])
  })
})

import { describe, expect, it } from 'vitest'
import { BoundedCache } from '../../../src/base/bounded-cache.ts'
import { Account } from '../../../src/policy/expression/account.ts'
import { Pattern, PatternError } from '../../../src/policy/expression/pattern.ts'
import { seeded } from '../../helpers/seeded.ts'

describe('Pattern', () => {
  it.each([
    ['a(b+)', 'xabbab', '<$1>', 'x<bb><b>', ['abb', 'ab']],
    ['b', 'abc', '$0$0', 'abbc', ['b']],
    ['b', 'abc', '$$1', 'a$1c', ['b']],
    ['(b)', 'abc', '$2-$11', 'a-c', ['b']],
    ['x*', 'ab', '-', '-a-b-', ['', '', '']],
    // Go: an empty match that abuts the match before it does not count.
    ['.*', 'abc', '-', '-', ['abc']],
    ['.*', '', '-', '-', ['']],
    ['b*', 'abbc', '-', '-a-c-', ['', 'bb', '']],
    ['a*', 'baac', '<$0>', '<>b<aa>c<>', ['', 'aa', '']],
    ['(a|b*)', 'aabb', '-', '---', ['a', 'a', 'bb']],
    ['(?m)^.*$', 'a\n\nb', '-', '-\n-\n-', ['a', '', 'b']],
    ['x*', '\u{1f600}', '-', '-\u{1f600}-', ['', '']],
    ['x', 'abc', '-', 'abc', []],
    ['(?i)B', 'abc', '', 'ac', ['b']],
    ['b', 'abc', "$`$'$&", "a$`$'$&c", ['b']],
  ])('%s in %s by %s gives %s', (source, text, replacement, expected, matches) => {
    expect(new Pattern(source).replaceAll(text, replacement, 100, new Account())).toEqual({
      text: expected,
      matches,
    })
  })

  it.each([
    ['(', 'is not a valid RE2 expression: it has a ( without )'],
    ['(?=a)', 'is not a valid RE2 expression'],
    ['\\1', 'is not a valid RE2 expression'],
    ['a'.repeat(1_025), 'is longer than 1024 characters'],
    ['(a{100}){9}', 'is too complex'],
  ])('refuses %.20s', (source, message) => {
    expect(() => new Pattern(source)).toThrow(PatternError)
    expect(() => new Pattern(source)).toThrow(message)
  })

  it('bounds what a replacement makes', () => {
    expect(() => new Pattern('a').replaceAll('aaaa', 'xxx', 10, new Account())).toThrow(
      'produces more than 10 characters',
    )
  })

  it('bounds it while it makes it, and pays for parts that stay empty', () => {
    const text = 'a'.repeat(1_000)
    const most = () => new Pattern('a+').replaceAll(text, '$0'.repeat(10_000), 2_000, new Account())
    expect(most).toThrow('produces more than 2000 characters')
    const account = new Account()
    new Pattern('(b?)a').replaceAll(text, '$1$1$1$9', 2_000, account)
    expect(account.spent).toBeGreaterThanOrEqual(33_000)
    expect(account.spent).toBeLessThan(34_000)
  })

  it('pays for what a text takes, a character the same whatever the pattern', () => {
    const paid = (source: string, text: string) => {
      const account = new Account()
      const pattern = new Pattern(source)
      const first = pattern.test(text, account)
      const compiled = account.spent
      expect(pattern.test(text, account)).toBe(first)
      return account.spent - compiled
    }
    const text = (length: number) => `${'a'.repeat(length)}b`
    expect(paid('^(a+)+$', text(5_000))).toBeCloseTo(2 * paid('^(a+)+$', text(2_499)), -1)
    expect(paid('^(a+)+$', text(5_000))).toBe(paid('x', text(5_000)))
  })

  it('refuses a text that could take more than there is', () => {
    const account = new Account()
    expect(() => new Pattern('(?:a?){80}a{80}').test('a'.repeat(60_000), account)).toThrow(
      expect.objectContaining({ isOverspent: true }),
    )
  })

  it('pays for the slow way where a text leaves no other', () => {
    const random = seeded(1)
    const text = Array.from({ length: 2_000 }, () => (random() < 0.5 ? 'a' : 'b')).join('')
    const paid = (pattern: Pattern) => {
      const account = new Account()
      pattern.test(text, account)
      return account.spent
    }
    expect(paid(new Pattern('[ab]*a[ab]{40}[xy]'))).toBeGreaterThan(100 * paid(new Pattern('x')))
  })
})

describe('BoundedCache', () => {
  it('makes each thing once, and forgets the oldest when there are too many', () => {
    const made: string[] = []
    const cache = new BoundedCache((text) => {
      made.push(text)
      return { text }
    }, 2)
    for (const text of ['a', 'b', 'a', 'c', 'b', 'a']) expect(cache.get(text)).toEqual({ text })
    expect(made).toEqual(['a', 'b', 'c', 'a'])
  })

  it('passes on what the maker throws, and tries again', () => {
    const cache = new BoundedCache(() => {
      throw new RangeError('no')
    })
    expect(() => cache.get('a')).toThrow('no')
    expect(() => cache.get('a')).toThrow('no')
  })
})

import { describe, expect, it } from 'vitest'
import { HeaderList, HeaderTail } from '../../../src/policy/exchange/header-list.ts'

const list = () => new HeaderList(['Host', 'h', 'X-A', '1', 'x-a', '2', 'Accept', '*/*'])

describe('HeaderList', () => {
  it('finds names in any case and keeps the order of values', () => {
    expect(list().get('x-A')).toBe('1')
    expect(list().all('X-a')).toEqual(['1', '2'])
    expect(list().has('ACCEPT')).toBe(true)
  })

  it('tells an absent name from an empty value', () => {
    const headers = new HeaderList(['x-empty', ''])
    expect(headers.get('x-empty')).toBe('')
    expect(headers.get('x-absent')).toBeUndefined()
    expect(headers.all('x-absent')).toEqual([])
  })

  it('appends behind what is there', () => {
    const headers = list()
    headers.append('X-A', '3')
    expect(headers.all('x-a')).toEqual(['1', '2', '3'])
  })

  it('replaces all values of a name at the place of the first', () => {
    const headers = list()
    headers.set('x-a', '9')
    expect(headers.fields).toEqual(['Host', 'h', 'X-A', '9', 'Accept', '*/*'])
  })

  it('sets a name that was not there', () => {
    const headers = list()
    headers.set('x-new', '1')
    expect(headers.get('X-New')).toBe('1')
  })

  it('removes every field of a name and says whether there was one', () => {
    const headers = list()
    expect(headers.remove('X-A')).toBe(true)
    expect(headers.remove('X-A')).toBe(false)
    expect([...headers]).toEqual([
      ['Host', 'h'],
      ['Accept', '*/*'],
    ])
  })

  it.each([
    ['appends', (headers: HeaderList) => headers.append('x-b', '1')],
    ['sets', (headers: HeaderList) => headers.set('x-a', '9')],
    ['removes', (headers: HeaderList) => void headers.remove('x-a')],
    ['extends', (headers: HeaderList) => headers.extend(new HeaderTail(['x-b', '1']))],
  ])('leaves the given fields as they are when it %s', (_what, change) => {
    const given = ['X-A', '1', 'x-a', '2']
    for (const recurs of [true, false]) {
      const headers = new HeaderList(given, recurs)
      change(headers)
      expect(headers.fields).not.toEqual(given)
      expect(given).toEqual(['X-A', '1', 'x-a', '2'])
    }
  })

  it('gives the same array for heads that recur, until it is changed otherwise', () => {
    const [tail, given] = [new HeaderTail(['x-b', '1']), ['X-A', '1']]
    const extended = (fields: string[]) => {
      const headers = new HeaderList(fields, true)
      headers.extend(tail)
      return headers
    }
    const first = extended(given)
    expect(extended(given).fields).toBe(first.fields)
    expect(extended(['X-A', '2']).fields).toEqual(['X-A', '2', 'x-b', '1'])
    first.append('x-c', '1')
    expect([first.recurs, extended(given).recurs]).toEqual([false, true])
    expect(extended(given).fields).toEqual(['X-A', '1', 'x-b', '1'])
  })

  it('keeps one array for each head: a policy may choose another tail each time', () => {
    const given = ['X-A', '1']
    const extended = (...tails: HeaderTail[]) => {
      const headers = new HeaderList(given, true)
      for (const tail of tails) headers.extend(tail)
      return headers
    }
    const [first, other] = [new HeaderTail(['x-b', '1']), new HeaderTail(['x-c', '1'])]
    const kept = extended(first, other).fields
    expect(extended(first, other).fields).toBe(kept)
    expect(extended(other).fields).toEqual(['X-A', '1', 'x-c', '1'])
    expect(extended(first, other).fields).toEqual(kept)
    expect(extended(first, other).fields).not.toBe(kept)
    const long = new HeaderTail(Array(100).fill('x'))
    expect([extended(first).recurs, extended(first, long).recurs]).toEqual([true, false])
    expect(extended(first, long).fields).toHaveLength(104)
  })
})

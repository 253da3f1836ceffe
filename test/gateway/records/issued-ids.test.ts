import { randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { IssuedIds, isResourceId } from '../../../src/gateway/records/resource-id.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

describe('IssuedIds', () => {
  it('makes ids that sort by time and that those with the same key know', async () => {
    const clock = new ManualClock(Date.UTC(2030, 0, 1))
    const key = randomBytes(32)
    const ids = new IssuedIds(clock, key)
    const made: string[] = []
    for (let turn = 0; turn < 1_000; turn += 1) {
      made.push(ids.next('ep'))
      if (turn % 100 === 0) await clock.advance(1_000)
    }
    expect(made).toEqual([...made].sort())
    expect(new Set(made).size).toBe(made.length)
    const other = new IssuedIds(clock, key)
    for (const id of made) {
      expect(isResourceId(id, 'ep')).toBe(true)
      expect(other.isIssued(id, 'ep')).toBe(true)
    }
  })

  it('knows no others', () => {
    const clock = new ManualClock()
    const [ids, foreign] = [0, 1].map(() => new IssuedIds(clock, randomBytes(32))) as [
      IssuedIds,
      IssuedIds,
    ]
    const id = ids.next('ep')
    const changed = (at: number) => {
      const digit = id[at] === 'a' ? 'b' : 'a'
      return `${id.slice(0, at)}${digit}${id.slice(at + 1)}`
    }
    expect(ids.isIssued(id, 'ep')).toBe(true)
    expect(ids.isIssued(foreign.next('ep'), 'ep')).toBe(false)
    expect(ids.isIssued(id.replace('ep_', 'ts_'), 'ts')).toBe(false)
    for (let at = 3; at < id.length; at += 1) {
      expect(ids.isIssued(changed(at), 'ep'), changed(at)).toBe(false)
    }
    for (const text of ['', 'ep_', 'ep_zzzzzzzzzzzzzzzzzzzzzzzzzzz', `${id}0`, 'ep_!']) {
      expect(ids.isIssued(text, 'ep'), text).toBe(false)
    }
  })
})

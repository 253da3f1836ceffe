import { describe, expect, it } from 'vitest'
import {
  createResourceToken,
  IdSource,
  idOfToken,
  isResourceId,
} from '../../../src/gateway/records/resource-id.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

describe('IdSource', () => {
  it('makes ids that sort by the order they were made in', async () => {
    const clock = new ManualClock()
    const source = new IdSource(clock)
    const ids: string[] = []
    for (let second = 0; second < 3; second += 1) {
      for (let n = 0; n < 500; n += 1) ids.push(source.next('cr'))
      await clock.advance(1_000)
    }
    expect(ids.toSorted()).toEqual(ids)
    expect(new Set(ids).size).toBe(ids.length)
    expect(ids.every((id) => isResourceId(id, 'cr'))).toBe(true)
  })

  it('keeps the order when the wall clock steps back', () => {
    const clock = new ManualClock()
    const source = new IdSource(clock)
    const before = source.next('ts')
    clock.stepWall(-86_400_000)
    expect(source.next('ts') > before).toBe(true)
  })

  it('sorts ids of two sources by their seconds', async () => {
    const clock = new ManualClock(0)
    const first = new IdSource(clock).next('rd')
    clock.stepWall(Date.UTC(2030, 0, 1))
    const second = new IdSource(clock).next('rd')
    clock.stepWall(1_000)
    const ids = [first, second, new IdSource(clock).next('rd')]
    expect(ids.toSorted()).toEqual(ids)
  })
})

describe('createResourceToken', () => {
  it('carries the id of its resource and hides when printed', () => {
    const id = new IdSource(new ManualClock()).next('cr')
    const token = createResourceToken(id)
    expect(token.reveal()).toMatch(/^[0-9A-Za-z]{27}_[0-9][0-9A-Za-z]{20}$/)
    expect(idOfToken(token.reveal(), 'cr')).toBe(id)
    expect(idOfToken(token.reveal(), 'ak')).toBe(id.replace('cr_', 'ak_'))
    expect(`${token}`).toBe('[secret]')
    expect(createResourceToken(id).reveal()).not.toBe(token.reveal())
  })

  it.each(['', 'x', 'a_b', `${'a'.repeat(27)}_${'a'.repeat(21)}`, `${'a'.repeat(27)}-1`])(
    'finds no id in %j',
    (text) => {
      expect(idOfToken(text, 'cr')).toBeUndefined()
    },
  )
})

import { describe, expect, it } from 'vitest'
import {
  BrowserSessions,
  IDLE_MS,
  LIFETIME_MS,
  MAX_PER_HOLDER,
  MAX_SESSIONS,
} from '../../../src/http/pages/browser-sessions.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const use = { isUse: true }
const look = { isUse: false }

function start() {
  const clock = new ManualClock()
  return { clock, sessions: new BrowserSessions(clock) }
}

describe('BrowserSessions', () => {
  it('finds a session by its id and by nothing else', () => {
    const { sessions } = start()
    const id = sessions.open('ak_1').reveal()
    expect(sessions.find(id, use)?.holder).toBe('ak_1')
    expect(sessions.find(`${id}x`, use)).toBeUndefined()
    expect(sessions.find('', use)).toBeUndefined()
    expect(sessions.find(sessions.open('ak_2').reveal(), use)?.holder).toBe('ak_2')
  })

  it('ends a session that is closed', () => {
    const { sessions } = start()
    const id = sessions.open('ak_1').reveal()
    sessions.close(id)
    expect(sessions.find(id, use)).toBeUndefined()
    expect(sessions.size).toBe(0)
  })

  it('ends a session that nobody uses, whatever asks in the background', async () => {
    const { sessions, clock } = start()
    const id = sessions.open('ak_1').reveal()
    await clock.advance(IDLE_MS - 1)
    expect(sessions.find(id, use)).toBeDefined()
    await clock.advance(IDLE_MS - 1)
    expect(sessions.find(id, look)).toBeDefined()
    await clock.advance(1)
    expect(sessions.find(id, look)).toBeUndefined()
  })

  it('ends a session that is used all the time', async () => {
    const { sessions, clock } = start()
    const id = sessions.open('ak_1').reveal()
    const step = IDLE_MS - 1
    for (let passed = step; passed < LIFETIME_MS; passed += step) {
      await clock.advance(step)
      expect(sessions.find(id, use)).toBeDefined()
    }
    await clock.advance(step)
    expect(sessions.find(id, use)).toBeUndefined()
  })

  it('makes room within one holder, and leaves those of others alone', async () => {
    const { sessions } = start()
    const other = sessions.open('ak_2').reveal()
    const ids = Array.from({ length: MAX_PER_HOLDER }, () => sessions.open('ak_1').reveal())
    sessions.find(ids[0] ?? '', use)
    ids.push(sessions.open('ak_1').reveal())
    expect(ids.map((id) => sessions.find(id, look) !== undefined)).toEqual(
      ids.map((_id, at) => at !== 1),
    )
    expect(sessions.find(other, look)).toBeDefined()
  })

  it('holds a bounded number, and forgets first what is over', async () => {
    const { sessions, clock } = start()
    const first = sessions.open('ak_first').reveal()
    for (let n = 1; n <= MAX_SESSIONS; n += 1) sessions.open(`ak_${n}`)
    expect(sessions.size).toBe(MAX_SESSIONS)
    expect(sessions.find(first, look)).toBeUndefined()
    await clock.advance(IDLE_MS)
    sessions.open('ak_late')
    expect(sessions.size).toBe(1)
  })
})

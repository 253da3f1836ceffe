import { describe, expect, it } from 'vitest'
import {
  BrowserSessions,
  IDLE_MS,
  LIFETIME_MS,
  MAX_PER_HOLDER,
  MAX_SESSIONS,
  MemoryRows,
} from '../../../src/http/pages/browser-sessions.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const use = { isUse: true }
const look = { isUse: false }

function start() {
  const clock = new ManualClock()
  const rows = new MemoryRows(clock)
  return { clock, rows, sessions: new BrowserSessions(clock, rows) }
}

describe('BrowserSessions', () => {
  it('finds a session by its id and by nothing else', async () => {
    const { sessions } = start()
    const id = (await sessions.open('ak_1')).reveal()
    expect(sessions.find(id, use)?.holder).toBe('ak_1')
    expect(sessions.find(`${id}x`, use)).toBeUndefined()
    expect(sessions.find('', use)).toBeUndefined()
    expect(sessions.find((await sessions.open('ak_2')).reveal(), use)?.holder).toBe('ak_2')
  })

  it('ends a session that is closed', async () => {
    const { sessions, rows } = start()
    const id = (await sessions.open('ak_1')).reveal()
    await sessions.close(id)
    expect(sessions.find(id, use)).toBeUndefined()
    expect(rows.all()).toHaveLength(0)
  })

  it('ends a session that nobody uses, whatever asks in the background', async () => {
    const { sessions, clock } = start()
    const id = (await sessions.open('ak_1')).reveal()
    await clock.advance(IDLE_MS - 1)
    expect(sessions.find(id, use)).toBeDefined()
    await clock.advance(IDLE_MS - 1)
    expect(sessions.find(id, look)).toBeDefined()
    await clock.advance(1)
    expect(sessions.find(id, look)).toBeUndefined()
  })

  it('ends a session that is used all the time', async () => {
    const { sessions, clock } = start()
    const id = (await sessions.open('ak_1')).reveal()
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
    const other = (await sessions.open('ak_2')).reveal()
    const ids: string[] = []
    while (ids.length < MAX_PER_HOLDER) ids.push((await sessions.open('ak_1')).reveal())
    sessions.find(ids[0] ?? '', use)
    ids.push((await sessions.open('ak_1')).reveal())
    expect(ids.map((id) => sessions.find(id, look) !== undefined)).toEqual(
      ids.map((_id, at) => at !== 1),
    )
    expect(sessions.find(other, look)).toBeDefined()
  })

  it('holds a bounded number, and forgets first what is over', async () => {
    const { sessions, rows, clock } = start()
    const first = (await sessions.open('ak_first')).reveal()
    for (let n = 1; n <= MAX_SESSIONS; n += 1) await sessions.open(`ak_${n}`)
    expect(rows.all()).toHaveLength(MAX_SESSIONS)
    expect(sessions.find(first, look)).toBeUndefined()
    await clock.advance(IDLE_MS)
    await sessions.open('ak_late')
    expect(rows.all()).toHaveLength(1)
  })
})

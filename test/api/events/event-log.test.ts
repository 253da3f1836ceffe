import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AGENT_EVENT_MIGRATIONS, EventLog, MAX_EVENTS } from '../../../src/api/events/event-log.ts'
import { type Database, openDatabase } from '../../../src/store/database.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const SECOND = 1_000
const CHANGE = { type: 'link.state', data: { state: 'up' } } as const

function openLog(folder = temporaryFolder(), clock = new ManualClock()) {
  const { log } = captureLog()
  const database = openDatabase({
    path: join(folder, 'agent.db'),
    migrations: AGENT_EVENT_MIGRATIONS,
    applicationId: 1,
    log,
    clock,
  })
  let transactions = 0
  database.onWrite(() => {
    transactions += 1
    return undefined
  })
  const events = new EventLog({ database, clock, log })
  return { folder, clock, database, events, transactions: () => transactions }
}

const idsOf = ({ events }: ReturnType<EventLog['after']>) => events.map(({ id }) => id)

describe('the log of events', () => {
  it('follows the clock with its ids, and goes on behind them after a stop', () => {
    const first = openLog()
    const now = first.clock.now()
    for (let n = 0; n < 3; n += 1) first.events.append(CHANGE)
    expect(idsOf(first.events.after(0))).toEqual([now, now + 1, now + 2])
    first.events.stop()
    first.database.close()
    // The clock of a device without a battery begins in the past.
    const second = openLog(first.folder, new ManualClock(5))
    expect(second.events.append(CHANGE).id).toBe(now + 3)
    expect(idsOf(second.events.after(0))).toEqual([now, now + 1, now + 2, now + 3])
    second.database.close()
  })

  it('uses no id twice after a kill, whatever was not written', async () => {
    const first = openLog()
    first.events.append(CHANGE)
    await first.clock.advance(SECOND)
    const [, seen] = [first.events.append(CHANGE).id, first.events.append(CHANGE).id]
    first.database.close()
    await first.clock.advance(SECOND)
    const { events, database } = openLog(first.folder, first.clock)
    const next = events.append(CHANGE)
    // A subscriber that has seen the lost events gets every later one, and none twice.
    expect(next.id).toBeGreaterThan(seen)
    expect(idsOf(events.after(seen))).toEqual([next.id])
    expect(events.after(seen).isComplete).toBe(true)
    database.close()
  })

  it('writes what it could not write as soon as the disk takes it', async () => {
    const first = openLog()
    const { database, clock } = first
    const storage = { isUnwritable: true }
    const write: Database['write'] = (change, options) => {
      if (storage.isUnwritable) throw new Error('the disk takes nothing')
      return database.write(change, options)
    }
    const { log } = captureLog()
    const events = new EventLog({ database: { ...database, write, prepare }, clock, log })
    function prepare<P extends unknown[], R>(sql: string) {
      return database.prepare<P, R>(sql)
    }
    for (let n = 0; n < 3; n += 1) events.append(CHANGE)
    await clock.advance(SECOND)
    storage.isUnwritable = false
    events.append(CHANGE)
    await clock.advance(SECOND)
    database.close()
    expect(openLog(first.folder).events.after(0).events).toHaveLength(4)
  })

  it('keeps the newest thousand, and says when what is asked for is gone', () => {
    const first = openLog()
    const ids: number[] = []
    for (let n = 0; n < MAX_EVENTS + 5; n += 1) ids.push(first.events.append(CHANGE).id)
    const [, , , fourth = 0, fifth = 0] = ids
    const expectKept = (events: EventLog) => {
      expect(events.after(0).events).toHaveLength(MAX_EVENTS)
      expect(events.after(fourth).isComplete).toBe(false)
      expect(events.after(fifth).isComplete).toBe(true)
    }
    expectKept(first.events)
    first.events.stop()
    first.database.close()
    const second = openLog(first.folder)
    expectKept(second.events)
    const count = second.database.prepare<[], number>('SELECT count(*) FROM events').pluck().get()
    expect(count).toBe(MAX_EVENTS)
    second.database.close()
  })

  it('begins anew for who has heard more than there ever was', () => {
    const { events, database } = openLog()
    const { id } = events.append(CHANGE)
    expect(events.after(id)).toEqual({ events: [], isComplete: true })
    expect(idsOf(events.after(id + 1))).toEqual([id])
    expect(events.after(id + 1).isComplete).toBe(false)
    database.close()
  })

  it('writes seldom, however much happens', async () => {
    const { events, clock, transactions, database } = openLog()
    for (let n = 0; n < 3_600; n += 1) {
      events.append(CHANGE)
      await clock.advance(SECOND)
    }
    // An hour: the first twenty at once, then one in thirty seconds.
    expect(transactions()).toBeLessThan(150)
    database.close()
  })
})

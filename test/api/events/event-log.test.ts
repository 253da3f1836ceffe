import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AGENT_EVENT_MIGRATIONS, EventLog, MOST_EVENTS } from '../../../src/api/events/event-log.ts'
import { type Database, openDatabase } from '../../../src/store/database.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { canMount, mountSmallDisk } from '../../helpers/small-disk.ts'
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

function fill(path: string): void {
  for (let size = 1_048_576; size >= 1_024; ) {
    try {
      writeFileSync(path, Buffer.alloc(size, 1), { flag: 'a' })
    } catch {
      size /= 2
    }
  }
}

const idsOf = ({ events }: ReturnType<EventLog['after']>) => events.map(({ id }) => id)

describe('the log of events', () => {
  it('is whole for who goes on with it while this one lives, and goes on behind that itself', () => {
    const first = openLog()
    for (let n = 0; n < 3; n += 1) first.events.append(CHANGE)
    first.events.flush()
    expect(first.transactions()).toBe(2)
    first.events.flush()
    expect(first.transactions()).toBe(2)
    const second = openLog(first.folder)
    expect(idsOf(second.events.after(0))).toEqual([1, 2, 3])
    // Nobody has gone on after all.
    second.database.close()
    expect(first.events.append(CHANGE).id).toBe(4)
    first.events.stop()
    first.database.close()
    expect(idsOf(openLog(first.folder).events.after(0))).toEqual([1, 2, 3, 4])
  })

  it('goes on after a stop without a gap', () => {
    const first = openLog()
    for (let n = 0; n < 3; n += 1) first.events.append(CHANGE)
    first.events.stop()
    first.database.close()
    const second = openLog(first.folder)
    expect(second.events.append(CHANGE).id).toBe(4)
    expect(idsOf(second.events.after(0))).toEqual([1, 2, 3, 4])
    second.database.close()
  })

  it('gives no id twice after a kill, whatever was not written', async () => {
    const first = openLog()
    first.events.append(CHANGE)
    await first.clock.advance(SECOND)
    const told = [first.events.append(CHANGE).id, first.events.append(CHANGE).id]
    first.database.close()
    const { events, database } = openLog(first.folder)
    const next = events.append(CHANGE)
    expect(next.id).toBeGreaterThan(Math.max(...told))
    // Who has heard them is told nothing twice, and everything since.
    expect(idsOf(events.after(3))).toEqual([next.id])
    expect(events.after(3).isComplete).toBe(true)
    database.close()
  })

  it('puts ids by as soon as the disk takes them', () => {
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
    storage.isUnwritable = false
    const told = events.append(CHANGE).id
    database.close()
    const second = openLog(first.folder)
    expect(second.events.append(CHANGE).id).toBeGreaterThan(told)
    second.database.close()
  })

  it.skipIf(!canMount())('gives no id twice after a kill on a full disk', () => {
    const disk = mountSmallDisk('6m')
    const first = openLog(disk.folder)
    first.events.append(CHANGE)
    const filler = join(disk.folder, 'filler')
    fill(filler)
    let told = 0
    // Past those that were put by while there was room.
    for (let n = 0; n < 1_500; n += 1) told = first.events.append(CHANGE).id
    first.database.close()
    rmSync(filler)
    const second = openLog(disk.folder)
    expect(second.events.append(CHANGE).id).toBeGreaterThan(told)
    second.database.close()
  })

  it('keeps the newest thousand, and says when what is asked for is gone', async () => {
    const first = openLog()
    for (let n = 0; n < MOST_EVENTS + 5; n += 1) first.events.append(CHANGE)
    expect(first.events.after(0).events).toHaveLength(MOST_EVENTS)
    expect(first.events.after(3).isComplete).toBe(false)
    expect(first.events.after(5).isComplete).toBe(true)
    first.events.stop()
    const count = first.database.prepare<[], number>('SELECT count(*) FROM events').pluck().get()
    expect(count).toBe(MOST_EVENTS)
    first.database.close()
  })

  it('begins anew for who has heard more than there ever was', () => {
    const { events, database } = openLog()
    events.append(CHANGE)
    expect(idsOf(events.after(7_000))).toEqual([1])
    expect(events.after(7_000).isComplete).toBe(false)
    database.close()
  })

  it('writes seldom, however much happens', async () => {
    const { events, clock, transactions, database } = openLog()
    for (let n = 0; n < 3_600; n += 1) {
      events.append(CHANGE)
      await clock.advance(SECOND)
    }
    // An hour: the first twenty at once, then one in thirty seconds, and what puts ids by.
    expect(transactions()).toBeLessThan(150)
    database.close()
  })
})

import { AsyncLocalStorage } from 'node:async_hooks'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { openDatabase } from '../../../src/store/database.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const MIGRATIONS = [
  { id: '1', sql: 'CREATE TABLE notes (id TEXT PRIMARY KEY, text TEXT NOT NULL)' },
]

function open(path = join(temporaryFolder(), 'notes.db')) {
  const { log } = captureLog()
  const options = { path, migrations: MIGRATIONS, applicationId: 7, log, clock: new ManualClock() }
  const database = openDatabase(options)
  onTestFinished(() => database.close())
  const insert = database.prepare<[string, string]>('INSERT INTO notes (id, text) VALUES (?, ?)')
  const ids = database.prepare<[], { id: string }>('SELECT id FROM notes ORDER BY rowid')
  let commits = 0
  database.onRows(() => {
    commits += 1
  })
  return {
    path,
    database,
    add: (id: string) => database.change(() => insert.run(id, 'text'), { concludes: id }),
    insert,
    ids: () => ids.all().map(({ id }) => id),
    commits: () => commits,
  }
}

const outcomesOf = async (changes: Promise<unknown>[]) =>
  (await Promise.allSettled(changes)).map(({ status }) => status)

describe('changes at the same time', () => {
  it('share a transaction, in their order', async () => {
    const { add, ids, commits } = open()
    const names = Array.from({ length: 50 }, (_, n) => `n${n}`)
    await Promise.all(names.map(add))
    expect([ids(), commits()]).toEqual([names, 1])
    await add('later')
    expect(commits()).toBe(2)
  })

  it('are bounded in number', async () => {
    const { add, commits } = open()
    await Promise.all(Array.from({ length: 250 }, (_, n) => add(`n${n}`)))
    expect(commits()).toBe(3)
  })

  it('are on disk when they resolve', async () => {
    const { add, path, database } = open()
    await Promise.all([add('a'), add('b')])
    // As a kill would leave it: nothing is flushed any more.
    database.release()
    expect(open(path).ids()).toEqual(['a', 'b'])
  })

  it('have an outcome each: what one has done is undone with it alone', async () => {
    const { add, database, insert, ids, commits } = open()
    const failing = () =>
      database.change(() => {
        insert.run('half', 'text')
        throw new Error('no')
      })
    expect(await outcomesOf([add('a'), failing(), add('a'), add('b')])).toEqual([
      'fulfilled',
      'rejected',
      'rejected',
      'fulfilled',
    ])
    expect([ids(), commits()]).toEqual([['a', 'b'], 1])
  })

  it('are tried one by one when the storage refuses them together', async () => {
    const { add, database, insert, ids } = open()
    let runs = 0
    const full = database.change(() => {
      runs += 1
      insert.run('large', 'text')
      throw Object.assign(new Error('no room'), { code: 'ENOSPC' })
    })
    const outcomes = await Promise.allSettled([add('a'), full, add('b')])
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    expect(outcomes[1]).toMatchObject({ reason: { code: 'storage-full' } })
    expect([ids(), runs]).toEqual([['a', 'b'], 2])
  })

  it('run in the context of whoever asked, and so do those who listen', async () => {
    const { database, insert } = open()
    const context = new AsyncLocalStorage<string>()
    const told: unknown[] = []
    database.onWrite((concludes) => {
      told.push([context.getStore(), concludes])
      return () => told.push([context.getStore(), 'on disk'])
    })
    const add = (id: string) =>
      context.run(`for ${id}`, () =>
        database.change(() => insert.run(id, String(context.getStore())), { concludes: id }),
      )
    await Promise.all([add('a'), add('b')])
    expect(told).toEqual([
      ['for a', 'a'],
      ['for b', 'b'],
      ['for a', 'on disk'],
      ['for b', 'on disk'],
    ])
  })

  it('go before one that may use the reserve, and before the end', async () => {
    const { add, database, ids, path } = open()
    const first = add('a')
    const remove = database.prepare<[string]>('DELETE FROM notes WHERE id = ?')
    const removed = database.change(() => remove.run('a').changes, { mayUseReserve: true })
    expect([await removed, await first]).toMatchObject([1, { changes: 1 }])
    expect(ids()).toEqual([])
    const last = add('z')
    database.close()
    await last
    expect(open(path).ids()).toEqual(['z'])
  })
})

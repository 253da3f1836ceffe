import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import type { AuditedChange } from '../../src/base/audit.ts'
import { AuditTrail, auditMigrations } from '../../src/store/audit-trail.ts'
import type { WriteOptions } from '../../src/store/database.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { NOTES_MIGRATIONS } from '../helpers/notes-schema.ts'
import { openNotes } from '../helpers/open-store.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const BOUNDS = { changes: 5, refusals: 3 }
const CHANGE: AuditedChange = {
  actor: { kind: 'token', id: 'tok_1', name: 'crane' },
  client: '203.0.113.7',
  action: 'note.create',
}

/** In a process of its own, where nobody else follows: Node gives ids to promises that are followed. */
const FOLLOWED = `
  import { executionAsyncId } from 'node:async_hooks'
  import { AuditTrail } from '${new URL('../../src/store/audit-trail.ts', import.meta.url)}'
  const nothing = () => {}
  const database = { onWrite: nothing, prepare: nothing, change: async () => {} }
  const trail = new AuditTrail({ database, log: { info: nothing }, clock: Date })
  const idOf = () => Promise.resolve().then(executionAsyncId)
  const before = await idOf()
  await trail.run({ action: 'note.create' }, nothing, { about: () => ({}), codeOf: nothing })
  console.log(JSON.stringify({ before, after: await idOf() }))
`

function openTrail(folder = temporaryFolder()) {
  const clock = new ManualClock()
  const captured = captureLog()
  const notes = openNotes(folder, {
    migrations: [...NOTES_MIGRATIONS, ...auditMigrations(BOUNDS)],
    log: captured.log,
    clock,
  })
  const trail = new AuditTrail({ database: notes.database, log: captured.log, clock })
  const started = trail.start()
  const sql = (text: string) => notes.database.write(() => notes.database.prepare(text).run())
  const write = (text: string, options: WriteOptions) => {
    const insert = notes.database.prepare<[string]>('INSERT INTO notes (text) VALUES (?)')
    notes.database.write(() => insert.run(text), options)
  }
  const codeOf = (error: unknown) => (error as Error).message
  const run = (work: () => unknown, change = CHANGE) =>
    trail.run(change, work, { about: () => ({}), codeOf })
  const told = () => trail.page({ limit: 100 }).map(({ action, result }) => `${action} ${result}`)
  const lines = () => captured.lines.filter(({ msg }) => msg === 'audit')
  return {
    ...notes,
    folder,
    clock,
    trail,
    started,
    sql,
    write,
    run,
    told,
    lines,
    logged: captured.lines,
  }
}

describe('AuditTrail', () => {
  it('tells who did what, when, from where, and what became of it', async () => {
    const { trail, clock, add, lines } = openTrail()
    const about = (id: string) => ({ targetId: id, changes: { text: [null, 'a'] } as const })
    await trail.run(
      { ...CHANGE, requestId: 'request-1' },
      () => {
        add('a')
        return 'note 7'
      },
      { about, codeOf: String },
    )
    expect(trail.page({ limit: 10 })).toEqual([
      {
        ...CHANGE,
        id: 1,
        at: clock.now(),
        targetId: 'note 7',
        targetName: undefined,
        changes: { text: [null, 'a'] },
        result: 'ok',
        requestId: 'request-1',
      },
    ])
    expect(lines()).toMatchObject([
      {
        action: 'note.create',
        result: 'ok',
        actor: CHANGE.actor,
        client: CHANGE.client,
        target: { id: 'note 7' },
        request_id: 'request-1',
      },
    ])
  })

  it('has the row before the answer, and the code of what failed', async () => {
    const { run, told, trail } = openTrail()
    const failing = run(() => {
      throw new Error('domain-taken')
    })
    await expect(failing).rejects.toThrow('domain-taken')
    await trail.note(CHANGE, 'insufficient-scope')
    expect(told()).toEqual(['note.create insufficient-scope', 'note.create domain-taken'])
  })

  it('is one transaction with the change: without a trace nothing is changed', async () => {
    const { run, add, texts, sql } = openTrail()
    sql('DROP TABLE audit_intents')
    await expect(run(() => add('untraced'))).rejects.toThrow('audit_intents')
    expect(texts()).toEqual([])
    add('not asked for by anybody')
    expect(texts()).toHaveLength(1)
  })

  it('tells of a change that nobody lived to note, however deep it was written', async () => {
    const folder = temporaryFolder()
    const first = openTrail(folder)
    const interrupted = first.run(async () => {
      await Promise.resolve()
      first.add('half done')
      first.add('and more')
      return new Promise(() => {})
    })
    expect(interrupted).toBeInstanceOf(Promise)
    await Promise.resolve()
    await Promise.resolve()
    expect(first.texts()).toHaveLength(2)
    first.database.close()
    const second = openTrail(folder)
    await second.started
    expect(second.told()).toEqual(['note.create unknown'])
    expect(second.lines()).toMatchObject([{ result: 'unknown' }])
    second.database.close()
    expect(openTrail(folder).told()).toHaveLength(1)
  })

  it('makes rows for a node that is gone, when no change can be under way there any more', async () => {
    const { database, trail, clock, told } = openTrail()
    const there = new AuditTrail({ database, log: captureLog().log, clock, node: 'nd_2' })
    const others = new AuditTrail({ database, log: captureLog().log, clock, node: 'nd_3' })
    for (const [of, action] of [
      [there, 'note.lost'],
      [others, 'note.busy'],
    ] as const) {
      const work = () => {
        database.write(() => {})
        return new Promise<void>(() => {})
      }
      void of.run({ ...CHANGE, action }, work, { about: () => ({}), codeOf: String })
    }
    const isGone = (node: string) => node === 'nd_2'
    await trail.takeOver(isGone)
    expect(told()).toEqual([])
    await clock.advance(60_000)
    await trail.takeOver(isGone)
    await trail.takeOver(isGone)
    expect(told()).toEqual(['note.lost unknown'])
  })

  it('is in the same transaction as the last write of a change that says that it is the last', async () => {
    const { trail, add, write, told, lines, database, texts } = openTrail()
    const about = () => ({ targetId: 'asked afterwards' })
    const concluded = (id: string) => ({ targetId: id })
    const commits = () => database.prepare('PRAGMA user_version').get() as { user_version: number }
    const before = commits().user_version
    await trail.run(
      CHANGE,
      () => {
        add('asked for')
        write('opened', { concludes: 'note 7' })
        expect(told()).toEqual(['note.create ok'])
        expect(database.prepare('SELECT * FROM audit_intents').all()).toEqual([])
      },
      { about, concluded, codeOf: String },
    )
    expect(commits().user_version - before).toBe(2)
    expect(texts()).toHaveLength(2)
    expect(trail.page({ limit: 9 })).toMatchObject([{ targetId: 'note 7', result: 'ok' }])
    expect(lines()).toMatchObject([{ result: 'ok', target: { id: 'note 7' } }])
  })

  it('has what became of a change whose last write failed, once', async () => {
    const { trail, add, write, told, lines, database, texts } = openTrail()
    let isBroken = true
    database.onWrite((concludes) => {
      if (isBroken && concludes) throw new Error('disk-full')
      return undefined
    })
    const change = () => {
      add('asked for')
      write('opened', { concludes: 'note 7' })
    }
    const codeOf = (error: unknown) => (error as Error).message
    const options = { about: () => ({}), concluded: () => ({}), codeOf }
    await expect(trail.run(CHANGE, change, options)).rejects.toThrow('disk-full')
    expect(told()).toEqual(['note.create disk-full'])
    expect(texts()).toEqual(['asked for'])
    expect(lines()).toMatchObject([{ result: 'disk-full' }])
    isBroken = false
    await trail.run(CHANGE, change, options)
    expect(told()).toEqual(['note.create ok', 'note.create disk-full'])
    expect(database.prepare('SELECT * FROM audit_intents').all()).toEqual([])
  })

  it('leaves no intent behind, also of what goes on after the answer', async () => {
    const { run, add, told, database } = openTrail()
    let later: Promise<void> | undefined
    await run(() => {
      add('now')
      later = new Promise((resolve) => setImmediate(() => resolve(add('later'))))
    })
    await later
    expect(told()).toEqual(['note.create ok'])
    expect(database.prepare('SELECT * FROM audit_intents').all()).toEqual([])
  })

  it.each([
    'UPDATE audit SET actor_name = 1',
    'DELETE FROM audit',
    'DELETE FROM audit WHERE id = 1',
  ])('cannot be changed by %s', (statement) => {
    const { trail, sql, told } = openTrail()
    for (let n = 0; n < 5; n += 1) trail.record(CHANGE)
    expect(() => sql(statement)).toThrow('append-only')
    expect(told()).toHaveLength(5)
  })

  it('follows a change to its end while others end before it', async () => {
    const { run, add, told, database } = openTrail()
    let goOn = () => {}
    const slow = run(async () => {
      await new Promise<void>((resolve) => {
        goOn = resolve
      })
      add('late')
      expect(database.prepare('SELECT * FROM audit_intents').all()).toHaveLength(1)
    })
    await run(() => add('quick'))
    goOn()
    await slow
    expect(told()).toEqual(['note.create ok', 'note.create ok'])
  })

  it('has no share in what is asynchronous once no change runs', async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [
      ...['--import', 'tsx', '--input-type=module', '--eval', FOLLOWED],
    ])
    expect(JSON.parse(stdout)).toEqual({ before: 0, after: 0 })
  })

  it('keeps the newest of both kinds: refusals push no changes out', async () => {
    const { trail } = openTrail()
    for (let n = 1; n <= 7; n += 1) trail.record({ ...CHANGE, action: `change ${n}` })
    for (let n = 1; n <= 9; n += 1)
      await trail.note({ ...CHANGE, action: `refusal ${n}` }, 'forbidden')
    const actions = trail.page({ limit: 100 }).map(({ action }) => action)
    expect(actions).toEqual([
      ...['refusal 9', 'refusal 8', 'refusal 7'],
      ...['change 7', 'change 6', 'change 5', 'change 4', 'change 3'],
    ])
  })

  it('is read in pages, by who, by action and by time', async () => {
    const { trail, clock } = openTrail()
    const other = { kind: 'api-key', id: 'ak_1', name: 'robot' } as const
    trail.record(CHANGE)
    await clock.advance(1_000)
    trail.record({ ...CHANGE, actor: other })
    await clock.advance(1_000)
    trail.record({ ...CHANGE, action: 'note.delete' })
    const ids = (query: object) => trail.page({ limit: 10, ...query }).map(({ id }) => id)
    const second = clock.now() - 1_000
    expect(ids({})).toEqual([3, 2, 1])
    expect(ids({ limit: 2 })).toEqual([3, 2])
    expect(ids({ beforeId: 3 })).toEqual([2, 1])
    expect(ids({ actor: 'robot' })).toEqual([2])
    expect(ids({ actor: 'tok_1' })).toEqual([3, 1])
    expect(ids({ action: 'note.create' })).toEqual([2, 1])
    expect(ids({ since: second })).toEqual([3, 2])
    expect(ids({ until: second })).toEqual([1])
    expect(ids({ since: second, until: second + 1 })).toEqual([2])
  })

  it('cuts texts that a client chose too long', () => {
    const { trail } = openTrail()
    const long = 'x'.repeat(10_000)
    const changes = { policy: [null, long], [long]: 'changed' } as const
    trail.record({ ...CHANGE, action: long, targetId: long, targetName: long, changes })
    const [entry] = trail.page({ limit: 1 })
    expect(JSON.stringify(entry).length).toBeLessThan(2_000)
    expect(entry?.changes).toEqual({ policy: 'changed', [long.slice(0, 30)]: 'changed' })
  })

  it('goes on without a row when the disk refuses it, and says so in the log', async () => {
    const { run, sql, logged } = openTrail()
    sql('DROP TABLE audit')
    await expect(run(() => 'done')).resolves.toBe('done')
    expect(logged).toContainEqual(expect.objectContaining({ level: 'error' }))
    expect(logged).toContainEqual(expect.objectContaining({ msg: 'audit', result: 'ok' }))
  })
})

import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { type Clock, systemClock } from '../../../../src/base/clock.ts'
import { PostgresSession } from '../../../../src/gateway/cluster/postgres/postgres-session.ts'
import { POSITION_TABLE } from '../../../../src/gateway/cluster/replication/entry.ts'
import { CHANNEL } from '../../../../src/gateway/cluster/replication/record-log.ts'
import { openFile } from '../../../../src/store/sqlite.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { hasPostgres, TestPostgres } from '../../../helpers/postgres.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'
import { openNode } from './open-node.ts'

/** As a disk that is full: nothing that others have changed can be kept, while it is broken. */
function breakable(folder: string) {
  const file = openFile(join(folder, 'replica.db'))
  onTestFinished(() => void file.close())
  return {
    break: () =>
      file.exec(`CREATE TRIGGER broken BEFORE UPDATE ON ${POSITION_TABLE}
        BEGIN SELECT RAISE(ABORT, 'no room in /var/lib/secret'); END`),
    mend: () => file.exec('DROP TRIGGER broken'),
  }
}

describe.skipIf(!hasPostgres)('a copy of the records that cannot be written', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  const twoNodes = async () => {
    const address = await postgres.database()
    let passed = 0
    // What is tried for a while is tried for as long as it takes, until `runOut`.
    const clock: Clock = { ...systemClock, monotonic: () => passed }
    const folder = temporaryFolder()
    const a = await openNode(address, { node: 'a', clock: { ...systemClock, monotonic: () => 0 } })
    const b = await openNode(address, { node: 'b', folder, clock })
    const names = (node: typeof a) => node.botUsers.page({ limit: 10 }).map(({ name }) => name)
    const tried = vi.spyOn(b.botUsers, 'insert')
    const runOut = async () => {
      await eventually(() => expect(tried).toHaveBeenCalled())
      passed = 60_000
    }
    return { address, a, b, names, runOut, copy: breakable(folder) }
  }

  it('is told, once, until the node follows again', async () => {
    const { a, b, names, copy } = await twoNodes()
    copy.break()
    await a.issuer.createBotUser({ name: 'unseen' })
    await eventually(() => expect(b.database.fault).toBe('unwritable'))
    const { problem } = b.database.report()
    expect(problem).toContain('copy of the records')
    expect(problem).toContain('SQLITE_CONSTRAINT_TRIGGER')
    expect(problem).not.toContain('/var/lib')
    const told = (level: string) =>
      b.told.lines.filter((it) => it.level === level && it.msg === 'cannot follow the records')
    await eventually(() => expect(told('debug').length).toBeGreaterThan(1))
    expect(told('error')).toHaveLength(1)
    expect(names(b)).toEqual([])
    copy.mend()
    await eventually(() => expect(names(b)).toEqual(['unseen']))
    await eventually(() => expect(b.database.fault).toBeUndefined())
    expect(b.database.report().problem).toBeUndefined()
  })

  it('is tried after a pause each time, however often somebody notifies', async () => {
    const address = await postgres.database()
    const a = await openNode(address, { node: 'a' })
    let pauses = 0
    const sleep: Clock['sleep'] = (ms, signal) => {
      if (ms === 20) pauses += 1
      return systemClock.sleep(ms, signal)
    }
    const folder = temporaryFolder()
    const b = await openNode(address, { node: 'b', folder, clock: { ...systemClock, sleep } })
    const copy = breakable(folder)
    copy.break()
    await a.issuer.createBotUser({ name: 'unseen' })
    await eventually(() => expect(b.database.fault).toBe('unwritable'))
    const server = { address, password: address.password, passwordPath: undefined }
    const session = await PostgresSession.open({ server, name: 'test' })
    onTestFinished(() => session.close())
    const count = () => b.told.lines.filter(({ msg }) => msg === 'cannot follow the records').length
    const before = { tries: count(), pauses }
    await eventually(async () => {
      await session.query(`SELECT pg_notify('${CHANNEL}', random()::text)`)
      expect(count() - before.tries).toBeGreaterThan(10)
    })
    expect(pauses - before.pauses).toBeGreaterThanOrEqual(count() - before.tries - 1)
    copy.mend()
  })

  it('does not make a change fail that the others have: it answers when it is here, too', async () => {
    const { a, b, names, copy } = await twoNodes()
    copy.break()
    const made = b.issuer.createBotUser({ name: 'taken' })
    made.catch(() => {})
    await eventually(() => expect(names(a)).toEqual(['taken']))
    await eventually(() => expect(b.database.fault).toBe('unwritable'))
    copy.mend()
    const { id } = await made
    expect(b.botUsers.get(id)?.name).toBe('taken')
    expect(names(a)).toEqual(['taken'])
  })

  it('lets a change that the others have be made, when it stays so', async () => {
    const { a, b, names, runOut, copy } = await twoNodes()
    copy.break()
    const made = b.issuer.createBotUser({ name: 'taken' })
    made.catch(() => {})
    await eventually(() => expect(names(a)).toEqual(['taken']))
    await runOut()
    const { id } = await made
    expect(a.botUsers.get(id)?.name).toBe('taken')
    await eventually(() => expect(b.database.fault).toBe('unwritable'))
    copy.mend()
    await eventually(() => expect(names(b)).toEqual(['taken']))
  })

  it('refuses what would be checked on it while it is behind, and says that nothing was made', async () => {
    const { a, b, names, runOut, copy } = await twoNodes()
    copy.break()
    await a.issuer.createBotUser({ name: 'unseen' })
    await eventually(() => expect(b.database.fault).toBe('unwritable'))
    const refused = b.issuer.createBotUser({ name: 'never' }).catch((error) => error)
    await runOut()
    const error = await refused
    expect(error).toMatchObject({
      code: 'storage-unavailable',
      serviceCode: 'ERR_GATEWAY_RECORDS_UNAVAILABLE',
    })
    expect(error.message).toContain('The change was not made')
    expect(names(a)).toEqual(['unseen'])
    copy.mend()
    await eventually(() => expect(names(b)).toEqual(['unseen']))
  })

  it('is told, too, when an entry of the log makes no sense', async () => {
    const { address, b, names, runOut } = await twoNodes()
    const server = { address, password: address.password, passwordPath: undefined }
    const session = await PostgresSession.open({ server, name: 'test' })
    onTestFinished(() => session.close())
    await session.query(`
      WITH head AS (
        UPDATE record_head SET n = n + 1, mark = gen_random_uuid() RETURNING n, mark, schema
      )
      INSERT INTO record_log (n, mark, node, schema, tables, keys, contents)
      SELECT n, mark, '', schema, '{nothing}', '{[1]}', '{NULL}' FROM head`)
    await eventually(() => expect(b.database.fault).toBe('unwritable'))
    expect(b.database.report().problem).toContain('internal error')
    const refused = b.issuer.createBotUser({ name: 'never' }).catch((error) => error)
    await runOut()
    expect(await refused).toMatchObject({ serviceCode: 'ERR_GATEWAY_RECORDS_UNAVAILABLE' })
    expect(names(b)).toEqual([])
  })

  it('leaves a mistake in here to be seen as one', async () => {
    const { b } = await twoNodes()
    const own = b.database.prepare('INSERT INTO device_watch VALUES (1, 1)')
    await expect(b.database.change(() => own.run())).rejects.toThrow('use Database.write()')
  })
})

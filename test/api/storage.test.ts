import { readdirSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Sqlite } from '../../src/store/sqlite.ts'
import { canMount, mountSmallDisk } from '../helpers/small-disk.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import { type StartedApi, startApi } from './started-api.ts'

const DOMAIN = 'device1.site.test'
const specOf = (domain: string) => ({ protocol: 'http', forwards_to: 'localhost:8001', domain })

/** Creates tunnels until one is refused; the last answer and how many were created. */
async function createUntilRefused({ call }: StartedApi) {
  for (let count = 0; count < 200; count += 1) {
    const answer = await call('POST', '/tunnels', specOf(`d${count}.site.test`))
    if (answer.status !== 200) return { answer, count }
  }
  return expect.fail('the disk did not fill up')
}

/** No service runs behind the tunnels, and that is not what is tested. */
const UNCHECKED = { upstream: { timeout: 60, health: 'off' } } as const

describe('the API over a storage that refuses', () => {
  it('answers 503 while another program holds the database, and goes on after it', async () => {
    const { call, folder } = await startApi()
    const other = new Sqlite(join(folder, 'agent.db'))
    other.exec('BEGIN IMMEDIATE')
    const { status, json, headers } = await call('POST', '/tunnels', specOf(DOMAIN))
    other.close()
    expect([status, json.code, headers['retry-after']]).toEqual([503, 'storage-unavailable', '5'])
    expect((await call('POST', '/tunnels', specOf(DOMAIN))).status).toBe(200)
  })

  it.runIf(canMount())('answers 507 on a full disk, keeps what runs and deletes', async () => {
    const { folder } = mountSmallDisk('2m')
    const api = await startApi({
      folder,
      agent: { maxTunnels: 1_000, ...UNCHECKED },
      database: { reserveBytes: 512 * 1024 },
    })
    const { call, service } = api
    await call('POST', '/tunnels', specOf(DOMAIN))
    expect(() => writeFileSync(join(folder, 'filler'), Buffer.alloc(4e6))).toThrow('ENOSPC')
    const { answer, count } = await createUntilRefused(api)
    expect([answer.status, answer.json.code]).toEqual([507, 'storage-full'])
    expect(service.online).toHaveLength(count + 1)

    const ready = await call('GET', '/readyz')
    expect([ready.status, ready.json.reasons]).toEqual([503, [expect.stringMatching(/full/)]])
    const { json } = await call('GET', '/status')
    expect(json).toMatchObject({ healthy: false, verdict: expect.stringMatching(/disk is full/) })

    rmSync(join(folder, 'filler'))
    const after = (await call('GET', '/status')).json
    expect(after).toMatchObject({ healthy: true, storage: { fault: null } })
    expect((await call('GET', '/readyz')).status).toBe(200)

    expect((await call('DELETE', `/tunnels/${DOMAIN}`)).status).toBe(204)
    for (let n = 0; n < count; n += 1) {
      expect((await call('DELETE', `/tunnels/d${n}.site.test`)).status).toBe(204)
    }
    expect(service.online).toEqual([])
  })

  it.runIf(canMount())('notes a disk that may soon refuse changes, and stays ready', async () => {
    const { folder, protect } = mountSmallDisk('16m')
    const { call } = await startApi({ folder, database: { reserveBytes: 1024 * 1024 } })
    const spec = { ...specOf(DOMAIN), upstream: { health: 'off' } }
    await call('POST', '/tunnels', spec)
    const verdict = async () => (await call('GET', '/status')).json
    const isWell = async () =>
      expect(await verdict()).toMatchObject({ healthy: true, verdict: 'The tunnel works.' })
    const takesChanges = async () => {
      const changed = await call('PUT', `/tunnels/${DOMAIN}`, spec)
      const ready = await call('GET', '/readyz')
      expect([changed.status, ready.status]).toEqual([200, 200])
    }
    const filler = join(folder, 'filler')
    expect(() => writeFileSync(filler, Buffer.alloc(32e6))).toThrow('ENOSPC')
    expect(await verdict()).toMatchObject({
      healthy: false,
      verdict: 'The tunnel works. The disk is full.',
      advice: [{ problem: `The disk of ${folder} is full.` }],
    })
    truncateSync(filler, statSync(filler).size - 400 * 1024)
    const low = {
      healthy: true,
      verdict: 'The tunnel works. The disk is almost full.',
      advice: [
        {
          problem: `The disk of ${folder} is almost full.`,
          remedy: expect.stringMatching(/^Free disk space there\. .* online tunnels stay online\./),
        },
      ],
      storage: { fault: null, problem: null },
    }
    expect(await verdict()).toMatchObject(low)
    await takesChanges()
    expect(await verdict()).toMatchObject(low)
    rmSync(filler)
    await isWell()
    const release = protect()
    expect(await verdict()).toMatchObject({
      healthy: true,
      advice: [
        {
          problem: `The data directory ${folder} is not writable.`,
          remedy: expect.stringMatching(/^Check the kernel log for the cause, then make it/),
        },
      ],
    })
    await takesChanges()
    release()
    await isWell()
  })

  it('says that all is lost when no copy is left, and names the command for a backup', async () => {
    const folder = temporaryFolder()
    const first = await startApi({ folder })
    await first.call('POST', '/tunnels', specOf(DOMAIN))
    await first.agent.stop()
    first.database.close()
    for (const name of readdirSync(folder))
      if (/^agent\.db\.(journal|backup)/.test(name)) rmSync(join(folder, name))
    writeFileSync(join(folder, 'agent.db'), 'noise')

    const { call } = await startApi({ folder, agent: UNCHECKED })
    expect((await call('GET', '/status')).json.advice).toContainEqual({
      problem: 'The database was damaged, and no backup was found: all its data is lost.',
      remedy:
        'Restore a backup with `device-agent restore FILE`, or create the data again, then run `device-agent storage confirm`.',
    })
  })

  it('is not healthy while changes may be missing, until somebody has seen it', async () => {
    const folder = temporaryFolder()
    const first = await startApi({ folder })
    await first.call('POST', '/tunnels', specOf(DOMAIN))
    await first.agent.stop()
    first.database.close()
    writeFileSync(join(folder, 'agent.db'), 'noise')
    rmSync(join(folder, 'agent.db.journal'))

    const { call } = await startApi({ folder, agent: UNCHECKED })
    const { json } = await call('GET', '/status')
    expect(json).toMatchObject({ healthy: false, ready: true })
    expect(json.advice).toContainEqual({
      problem: expect.stringMatching(/ the latest changes may be missing .* a backup of 2.*\.$/),
      remedy: 'Check your data, then run `device-agent storage confirm`.',
    })
    expect(json.storage.unconfirmed).toMatchObject([{ copy: 'backup', may_be_more: true }])
    expect((await call('GET', '/storage')).json).toEqual(json.storage)
    const confirmed = await call('POST', '/storage/confirm')
    expect([confirmed.status, confirmed.json.unconfirmed]).toEqual([200, []])
    expect((await call('GET', '/status')).json).toMatchObject({ healthy: true })
    expect((await call('POST', '/storage/confirm')).status).toBe(200)
  })

  it.runIf(canMount())('serves a read-only folder: 503 for changes, all tunnels up', async () => {
    const { folder, remount } = mountSmallDisk('16m')
    const first = await startApi({ folder })
    await first.call('POST', '/tunnels', specOf(DOMAIN))
    await first.agent.stop()
    first.database.close()
    remount('ro')

    const { call, service } = await startApi({ folder })
    expect((await call('GET', `/tunnels/${DOMAIN}`)).json.state).toBe('online')
    for (const [method, path, body] of [
      ['POST', '/tunnels', specOf('other.site.test')],
      ['PUT', `/tunnels/${DOMAIN}`, { ...specOf(DOMAIN), forwards_to: ':9000' }],
      ['DELETE', `/tunnels/${DOMAIN}`],
    ] as const) {
      const { status, json } = await call(method, path, body)
      expect([method, status, json.code]).toEqual([method, 503, 'storage-unavailable'])
    }
    expect(service.online).toEqual([DOMAIN])
    expect((await call('GET', '/healthz')).status).toBe(200)
    expect((await call('GET', '/readyz')).status).toBe(503)
  })
})

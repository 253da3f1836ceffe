import {
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { openAgentDatabase } from '../../../src/api/agent-database.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { type Backup, type Manifest, writeBackup } from '../../../src/cli/backup/backup-file.ts'
import { describeContent, makeBackup } from '../../../src/cli/backup/make-backup.ts'
import { restoreBackup } from '../../../src/cli/backup/restore-backup.ts'
import { ROLES, readData } from '../../../src/cli/backup/roles.ts'
import { createProgram } from '../../../src/cli/program.ts'
import { lockFolder } from '../../../src/store/data-folder.ts'
import { openMemory } from '../../../src/store/sqlite.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { canMount, mountSmallDisk } from '../../helpers/small-disk.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const { log } = captureLog()
const AGENT = ROLES.agent

/** Data of an agent, as its backup has them. */
async function agentData(): Promise<Map<string, Buffer>> {
  const folder = temporaryFolder()
  const database = openAgentDatabase(folder, { log, clock: systemClock })
  writeFileSync(join(folder, 'device-id'), 'dev_0\n')
  try {
    return await readData(AGENT, folder)
  } finally {
    database.close()
  }
}

function backupOf(data: ReadonlyMap<string, Buffer>): Backup {
  const manifest: Manifest = {
    format: 'device-agent-backup',
    version: 1,
    program: '1.0.0',
    role: 'agent',
    made_at: '2026-01-02T03:04:05.000Z',
    host: 'device',
    device_id: 'dev_0',
    cluster: false,
    files: [],
  }
  const files = new Map([...data].map(([name, content]) => [`data/${name}`, content]))
  return { manifest, files, isEncrypted: false }
}

const restore = (folder: string, backup: Backup, replace = false) =>
  restoreBackup({ role: AGENT, folder, backup, replace, log })

/** The database of a backup after this SQL. */
function changed(bytes: Buffer, sql: string): Buffer {
  const connection = openMemory(Buffer.from(bytes))
  try {
    connection.exec(sql)
    return connection.serialize()
  } finally {
    connection.close()
  }
}

afterEach(() => vi.restoreAllMocks())

describe('restoreBackup', () => {
  it('restores a database that its service takes as complete', async () => {
    const folder = join(temporaryFolder(), 'new')
    expect((await restore(folder, backupOf(await agentData()))).aside).toBeUndefined()
    const database = openAgentDatabase(folder, { log, clock: systemClock })
    const { healing, losses, fault } = database.report()
    database.close()
    expect([healing, losses, fault]).toEqual([undefined, [], undefined])
    for (const name of readdirSync(folder)) {
      expect(statSync(join(folder, name)).mode & 0o077, name).toBe(0)
    }
  })

  it.each([
    'data/../../etc/cron.d/x',
    'data//etc/passwd',
    '/etc/passwd',
    'data/certificates/x.pem',
    'data/agent.db-wal',
    'data/agent.lock',
    'data/device-id/x',
    'device-id',
  ])('refuses the file %s', async (path) => {
    const folder = temporaryFolder()
    const { files, ...rest } = backupOf(await agentData())
    const forged = { ...rest, files: new Map([...files, [path, Buffer.from('x')]]) }
    await expect(restore(folder, forged)).rejects.toThrow(`contains ${path}, which is no file`)
    expect(readdirSync(folder)).toEqual([])
  })

  it.each([
    ['another program', 'PRAGMA application_id = 1', 'belongs to another program'],
    [
      'a trigger',
      'CREATE TRIGGER t AFTER INSERT ON tunnels BEGIN DELETE FROM tunnels; END',
      'is damaged',
    ],
    ['another table', 'CREATE TABLE more (id TEXT PRIMARY KEY)', 'is damaged'],
    ['a newer version', "INSERT INTO schema_migrations VALUES ('tunnels-99')", 'A newer version'],
  ])('refuses the database of %s', async (_whose, sql, reason) => {
    const folder = temporaryFolder()
    const data = await agentData()
    data.set('agent.db', changed(data.get('agent.db') ?? Buffer.alloc(0), sql))
    await expect(restore(folder, backupOf(data))).rejects.toThrow(reason)
    expect(readdirSync(folder)).toEqual([])
  })

  it('refuses bytes that are no database, and a backup without one', async () => {
    const folder = temporaryFolder()
    const data = await agentData()
    for (const bytes of [Buffer.alloc(0), Buffer.from('text'), Buffer.alloc(8_192, 1)]) {
      data.set('agent.db', bytes)
      await expect(restore(folder, backupOf(data)), String(bytes.length)).rejects.toThrow('damaged')
    }
    data.delete('agent.db')
    await expect(restore(folder, backupOf(data))).rejects.toThrow('contains no agent.db')
    expect(readdirSync(folder)).toEqual([])
  })

  it('refuses a directory whose service runs, and one with data', async () => {
    const folder = temporaryFolder()
    const backup = backupOf(await agentData())
    const lock = lockFolder({ folder, owner: 'agent', log })
    await expect(restore(folder, backup, true)).rejects.toThrow('Another agent is using')
    lock.release()
    writeFileSync(join(folder, 'device-id'), 'dev_1\n')
    await expect(restore(folder, backup)).rejects.toThrow('Add --replace')
    expect(readFileSync(join(folder, 'device-id'), 'utf8')).toBe('dev_1\n')
    const { aside } = await restore(folder, backup, true)
    expect(readFileSync(join(aside ?? '', 'device-id'), 'utf8')).toBe('dev_1\n')
    expect(readFileSync(join(folder, 'device-id'), 'utf8')).toBe('dev_0\n')
  })

  it('leaves the gateway of `up` in its directory', async () => {
    const folder = temporaryFolder()
    mkdirSync(join(folder, 'gateway'))
    writeFileSync(join(folder, 'gateway/ca.key'), 'key')
    await restore(folder, backupOf(await agentData()))
    expect(readFileSync(join(folder, 'gateway/ca.key'), 'utf8')).toBe('key')
  })

  it.skipIf(!canMount())('changes nothing on a full or read-only disk, and says why', async () => {
    const disk = mountSmallDisk('128k')
    const backup = backupOf(await agentData())
    await expect(restore(disk.folder, backup)).rejects.toThrow('no space left on the disk')
    expect(readdirSync(disk.folder)).toEqual(['agent.lock'])
    disk.remount('ro')
    await expect(restore(disk.folder, backup)).rejects.toThrow(/read-only/)
  })

  it.skipIf(process.getuid?.() !== 0)('gives all files to the user of the service', async () => {
    const folder = temporaryFolder()
    chownSync(folder, 4_321, 4_322)
    await restore(folder, backupOf(await agentData()))
    for (const name of readdirSync(folder)) {
      const { uid, gid } = statSync(join(folder, name))
      expect([uid, gid], name).toEqual([4_321, 4_322])
    }
  })

  it.skipIf(process.getuid?.() !== 0).each([
    ['a missing folder', false],
    ['a folder of root', true],
  ])('gives %s in the state directory to the user of the service', async (_what, isThere) => {
    const [state, other, settingsRoot] = [temporaryFolder(), temporaryFolder(), temporaryFolder()]
    const backup = backupOf(await agentData())
    for (const path of [state, other]) {
      chownSync(path, 4_321, 4_322)
      if (isThere) mkdirSync(join(path, 'gateway'), { mode: 0o700 })
    }
    const options = { role: AGENT, backup, replace: false, log }
    await restoreBackup({ ...options, folder: join(state, 'gateway'), settingsRoot })
    await restoreBackup({ ...options, folder: join(other, 'gateway') })
    const owners = (folder: string) =>
      new Set(
        ['.', ...readdirSync(folder)].map((name) => {
          const { uid, gid } = statSync(join(folder, name))
          return `${uid}:${gid}`
        }),
      )
    expect(owners(join(state, 'gateway'))).toEqual(new Set(['4321:4322']))
    // Given by --data-dir: the data can be of another user than the folder above.
    expect(owners(join(other, 'gateway'))).toEqual(new Set(['0:0']))
  })

  it.skipIf(process.getuid?.() !== 0)('leaves a data folder to its user', async () => {
    const [parent, settingsRoot] = [temporaryFolder(), temporaryFolder()]
    const folder = join(parent, 'data')
    mkdirSync(folder)
    chownSync(folder, 4_321, 4_322)
    const backup = backupOf(await agentData())
    await restoreBackup({ role: AGENT, folder, backup, replace: false, settingsRoot, log })
    expect(statSync(folder).uid).toBe(4_321)
  })
})

describe('readData', () => {
  it('reads again when a file changes meanwhile, so that files and database fit', async () => {
    const folder = temporaryFolder()
    openAgentDatabase(folder, { log, clock: systemClock }).close()
    writeFileSync(join(folder, 'api-token'), 'first')
    const schema = await AGENT.schema()
    let reads = 0
    const role = {
      ...AGENT,
      // Between the files and the database.
      schema: async () => ({
        ...schema,
        get migrations() {
          reads += 1
          if (reads === 1) writeFileSync(join(folder, 'api-token'), 'second')
          return schema.migrations
        },
      }),
    }
    expect((await readData(role, folder)).get('api-token')?.toString()).toBe('second')
  })

  it('reads a directory that is not writable', async () => {
    if (!canMount()) return
    const disk = mountSmallDisk('4m')
    openAgentDatabase(disk.folder, { log, clock: systemClock }).close()
    disk.remount('ro')
    const data = await readData(AGENT, disk.folder)
    disk.remount('rw')
    const folder = join(temporaryFolder(), 'new')
    await restore(folder, backupOf(data))
    expect(existsSync(join(folder, 'agent.db'))).toBe(true)
  })
})

describe('a backup of a gateway', () => {
  it('is refused without PostgreSQL where its records are there', async () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'node.json'), '{}')
    const path = join(temporaryFolder(), 'backup')
    const made = makeBackup({ role: ROLES.gateway, folder, path, passphrase: undefined })
    await expect(made).rejects.toThrow('belongs to a cluster')
    expect(existsSync(path)).toBe(false)
  })

  it('is described without control characters, which a forged one may have', () => {
    const { manifest } = backupOf(new Map())
    const forged = { ...manifest, device_id: '\u001b]0;x\u0007', program: '1\u001b[2K' }
    expect(describeContent(forged)).not.toMatch(/\p{Cc}/u)
  })

  it('is checked whatever the settings of this machine are', async () => {
    const path = join(temporaryFolder(), 'backup')
    const {
      format: _format,
      version: _version,
      files: _files,
      ...origin
    } = backupOf(new Map()).manifest
    await writeBackup(path, origin, await agentFiles(), undefined)
    const [stdout, stderr] = [new PassThrough(), new PassThrough()]
    const { signal: stop } = new AbortController()
    const environment = { AGENT_NOPE: '1' }
    const program = createProgram({ environment, stdout, stderr, stop })
    await program.parseAsync(['node', 'device-agent', 'restore', path, '--dry-run'])
    expect(String(stdout.read())).toContain('is sound')
  })
})

describe('an agent of a folder', () => {
  it('is told what is not in its backup, and what to copy before its start', async () => {
    const [old, fresh] = [temporaryFolder(), temporaryFolder()]
    openAgentDatabase(old, { log, clock: systemClock }).close()
    const [ca, file] = [join(old, 'gateway-ca.pem'), join(fresh, 'device.backup')]
    writeFileSync(ca, '')
    const of = { SVC_SERVER_ADDR: 'gateway.site.test:4443', SVC_CA_CERT: ca, AGENT_DATA_DIR: old }
    const backup = await printed(of, 'backup', file)
    expect(backup).toMatch(
      /^Not in this backup: the settings\. Keep a copy of .*gateway-ca\.pem\.$/m,
    )
    expect(await printed({}, 'backup', join(fresh, '2'), '--data-dir', old)).toMatch(
      /^Not in this backup: the settings/m,
    )
    const bare = await printed({}, 'restore', file, '--data-dir', join(fresh, 'data'))
    expect(bare).toMatch(/^Next: The settings are not restored: copy \.env and the files/m)
    expect(bare).toContain('Start this one: device-agent run or device-agent up, in its folder.')
    const again = await printed(of, 'restore', file, '--replace')
    expect(again).toMatch(/^Next: If this is another machine, stop the agent on the old device/m)
  })
})

/** Output of a command with these settings. */
async function printed(environment: Record<string, string>, ...args: string[]): Promise<string> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  const { signal: stop } = new AbortController()
  await createProgram({ environment, stdout, stderr, stop }).parseAsync(args, { from: 'user' })
  return String(stdout.read())
}

const agentFiles = async () =>
  new Map([...(await agentData())].map(([name, content]) => [`data/${name}`, content]))

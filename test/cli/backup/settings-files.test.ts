import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, it } from 'vitest'
import { openAgentDatabase } from '../../../src/api/agent-database.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { readBackup } from '../../../src/cli/backup/backup-file.ts'
import { makeBackup } from '../../../src/cli/backup/make-backup.ts'
import { checkBackup, restoreBackup } from '../../../src/cli/backup/restore-backup.ts'
import { ROLES } from '../../../src/cli/backup/roles.ts'
import { stageSettings } from '../../../src/cli/backup/settings-files.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { canMount, mountSmallDisk } from '../../helpers/small-disk.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const { log } = captureLog()
const role = ROLES.agent
const ENV = 'etc/device-agent/agent.env'
const TOKEN = 'etc/credstore/svc-authtoken'

function put(root: string, path: string, content: string, mode: number): void {
  mkdirSync(dirname(join(root, path)), { recursive: true })
  writeFileSync(join(root, path), content)
  chmodSync(join(root, path), mode)
}

const textAt = (root: string, path: string) => readFileSync(join(root, path), 'utf8')
const modeAt = (root: string, path: string) => statSync(join(root, path)).mode & 0o777

/** A backup of an installed service, and its path. */
async function backupOfService(settingsRoot: string | undefined) {
  const folder = temporaryFolder()
  openAgentDatabase(folder, { log, clock: systemClock }).close()
  const path = join(temporaryFolder(), 'agent.backup')
  const manifest = await makeBackup({ role, folder, path, passphrase: undefined, settingsRoot })
  return { manifest, backup: await readBackup(path, async () => undefined) }
}

function machine(): string {
  const root = temporaryFolder()
  put(root, ENV, 'SVC_SERVER_ADDR=old.lan:4443\n', 0o640)
  put(root, TOKEN, 'secret\n', 0o600)
  put(root, 'etc/device-agent/default-policy.json', '{}', 0o644)
  return root
}

it('moves the settings of a service with their permissions', async () => {
  const root = machine()
  put(root, 'etc/device-agent/update-keys.pem', 'key', 0o644)
  put(root, 'etc/device-agent/agent.env.before-restore-1', 'older', 0o600)
  put(root, 'etc/credstore/other-service', 'not ours', 0o600)
  put(root, 'etc/shadow', 'not ours', 0o600)
  symlinkSync(join(root, 'etc/shadow'), join(root, 'etc/device-agent/linked.env'))
  const { manifest, backup } = await backupOfService(root)
  expect(manifest.version).toBe(2)
  const stored = [...backup.files.keys()].filter((path) => path.startsWith('settings/'))
  expect(stored.toSorted()).toEqual(
    [TOKEN, ENV, 'etc/device-agent/default-policy.json'].map((path) => `settings/${path}`),
  )
  const fresh = temporaryFolder()
  const folder = temporaryFolder()
  const { settings } = await restoreBackup({
    ...{ role, folder, backup, replace: false, settingsRoot: fresh, log },
  })
  expect(settings).toHaveLength(3)
  expect([textAt(fresh, ENV), textAt(fresh, TOKEN)]).toEqual([
    'SVC_SERVER_ADDR=old.lan:4443\n',
    'secret\n',
  ])
  const modes = [ENV, TOKEN, 'etc/device-agent/default-policy.json'].map((it) => modeAt(fresh, it))
  expect(modes).toEqual([0o640, 0o600, 0o644])
  expect(modeAt(fresh, 'etc/credstore')).toBe(0o700)
})

it('replaces other settings only when asked, and keeps them aside', async () => {
  const { backup } = await backupOfService(machine())
  const root = temporaryFolder()
  put(root, ENV, 'SVC_SERVER_ADDR=new.lan:4443\n', 0o600)
  put(root, TOKEN, 'secret\n', 0o600)
  const folder = temporaryFolder()
  const options = { role, folder, backup, settingsRoot: root, log }
  const refused = restoreBackup({ ...options, replace: false })
  await expect(refused).rejects.toThrow(`${join(root, ENV)} differs from the backup. Add --replace`)
  expect(readdirSync(folder).filter((name) => name.startsWith('agent.db'))).toEqual([])
  expect(textAt(root, ENV)).toContain('new.lan')

  await restoreBackup({ ...options, replace: true })
  expect(textAt(root, ENV)).toContain('old.lan')
  const names = readdirSync(join(root, 'etc/device-agent'))
  const [kept = ''] = names.filter((name) => name.startsWith('agent.env.before-restore-'))
  expect(textAt(root, `etc/device-agent/${kept}`)).toContain('new.lan')
  // The same content needs no copy.
  expect(readdirSync(join(root, 'etc/credstore'))).toEqual(['svc-authtoken'])
})

it('changes neither data nor settings if the settings cannot be written', async () => {
  const { backup } = await backupOfService(machine())
  const root = temporaryFolder()
  put(root, ENV, 'SVC_SERVER_ADDR=new.lan:4443\n', 0o600)
  // No folder can be made here.
  put(root, 'etc/credstore', '', 0o600)
  const folder = temporaryFolder()
  writeFileSync(join(folder, 'device-id'), 'dev_1\n')
  const restored = restoreBackup({ role, folder, backup, settingsRoot: root, replace: true, log })
  await expect(restored).rejects.toThrow(
    `Cannot write the settings below ${join(root, 'etc')}. Nothing was changed: `,
  )
  expect(textAt(root, ENV)).toContain('new.lan')
  expect(readdirSync(join(root, 'etc/device-agent'))).toEqual(['agent.env'])
  expect(textAt(folder, 'device-id')).toBe('dev_1\n')
  expect(readdirSync(folder).filter((name) => name.startsWith('before-restore'))).toEqual([])
})

it.skipIf(!canMount())('keeps the settings on a full disk', async () => {
  const { backup } = await backupOfService(machine())
  const disk = mountSmallDisk('16k', temporaryFolder())
  put(disk.folder, ENV, 'SVC_SERVER_ADDR=new.lan:4443\n', 0o600)
  expect(() => put(disk.folder, 'full', 'x'.repeat(64 * 1024), 0o600)).toThrow('ENOSPC')
  const options = { role, folder: temporaryFolder(), backup, settingsRoot: disk.folder, log }
  await expect(restoreBackup({ ...options, replace: true })).rejects.toThrow('no space left')
  expect(textAt(disk.folder, ENV)).toContain('new.lan')
})

it('has the old settings in their places until all are on disk', async () => {
  const { backup } = await backupOfService(machine())
  const root = temporaryFolder()
  put(root, ENV, 'SVC_SERVER_ADDR=new.lan:4443\n', 0o600)
  const staged = stageSettings(backup, root, 'before-restore-1')
  expect(textAt(root, ENV)).toContain('new.lan')
  expect(textAt(root, `${ENV}.before-restore-1`)).toContain('new.lan')
  const from = join(root, 'etc/credstore/.svc-authtoken.restored')
  const place = join(root, TOKEN)
  mkdirSync(place)
  expect(() => staged.finish()).toThrow(`run: mv ${from} ${place}`)
  rmdirSync(place)
  renameSync(from, place)
  expect([textAt(root, TOKEN), modeAt(root, TOKEN)]).toEqual(['secret\n', 0o600])
  expect(textAt(root, ENV)).toContain('old.lan')
})

it('leaves settings out without an installed service', async () => {
  expect((await backupOfService(undefined)).manifest.version).toBe(1)
  const { backup } = await backupOfService(machine())
  const folder = temporaryFolder()
  const { settings } = await restoreBackup({ role, folder, backup, replace: false, log })
  expect(settings).toEqual([])
  expect(readdirSync(folder)).not.toContain('settings')
})

it.each([
  'settings/etc/shadow',
  'settings/etc/device-agent/../shadow',
  'settings/etc/device-agent/update-keys.pem',
  'settings/etc/device-gateway/gateway.env',
  'settings/etc/credstore/other',
])('refuses a forged backup with %s', async (path) => {
  const { backup } = await backupOfService(undefined)
  const files = new Map([...backup.files, [path, Buffer.from('x')]])
  await expect(checkBackup(role, { ...backup, files })).rejects.toThrow('no file of this program')
})

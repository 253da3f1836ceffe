import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readBackup } from '../../../src/cli/backup/backup-file.ts'
import { makeBackup } from '../../../src/cli/backup/make-backup.ts'
import { restoreBackup } from '../../../src/cli/backup/restore-backup.ts'
import { ROLES } from '../../../src/cli/backup/roles.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { startGateway } from '../../helpers/running-gateway.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const { log } = captureLog()
const role = ROLES.gateway
const FOLDER = 'etc/device-gateway'

/** Settings of an installed gateway, by file name. */
function machine(files: Readonly<Record<string, string>>): string {
  const root = temporaryFolder()
  mkdirSync(join(root, FOLDER), { recursive: true })
  for (const [name, text] of Object.entries(files)) writeFileSync(join(root, FOLDER, name), text)
  return root
}

const textAt = (root: string, name: string) => readFileSync(join(root, FOLDER, name), 'utf8')

describe.skipIf(!hasPostgres)('restoring a cluster on a server with settings', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('keeps its own database, addresses and token, with their files', async () => {
    const old = machine({
      'gateway.env': `GATEWAY_DATABASE_URL=postgres://gateway@db.lan/old
GATEWAY_DATABASE_PASSWORD_FILE=/${FOLDER}/db-password
GATEWAY_PEER_LISTEN=0.0.0.0:4444
GATEWAY_PEER_ADDRESS=10.0.0.2:4444
GATEWAY_JOIN_TOKEN_FILE=/${FOLDER}/join-token
GATEWAY_PUBLIC_NAMES=gw2.example.com
GATEWAY_HOLD_SECONDS=7
`,
      'db-password': 'old',
      'join-token': 'used',
      'pages.html': 'of the site',
    })
    const running = await startGateway()
    await running.gateway.stop()
    const path = join(temporaryFolder(), 'backup')
    const of = { role, folder: running.dataDir, path, passphrase: undefined, settingsRoot: old }
    await makeBackup(of)
    const root = machine({
      'gateway.env': `GATEWAY_DATABASE_URL=postgres://gateway@db.lan/new
GATEWAY_DATABASE_PASSWORD_FILE=/${FOLDER}/db-password
GATEWAY_PEER_LISTEN=10.0.0.1:4444
`,
      'db-password': 'new',
    })
    const address = await postgres.database()
    const { keptSettings, settings } = await restoreBackup({
      ...{ role, folder: temporaryFolder(), replace: true, settingsRoot: root, log },
      backup: await readBackup(path, async () => undefined),
      server: { address, password: address.password, passwordPath: undefined },
    })
    expect(textAt(root, 'gateway.env')).toBe(`GATEWAY_DATABASE_URL=postgres://gateway@db.lan/new
GATEWAY_DATABASE_PASSWORD_FILE=/${FOLDER}/db-password
GATEWAY_PEER_LISTEN=10.0.0.1:4444
GATEWAY_PUBLIC_NAMES=gw2.example.com
GATEWAY_HOLD_SECONDS=7
`)
    expect(textAt(root, 'db-password')).toBe('new')
    expect(() => textAt(root, 'join-token')).toThrow('ENOENT')
    expect(settings).toEqual(['gateway.env', 'pages.html'].map((name) => join(root, FOLDER, name)))
    expect(keptSettings).toEqual([
      'GATEWAY_DATABASE_URL',
      'GATEWAY_DATABASE_PASSWORD_FILE',
      'GATEWAY_PEER_LISTEN',
    ])
  })
})

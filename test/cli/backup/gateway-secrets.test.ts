import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readBackup } from '../../../src/cli/backup/backup-file.ts'
import { makeBackup } from '../../../src/cli/backup/make-backup.ts'
import { restoreBackup } from '../../../src/cli/backup/restore-backup.ts'
import { ROLES } from '../../../src/cli/backup/roles.ts'
import { createSecretsKey, SECRETS_KEY } from '../../../src/gateway/access/secret-seal.ts'
import type { PostgresServer } from '../../../src/gateway/cluster/postgres/postgres-session.ts'
import type { DatabaseAddress } from '../../../src/settings/database-url.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { GatewayCluster } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { type RunningGateway, startGateway } from '../../helpers/running-gateway.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const { log } = captureLog()
const role = ROLES.gateway
const HOST = 'cloud.site.test'
const PRINTS = JSON.stringify({
  on_http_request: [
    {
      actions: [
        {
          type: 'custom-response',
          config: { status_code: 200, body: `\${secrets.get('site', 'key')}` },
        },
      ],
    },
  ],
})

async function setSecret(running: RunningGateway): Promise<void> {
  const { call } = await managed(running)
  await call('POST', '/vaults', { name: 'site' })
  const secret = { vault_name: 'site', name: 'key', value: 'kept' }
  expect((await call('POST', '/vault_secrets', secret)).status).toBe(201)
  const endpoint = { url: `http://${HOST}`, traffic_policy: PRINTS }
  expect((await call('POST', '/endpoints', endpoint)).status).toBe(201)
}

/** The value that a policy of the gateway reads. */
async function readSecret({ addresses: { http } }: RunningGateway): Promise<string> {
  const ingress = `http://${http.host}:${http.port}`
  return (await publicRequest({ ingress, address: http.host, host: HOST })).text
}

async function restored(path: string, folder: string, server?: PostgresServer): Promise<void> {
  const backup = await readBackup(path, async () => undefined)
  await restoreBackup({ role, folder, backup, replace: true, server, log })
}

describe('the backup of a gateway', () => {
  it('has the key of its secrets, and replaces another key', async () => {
    const running = await startGateway()
    await setSecret(running)
    const path = join(temporaryFolder(), 'backup')
    await makeBackup({ role, folder: running.dataDir, path, passphrase: undefined })
    await running.gateway.stop()
    const folder = temporaryFolder()
    copyFileSync(join(running.dataDir, 'gateway.db'), join(folder, 'gateway.db'))
    writeFileSync(join(folder, SECRETS_KEY), createSecretsKey())
    await restored(path, folder)
    expect(await readSecret(await startGateway({ dataDir: folder }))).toBe('kept')
  })
})

describe.skipIf(!hasPostgres)('the backup of a cluster', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  const serverOf = (address: DatabaseAddress) => {
    return { address, password: address.password, passwordPath: undefined }
  }

  it('has the key of its secrets', async () => {
    const database = await postgres.database()
    const running = await GatewayCluster.open(database).start()
    await setSecret(running)
    const path = join(temporaryFolder(), 'backup')
    const { dataDir: folder } = running
    const server = serverOf(database)
    await makeBackup({ role, folder, path, passphrase: undefined, server })
    const key = readFileSync(join(folder, SECRETS_KEY), 'utf8')
    await running.gateway.stop()
    const [next, into] = [await postgres.database(), temporaryFolder()]
    await restored(path, into, serverOf(next))
    const again = await GatewayCluster.open(next).start({ dataDir: into })
    expect(readFileSync(join(into, SECRETS_KEY), 'utf8')).toBe(key)
    expect(await readSecret(again)).toBe('kept')
  })
})

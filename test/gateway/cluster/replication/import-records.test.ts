import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { PostgresSession } from '../../../../src/gateway/cluster/postgres/postgres-session.ts'
import { migrateSchema } from '../../../../src/gateway/cluster/postgres/schema.ts'
import {
  importRecords,
  NotEmptyError,
  readOwnRecords,
} from '../../../../src/gateway/cluster/replication/import-records.ts'
import { RECORD_STEPS } from '../../../../src/gateway/cluster/replication/record-log.ts'
import { GATEWAY_MIGRATIONS } from '../../../../src/gateway/gateway-database.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { hasPostgres, TestPostgres } from '../../../helpers/postgres.ts'
import { openNode } from './open-node.ts'

describe.skipIf(!hasPostgres)('a site that moves to PostgreSQL', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  it('keeps every id and token, and goes on counting', async () => {
    const site = openGatewayStores()
    const owner = await site.issuer.createBotUser({ name: 'ä \u0000 "' })
    const { credential, authtoken } = await site.issuer.createCredential({ ownerId: owner.id })
    const { token } = await site.issuer.createApiKey({})
    const domain = await site.registrar.reserve({ domain: '*.site.test', ownerId: owner.id })
    const event = { at: 1, type: 'device.online', ownerId: owner.id, details: {} } as const
    await site.database.change(() => site.events.append(event))
    await site.trail.note(
      { actor: { kind: 'command-line', id: null, name: 'x' }, client: null, action: 'y' },
      'ok',
    )
    site.database.close()
    const rows = readOwnRecords(join(site.folder, 'gateway.db'))

    const address = await postgres.database()
    const server = { address, password: address.password, passwordPath: undefined }
    await migrateSchema({ server, name: 'test' }, RECORD_STEPS)
    const session = await PostgresSession.open({ server, name: 'test' })
    onTestFinished(() => session.close())
    const done: number[] = []
    const move = () =>
      session.transaction((statements) =>
        importRecords(statements, { rows, migrations: GATEWAY_MIGRATIONS }, (n) => done.push(n)),
      )
    await move()
    expect(done).toEqual([rows.length])
    await expect(move()).rejects.toThrow(NotEmptyError)

    const node = await openNode(address)
    expect(node.botUsers.get(owner.id)).toEqual(owner)
    expect(node.authority.authenticate(authtoken.reveal())).toEqual(credential)
    expect(node.authority.authenticateApiKey(token.reveal()).ownerId).toBeNull()
    expect(node.domains.all()).toEqual([domain])
    expect(node.trail.page({ limit: 5 })).toMatchObject([{ id: 1, action: 'y' }])
    await node.database.change(() => node.events.append(event))
    expect(node.events.after(0, 5).map(({ sequence }) => sequence)).toEqual([1, 2])
  })
})

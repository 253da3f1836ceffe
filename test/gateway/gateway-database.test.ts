import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { gatewayStores } from '../../src/gateway/gateway-database.ts'
import { API_KEY_MIGRATIONS } from '../../src/gateway/records/api-key-store.ts'
import { BOT_USER_MIGRATIONS } from '../../src/gateway/records/bot-user-store.ts'
import { RESERVED_DOMAIN_MIGRATIONS } from '../../src/gateway/records/reserved-domain-store.ts'
import { CLOUD_ENDPOINT_MIGRATIONS } from '../../src/gateway/resources/endpoints/cloud-endpoint-store.ts'
import { openDatabase } from '../../src/store/database.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { openGatewayStores } from '../helpers/gateway-stores.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** `application_id` of the gateway's database. */
const APPLICATION_ID = 0x64_61_67_77

/** The statement with which a store adds a row of its table. */
const INSERT_BY_NAME = /^INSERT INTO (\w+) \(([\w, ]+)\) VALUES \(@/

/** A folder with a database as it was before anything but authtokens and API keys had an owner. */
function folderFromBeforeOwners(): string {
  const folder = temporaryFolder()
  const old = openDatabase({
    path: join(folder, 'gateway.db'),
    migrations: [
      ...RESERVED_DOMAIN_MIGRATIONS.slice(0, 2),
      ...BOT_USER_MIGRATIONS,
      ...API_KEY_MIGRATIONS.slice(0, 1),
      ...CLOUD_ENDPOINT_MIGRATIONS.slice(0, 1),
    ],
    applicationId: APPLICATION_ID,
    log: captureLog().log,
    clock: new ManualClock(),
  })
  old.write(() => {
    for (const row of [
      "bot_users VALUES ('bot_1', 'b', 1, 5)",
      "api_keys VALUES ('ak_1', NULL, 'the owner of this gateway', '', 'hash', 5)",
      "api_keys VALUES ('ak_2', 'bot_1', '', '', 'hash', 5)",
      "reserved_domains VALUES ('rd_1', '*.site.test', '', '', '', 'l', 5, 'gateway', 'ecdsa')",
      "cloud_endpoints VALUES ('ep_1', 'https', 'a.site.test', '{}', 'd', 'm', 5, 6)",
      "cloud_endpoints VALUES ('ep_2', 'https', 'a.internal', '{}', '', '', 5, 6)",
    ]) {
      old.prepare(`INSERT INTO ${row}`).run()
    }
  })
  old.close()
  return folder
}

describe('a database from before there were owners and scopes', () => {
  it('keeps the power of its keys, and names them', () => {
    const { apiKeys } = openGatewayStores(folderFromBeforeOwners())
    const power = { scope: 'write', isOwnerOnly: false, expiresAt: null, lastUsedAt: null }
    expect(apiKeys.get('ak_1')).toMatchObject({ ...power, name: 'the owner of this gateway' })
    expect(apiKeys.get('ak_2')).toMatchObject({ ...power, name: 'ak_2', ownerId: 'bot_1' })
  })

  it('has domains and cloud endpoints of the gateway itself, with all that they were', () => {
    const { domains, cloudEndpointStore } = openGatewayStores(folderFromBeforeOwners())
    expect(domains.all()).toMatchObject([{ id: 'rd_1', domain: '*.site.test', ownerId: null }])
    expect(cloudEndpointStore.all()).toEqual([
      {
        id: 'ep_1',
        ownerId: null,
        protocol: 'https',
        host: 'a.site.test',
        isShared: false,
        isPooled: false,
        trafficPolicy: '{}',
        description: 'd',
        metadata: 'm',
        createdAt: 5,
        updatedAt: 6,
      },
      expect.objectContaining({ id: 'ep_2', host: 'a.internal', isShared: false }),
    ])
  })
})

describe('cloud endpoints in the database', () => {
  it('have a public host once, and an internal one once for each owner', async () => {
    const { cloudEndpointStore, database, issuer } = openGatewayStores()
    const { id: a } = await issuer.createBotUser({ name: 'a' })
    const { id: b } = await issuer.createBotUser({ name: 'b' })
    const owners = [null, a, b]
    let made = 0
    const insert = (ownerId: string | null, host: string, isPooled = false) => {
      made += 1
      const endpoint = {
        id: `ep_${made}`,
        ownerId,
        protocol: 'https' as const,
        host,
        isShared: false,
        isPooled,
        trafficPolicy: '{}',
        description: '',
        metadata: '',
        createdAt: 0,
        updatedAt: 0,
      }
      database.write(() => cloudEndpointStore.insert(endpoint))
    }
    for (const ownerId of owners) insert(ownerId, 'a.internal')
    for (const ownerId of owners) expect(() => insert(ownerId, 'a.internal')).toThrow('UNIQUE')
    insert(null, 'a.site.test')
    for (const ownerId of owners) expect(() => insert(ownerId, 'a.site.test')).toThrow('UNIQUE')
    for (let times = 0; times < 2; times += 1) insert(null, 'pool.site.test', true)
  })
})

/** A closed database with a credential of each kind, and its backup. */
function closedGateway() {
  const folder = temporaryFolder()
  const { database, credentials, botUsers } = openGatewayStores(folder)
  const botUser = { id: 'bot_1', name: 'device', active: true, quotas: {}, createdAt: 1 }
  database.write(() => botUsers.insert(botUser))
  for (const number of [1, 2, 3]) {
    const credential = {
      id: `cr_${number}`,
      ownerId: 'bot_1',
      description: '',
      metadata: '',
      acl: [`bind:*.site${number}.test`],
      granted: [],
      tokenHash: 'a'.repeat(64),
      successor: null,
      createdAt: number,
    }
    database.write(() => credentials.insert(credential))
  }
  database.close()
  return folder
}

/** Changes bytes in the closed file, as a fault of the storage does. */
function alter(folder: string, from: string, to: string): void {
  const path = join(folder, 'gateway.db')
  const bytes = readFileSync(path)
  const at = bytes.indexOf(from)
  expect(at).toBeGreaterThan(0)
  bytes.write(to, at)
  writeFileSync(path, bytes)
}

describe('the database of the gateway', () => {
  it.each([
    ['in an ACL, so that it is no JSON', '["bind:*.site2.test"]', '[#bind:'],
    ['in an ACL, so that it allows another domain', 'site2.test', 'site3'],
    ['in the hash of a token', 'a'.repeat(64), 'b'],
    ['in the text of the schema', 'token_hash TEXT', 'token_hesh TEXT'],
    ['in the name of a step', 'credentials-1', 'credentials-3'],
  ])('survives a flipped bit %s', (_where, from, to) => {
    const folder = closedGateway()
    alter(folder, from, to)
    const { credentials, database } = openGatewayStores(folder)
    const acls = credentials.page({ limit: 10 }).map(({ acl }) => acl[0])
    expect(acls).toEqual(['bind:*.site3.test', 'bind:*.site2.test', 'bind:*.site1.test'])
    expect(credentials.get('cr_2')?.tokenHash).toBe('a'.repeat(64))
    expect(database.report()).toMatchObject({ fault: undefined, losses: [] })
  })
})

describe('the stores', () => {
  it('name every column of their tables, once', () => {
    const { database } = openGatewayStores()
    const written = new Map<string, string[]>()
    const watching = new Proxy(database, {
      get: (target, name) => {
        const value = Reflect.get(target, name)
        if (typeof value !== 'function') return value
        return (...args: unknown[]) => {
          const [, table, columns] = INSERT_BY_NAME.exec(String(args[0])) ?? []
          if (table && columns) written.set(table, columns.split(', ').sort())
          return value.apply(target, args)
        }
      },
    })
    gatewayStores(watching, { log: captureLog().log, clock: new ManualClock() })
    const columnsOf = (table: string) =>
      database.prepare<[string], string>('SELECT name FROM pragma_table_info(?)').pluck().all(table)
    const tables = Array.from(written.keys())
    expect(tables).toEqual(expect.arrayContaining(['bot_users', 'credentials', 'devices']))
    expect(Object.fromEntries(written)).toEqual(
      Object.fromEntries(tables.map((table) => [table, columnsOf(table).sort()])),
    )
  })
})

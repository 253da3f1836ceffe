import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { migrateSite } from '../../../src/gateway/cluster/migrate-site.ts'
import { readOwnRecords } from '../../../src/gateway/cluster/replication/import-records.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { openGatewayStores } from '../../helpers/gateway-stores.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

describe.skipIf(!hasPostgres)('migrateSite', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  const { log } = captureLog()
  const common = { log, clock: systemClock }
  const server = async () => {
    const address = await postgres.database()
    return { address, password: address.password, passwordPath: undefined }
  }
  /** The folder of a gateway that does not run, with an account. */
  const site = async () => {
    const { folder, issuer, database } = openGatewayStores()
    await issuer.createBotUser({ name: 'cam01' })
    database.close()
    return folder
  }

  it('copies all rows once, counts them, and leaves those of the folder', async () => {
    const to = await server()
    const folder = await site()
    const seen: [number, number][] = []
    const options = { folder, server: to, ...common }
    const rows = await migrateSite({ ...options, onProgress: (...it) => seen.push(it) })
    expect(rows).toBeGreaterThan(0)
    expect(seen.at(-1)).toEqual([rows, rows])
    expect(readOwnRecords(join(folder, 'gateway.db'))).toHaveLength(rows)
    await expect(migrateSite(options)).rejects.toThrow('already contains records')
  })

  it('says which folder has no gateway, and which database cannot be reached', async () => {
    const to = await server()
    const nothing = { folder: temporaryFolder(), server: to, ...common }
    await expect(migrateSite(nothing)).rejects.toThrow('contains no gateway.db')
    const away = { ...to, address: { ...to.address, port: 1 } }
    const unreachable = migrateSite({ folder: await site(), server: away, ...common })
    await expect(unreachable).rejects.toThrow('The database cannot be reached')
  })
})

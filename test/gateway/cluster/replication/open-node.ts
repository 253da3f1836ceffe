import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { DatabaseFollower } from '../../../../src/gateway/cluster/postgres/database-follower.ts'
import { RECORD_STEPS } from '../../../../src/gateway/cluster/replication/record-log.ts'
import {
  SharedDatabase,
  type SharedDatabaseOptions,
} from '../../../../src/gateway/cluster/replication/shared-database.ts'
import {
  GATEWAY_APPLICATION_ID,
  GATEWAY_MIGRATIONS,
} from '../../../../src/gateway/gateway-database.ts'
import type { DatabaseAddress } from '../../../../src/settings/database-url.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { temporaryFolder } from '../../../helpers/temporary-folder.ts'

export interface NodeOptions extends Partial<SharedDatabaseOptions> {
  readonly folder?: string
}

/** A node's database on the PostgreSQL at `address`, stopped with the running test. */
export async function openShared(
  address: DatabaseAddress,
  { folder = temporaryFolder(), ...options }: NodeOptions = {},
) {
  const captured = captureLog()
  const server = { address, password: address.password, passwordPath: undefined }
  const notices = new DatabaseFollower({
    server,
    name: 'follower',
    clock: systemClock,
    log: captured.log,
    ...(options.server && { server: options.server }),
  })
  notices.start()
  onTestFinished(() => notices.stop())
  const database = await SharedDatabase.open({
    server,
    notices,
    steps: RECORD_STEPS,
    path: join(folder, 'replica.db'),
    migrations: GATEWAY_MIGRATIONS,
    applicationId: GATEWAY_APPLICATION_ID,
    node: 'node-1',
    clock: systemClock,
    log: captured.log,
    ...options,
  })
  onTestFinished(() => database.stop())
  return { database, folder, captured }
}

/** The same with the gateway's stores and those who change them. */
export async function openNode(address: DatabaseAddress, options: NodeOptions = {}) {
  const shared = await openShared(address, options)
  const stores = openGatewayStores(shared.folder, { database: shared.database })
  return { ...stores, database: shared.database, told: shared.captured }
}

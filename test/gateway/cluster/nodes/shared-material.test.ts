import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { createLogger } from '../../../../src/base/logger.ts'
import {
  MATERIAL_STEPS,
  SharedMaterial,
} from '../../../../src/gateway/cluster/nodes/shared-material.ts'
import { createAuthority } from '../../../../src/gateway/cluster/peers/cluster-authority.ts'
import { createJoinToken } from '../../../../src/gateway/cluster/peers/join-token.ts'
import { PostgresConnection } from '../../../../src/gateway/cluster/postgres/postgres-connection.ts'
import { migrateSchema } from '../../../../src/gateway/cluster/postgres/schema.ts'
import { hasPostgres, TestPostgres } from '../../../helpers/postgres.ts'

describe.skipIf(!hasPostgres)('SharedMaterial', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  const openMaterial = async () => {
    const address = await postgres.database()
    const server = { address, password: address.password, passwordPath: undefined }
    await migrateSchema({ server, name: 'schema' }, MATERIAL_STEPS)
    const open = () => {
      const connection = new PostgresConnection({
        ...{ server, name: 'test', log: createLogger('silent'), clock: systemClock },
      })
      onTestFinished(() => connection.stop())
      connection.start()
      return new SharedMaterial(connection)
    }
    return [open(), open()] as const
  }

  it('has one authority, however many nodes make one at once', async () => {
    const [one, two] = await openMaterial()
    const make = () => createAuthority(Date.now())
    const [first, second] = await Promise.all([one.keepAuthority(make), two.keepAuthority(make)])
    expect(second).toEqual(first)
    const never = () => Promise.reject(new Error('there is one'))
    expect(await two.keepAuthority(never)).toEqual(first)
  })

  it('lets a token be used once, whoever asks at the same time', async () => {
    const [one, two] = await openMaterial()
    const { kept } = createJoinToken('0'.repeat(64), Date.now() + 60_000)
    await one.keepJoinToken(kept)
    expect(await two.findJoinToken(kept.id)).toEqual(kept)
    const uses = await Promise.all([
      one.useJoinToken(kept.id, 'a'),
      two.useJoinToken(kept.id, 'b'),
      one.useJoinToken(kept.id, 'c'),
    ])
    expect(uses.filter(Boolean)).toHaveLength(1)
    expect((await one.findJoinToken(kept.id))?.usedBy).toBe(['a', 'b', 'c'][uses.indexOf(true)])
    expect(await one.findJoinToken('unknown')).toBeUndefined()
    expect(await one.useJoinToken('unknown', 'a')).toBe(false)
  })

  it('forgets tokens that ended long ago', async () => {
    const [one] = await openMaterial()
    const old = createJoinToken('0'.repeat(64), 1_000).kept
    await one.keepJoinToken(old)
    await one.keepJoinToken(createJoinToken('0'.repeat(64), Date.now()).kept)
    expect(await one.findJoinToken(old.id)).toBeUndefined()
  })
})

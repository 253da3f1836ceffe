import { expect, it } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { DatabaseError } from '../../../../src/gateway/cluster/postgres/database-error.ts'
import type { Row, Statements } from '../../../../src/gateway/cluster/postgres/postgres-session.ts'
import {
  LogFollower,
  type LogFollowerOptions,
} from '../../../../src/gateway/cluster/replication/log-follower.ts'
import { captureLog } from '../../../helpers/captured-log.ts'

const SEEN = { n: 1, mark: 'm' }

it('asks for fewer entries after an answer that took too long, and for more again after others', async () => {
  const { log } = captureLog()
  const notices = { listen: () => {} }
  const options = { node: 'nd_1', notices, replica: { position: SEEN }, clock: systemClock, log }
  const follower = new LogFollower(options as unknown as LogFollowerOptions)
  const asked: unknown[] = []
  let isSlow = false
  const statements: Statements = {
    query: async <R extends Row>(_sql: string, values: readonly unknown[] = []) => {
      asked.push(values[1])
      if (isSlow) throw new DatabaseError('database-slow', 'no answer')
      return [SEEN] as unknown as R[]
    },
  }
  for (const slow of [false, true, true, false, false, false]) {
    isSlow = slow
    const following = follower.follow(statements)
    if (slow) await expect(following).rejects.toThrow('no answer')
    else await following
  }
  expect(asked).toEqual([200, 200, 25, 4, 5, 6])
})

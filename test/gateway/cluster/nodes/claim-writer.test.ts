import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { createLogger } from '../../../../src/base/logger.ts'
import { ClaimWriter } from '../../../../src/gateway/cluster/nodes/claim-writer.ts'
import type { LeaseState } from '../../../../src/gateway/cluster/nodes/lease-state.ts'
import { PostgresConnection } from '../../../../src/gateway/cluster/postgres/postgres-connection.ts'
import { claimOf } from '../../../helpers/cluster-node.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'

/** With a database that nobody has found yet. */
const startWriter = (state: LeaseState = 'held') => {
  const address = { host: '127.0.0.1', port: 1, database: 'none', user: 'none', caPath: undefined }
  const connection = new PostgresConnection({
    server: {
      address: { ...address, password: undefined, tls: 'off' },
      password: undefined,
      passwordPath: undefined,
    },
    ...{ name: 'test', waitMs: 5, log: createLogger('silent'), clock: systemClock },
  })
  onTestFinished(() => connection.stop())
  const clock = new ManualClock()
  const lease = { nodeId: 'one', epoch: 1, state }
  return { clock, writer: new ClaimWriter({ connection, lease, clock }) }
}

describe('ClaimWriter', () => {
  it('tells in time that a claim cannot be written, and keeps its release', async () => {
    const { clock, writer } = startWriter()
    let claims = 0
    let releases = 0
    writer.claim(claimOf('a.example')).catch(() => {
      claims += 1
    })
    writer.release(claimOf('b.example')).catch(() => {
      releases += 1
    })
    await eventually(() => expect(clock.sleeping).toBe(1))
    expect(claims).toBe(0)
    await eventually(async () => {
      await clock.advance(500)
      expect(claims).toBe(1)
    })
    expect(releases).toBe(0)
    const stopped = writer.stop()
    await clock.advance(500)
    await stopped
    expect(releases).toBe(1)
    await expect(writer.claim(claimOf('c.example'))).rejects.toThrow('at once')
  })

  it.each(['overdue', 'unsure', 'fenced'] as const)(
    'takes no names in a lease that is %s, also none that it may take',
    async (state) => {
      const { writer } = startWriter(state)
      const claim = claimOf('a.example')
      const waits = new Promise((resolve) => setImmediate(resolve, 'it waits'))
      for (const how of ['claim', 'take'] as const) {
        const refused = writer[how](claim).catch(({ message }) => message)
        expect(await Promise.race([refused, waits])).toBe('the lease has expired')
      }
    },
  )

  it('lets a bounded number wait', async () => {
    const { writer } = startWriter()
    const claim = claimOf('a.example')
    const waiting = Array.from({ length: 50_000 }, () => writer.claim(claim))
    const settled = Promise.allSettled(waiting)
    await expect(writer.claim(claim)).rejects.toThrow('too many names are changing at once')
    await writer.stop()
    expect((await settled).every(({ status }) => status === 'rejected')).toBe(true)
  })
})

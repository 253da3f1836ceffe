import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import type { DatabaseAddress } from '../../../../src/settings/database-url.ts'
import { claimOf, FAST, TestNode } from '../../../helpers/cluster-node.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { hasPostgres, TestPostgres } from '../../../helpers/postgres.ts'

/** Not so short that a busy machine ends one. */
const TIMINGS = { ...FAST, leaseMs: 6_000 }

describe.skipIf(!hasPostgres)('a node that is gone', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  const startNode = async (address: DatabaseAddress, id: string) => {
    const node = await TestNode.start(address, id, { timings: TIMINGS })
    onTestFinished(() => {
      node.resume()
      return node.stop()
    })
    return node
  }

  it('is forgotten with what it has left, for good', async () => {
    const address = await postgres.database()
    const [one, two] = [await startNode(address, 'one'), await startNode(address, 'two')]
    const claim = claimOf('a.example')
    const moved = claimOf('b.example')
    await eventually(() => one.cluster.claims.claim(claim))
    await eventually(() => two.cluster.claims.claim(moved))
    await two.cluster.claims.release(moved, 'one')
    expect(await two.cluster.forget('one')).toBe('there')
    expect(await two.cluster.forget('nobody')).toBe('unknown')
    one.pause()
    await eventually(() => expect(two.cluster.nodes.find('one')?.standing).toBe('lost'))
    // Visitors would wait for them there.
    const homesOf = () =>
      ['a.example', 'b.example'].map((host) => two.cluster.table.find('https', host)?.nodeId)
    await eventually(() => expect(homesOf()).toEqual(['one', 'one']))
    expect(await two.cluster.forget('one')).toBe('forgotten')
    expect(two.cluster.nodes.find('one')).toBeUndefined()
    expect(homesOf()).toEqual([undefined, undefined])
    expect(await two.cluster.forget('one')).toBe('unknown')
    one.resume()
    await eventually(() => expect(one.isForgotten).toBe(true))
    expect(one.cluster.lease.state).toBe('forgotten')
    expect(one.cluster.claims.ownershipOfDevice(claim.key)).toBe('foreign')
    await expect(startNode(address, 'one')).rejects.toThrow('was removed from the cluster')
    expect(two.cluster.nodes.find('one')).toBeUndefined()
  })
})

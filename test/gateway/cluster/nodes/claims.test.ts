import { expect, it } from 'vitest'
import { ClaimHeldError } from '../../../../src/gateway/cluster/nodes/claim.ts'
import {
  Claims,
  type ClaimsOptions,
  type Ownership,
} from '../../../../src/gateway/cluster/nodes/claims.ts'
import type { LeaseState } from '../../../../src/gateway/cluster/nodes/lease-state.ts'
import { claimOf } from '../../../helpers/cluster-node.ts'
import { turns } from '../../../helpers/frame-peer.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'

it('claims a name once more when its epoch was over before the answer came', async () => {
  const lease = { nodeId: 'one', epoch: 1, state: 'held' as const }
  const claimed: number[] = []
  const writer = {
    claim: async () => {
      const { epoch } = lease
      claimed.push(epoch)
      // The node is given up, and back, while the answer is on its way.
      if (epoch < 3) lease.epoch += 1
      return { epoch }
    },
  }
  const claims = new Claims({ lease, writer, clock: new ManualClock() } as unknown as ClaimsOptions)
  const claim = claimOf('a.example')
  expect(await claims.claim(claim)).toBeUndefined()
  expect(claimed).toEqual([1, 2, 3])
  expect(claims.owns(claim.key)).toBe(true)
})

it.each<[state: LeaseState, ofDevice: Ownership, ofCounter: Ownership]>([
  ['none', 'unknown', 'foreign'],
  ['held', 'owned', 'owned'],
  ['overdue', 'owned', 'foreign'],
  ['unsure', 'unknown', 'unknown'],
  ['fenced', 'unknown', 'unknown'],
  ['unfit', 'owned', 'foreign'],
  ['replaced', 'foreign', 'foreign'],
  ['forgotten', 'foreign', 'foreign'],
  ['left', 'foreign', 'foreign'],
])('serves its names according to a lease that is %s', async (state, ofDevice, ofCounter) => {
  const lease: { nodeId: string; epoch: number; state: LeaseState } = {
    ...{ nodeId: 'one', epoch: 1, state: 'held' },
  }
  const writer = { claim: async () => ({ epoch: lease.epoch }) }
  const claims = new Claims({ lease, writer, clock: new ManualClock() } as unknown as ClaimsOptions)
  const { key } = claimOf('a.example')
  await claims.claim(claimOf('a.example'))
  lease.state = state
  expect([claims.ownershipOfDevice(key), claims.ownershipOfCounter(key)]).toEqual([
    ofDevice,
    ofCounter,
  ])
})

it.each([
  [4, true],
  [5, true],
  [6, false],
])(
  'keeps a name of generation 5 when another node tells of it with %i: %s',
  async (generation, isKept) => {
    const lost: string[] = []
    const claims = new Claims({
      lease: { nodeId: 'one', epoch: 1, state: 'held' },
      writer: { claim: async () => ({ epoch: 1 }) },
      clock: new ManualClock(),
      onLost: ({ key }: { key: { host: string } }) => lost.push(key.host),
    } as unknown as ClaimsOptions)
    const process = { deviceId: 'door', instance: 'process-1' }
    const own = claimOf('a.example', { ...process, generation: 5 })
    await claims.claim(own)
    const { facts } = claimOf('a.example', { ...process, generation })
    claims.taken(own.key, { nodeId: 'two', epoch: 1, facts })
    expect([claims.owns(own.key), lost]).toEqual([isKept, isKept ? [] : ['a.example']])
  },
)

it('asks again for a name at the pace of its polls, while the node does not answer', async () => {
  const clock = new ManualClock()
  const holder = { nodeId: 'two', epoch: 1, facts: claimOf('a.example').facts }
  let tries = 0
  let asked = 0
  const claims = new Claims({
    lease: { nodeId: 'one', epoch: 1, state: 'held' },
    writer: {
      claim: async () => {
        tries += 1
        return { holder }
      },
      take: async () => ({ holder }),
      release: async () => {},
    },
    ask: async () => {
      asked += 1
      // Without the pause it would never let the test go on.
      if (asked > 50) await new Promise(() => {})
      return 'unknown'
    },
    clock,
  } as unknown as ClaimsOptions)
  const claimed = claims.claim(claimOf('a.example'), () => true).catch((error: unknown) => error)
  await turns()
  expect([tries, asked]).toEqual([1, 1])
  for (let n = 0; n < 4; n += 1) await clock.advance(200)
  expect([tries, asked]).toEqual([5, 5])
  for (let n = 0; n < 30; n += 1) await clock.advance(200)
  expect(await claimed).toBeInstanceOf(ClaimHeldError)
})

/** Claims of a node whose database answers when it is told to. */
function renewing() {
  const lease: { nodeId: string; epoch: number; state: LeaseState } = {
    ...{ nodeId: 'one', epoch: 1, state: 'held' },
  }
  const written: string[] = []
  const database = { isAway: false }
  const write = (what: string) => async (claim: ReturnType<typeof claimOf>) => {
    if (database.isAway) throw new Error('away')
    written.push(`${what} ${claim.facts.endpointId}`)
    return { epoch: lease.epoch }
  }
  const given: string[] = []
  const claims = new Claims({
    lease,
    writer: { claim: write('claim'), release: write('release') },
    give: async (own: ReturnType<typeof claimOf>) => given.push(own.facts.endpointId) > 0,
    onRenewed: () => {},
    clock: new ManualClock(),
  } as unknown as ClaimsOptions)
  return { claims, lease, database, written, given }
}

it('renews a name without the database, and tells it later', async () => {
  const { claims, lease, database, written } = renewing()
  const [first, second, third] = ['a', 'b', 'c'].map((endpointId) =>
    claimOf('a.example', { endpointId }),
  )
  if (!first || !second || !third) throw new Error('three claims')
  expect(claims.renew(first)).toBe(false)
  await claims.claim(first)
  database.isAway = true
  lease.state = 'overdue'
  expect([claims.renew(second), claims.renew(third)]).toEqual([true, true])
  expect([claims.ownershipOfDevice(third.key), claims.doubted]).toEqual(['owned', 1])
  await claims.reclaim().catch(() => {})
  expect(claims.doubted).toBe(1)
  database.isAway = false
  await claims.reclaim()
  expect([claims.doubted, claims.heldBy(third.key)]).toEqual([0, third])
  expect(written).toEqual(['claim a', 'claim c'])
})

it.each<LeaseState>(['none', 'unsure', 'fenced', 'unfit', 'replaced', 'forgotten', 'left'])(
  'renews no name with a lease that is %s',
  async (state) => {
    const { claims, lease } = renewing()
    await claims.claim(claimOf('a.example'))
    lease.state = state
    expect(claims.renew(claimOf('a.example'))).toBe(false)
    lease.state = 'held'
    lease.epoch += 1
    expect(claims.renew(claimOf('a.example'))).toBe(false)
  },
)

it('gives a renewed name up by the endpoint that the database knows', async () => {
  const { claims, written, given } = renewing()
  const [first, second] = ['a', 'b'].map((endpointId) => claimOf('a.example', { endpointId }))
  if (!first || !second) throw new Error('two claims')
  await claims.claim(first)
  claims.renew(second)
  const wanted = claimOf('a.example')
  const ask = (heldBy: string) => claims.asked({ nodeId: 'one', byNode: 'two', wanted, heldBy })
  // Neither of both: it may be on its way to the database.
  expect(await ask('c')).toBe('unknown')
  expect([written, given]).toEqual([['claim a'], []])
  expect(await ask('a')).toBe('given')
  expect(given).toEqual(['b'])
  expect(written).toEqual(['claim a', 'release a', 'release b'])
})

it('remembers no more than eight renewals, whatever a device does', async () => {
  const { claims, database, written } = renewing()
  const all = Array.from({ length: 30 }, (_, n) => claimOf('a.example', { endpointId: `e${n}` }))
  const [first, ...renewed] = all as [ReturnType<typeof claimOf>, ...typeof all]
  await claims.claim(first)
  database.isAway = true
  for (const claim of renewed) {
    claims.renew(claim)
    await claims.reclaim().catch(() => {})
  }
  database.isAway = false
  await claims.release(renewed.at(-1) as typeof first)
  expect(written.slice(1)).toEqual(all.slice(-9).map(({ facts }) => `release ${facts.endpointId}`))
})

it('releases every renewal that the database may have without an answer', async () => {
  const { claims, database, written } = renewing()
  const all = ['a', 'b', 'c', 'd'].map((endpointId) => claimOf('a.example', { endpointId }))
  const [first, ...renewed] = all as [ReturnType<typeof claimOf>, ...typeof all]
  await claims.claim(first)
  for (const claim of renewed) {
    claims.renew(claim)
    // Only the first renewal is sent, and may be written although its answer is lost.
    database.isAway = true
    if (claim === renewed[0]) await claims.reclaim().catch(() => {})
  }
  database.isAway = false
  await claims.release(renewed.at(-1) as typeof first)
  expect(written).toEqual(['claim a', 'release a', 'release b', 'release d'])
})

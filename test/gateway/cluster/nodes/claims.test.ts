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

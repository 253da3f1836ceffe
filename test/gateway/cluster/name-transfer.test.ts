import { expect, it } from 'vitest'
import {
  NameTransfer,
  type NameTransferOptions,
} from '../../../src/gateway/cluster/name-transfer.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { claimOf } from '../../helpers/cluster-node.ts'

const HOST = 'few.example'
const states = new Map()

it.each([
  ['of a device', { type: 'agent', sessionId: 'ts_1' }, false],
  ['of a cloud endpoint, while it drains', { type: 'cloud' }, true],
  ['that nobody serves here', undefined, false],
])(
  'a name %s is given up with its counts, which somebody is to come for',
  async (_what, kind, isDraining) => {
    const given: unknown[] = []
    const suspended: unknown[] = []
    const own = claimOf(HOST)
    const holder = { ...kind, ownerId: own.facts.ownerId, protocol: 'https', policy: { states } }
    const moves = new NameTransfer({
      registry: {
        holdersOf: () => (kind ? [holder] : []),
        disconnectedAt: () => undefined,
        suspend: (endpoint: unknown) => suspended.push(endpoint),
      },
      policies: { last: () => ({ states }) },
      limits: { give: (...it: unknown[]) => given.push(it) },
      sessionOf: () => undefined,
      isDraining: () => isDraining,
      log: captureLog().log,
    } as unknown as NameTransferOptions)
    expect(await moves.give(own, claimOf(HOST))).toBe(true)
    expect(given).toEqual([[own, states]])
    expect(suspended).toEqual(kind?.type === 'agent' ? [holder] : [])
  },
)

import { describe, expect, it } from 'vitest'
import type { ClaimRow } from '../../../../src/gateway/cluster/nodes/claim.ts'
import { StringPool } from '../../../../src/gateway/cluster/nodes/cluster-feed.ts'
import { claimOf } from '../../../helpers/cluster-node.ts'

const rowOf = (host: string, change: Parameters<typeof claimOf>[1] = {}): ClaimRow => {
  const { key, facts } = claimOf(host, change)
  return { ...key, node: 'nd_1', epoch: 3, facts }
}

describe('SharedWords', () => {
  it('leaves a row as it is', () => {
    const words = new StringPool()
    const full = { sessionId: 'ts_1', credentialId: 'cr_1', clientId: 'c', instance: 'i' }
    const rows = [
      rowOf('a.example'),
      rowOf('b.example', full),
      rowOf('c.example', { movesTo: 'nd_2', ownerId: null, kind: 'cloud', isShared: true }),
      { ...rowOf('d.internal'), node: null },
    ]
    for (const row of [...rows, ...rows]) expect(words.rowOf(row)).toEqual(row)
  })
})

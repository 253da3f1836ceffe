import { describe, expect, it } from 'vitest'
import { homeFor, type NodeRow } from '../../../../src/gateway/cluster/nodes/node-facts.ts'
import { nodeFacts } from '../../../helpers/cluster-node.ts'

const nodeOf = (id: string, standing: NodeRow['standing'] = 'serving'): NodeRow => ({
  ...{ id, epoch: 1, beat: 1, standing, since: 0, facts: nodeFacts() },
})
const names = Array.from({ length: 3_000 }, (_, n) => `n${n}.example`)
const three = ['a', 'b', 'c'].map((id) => nodeOf(id))

describe('homeFor', () => {
  it('spreads names evenly, in whatever order the nodes are', () => {
    const counts = new Map<string | undefined, number>()
    for (const name of names) {
      const home = homeFor(name, three)
      expect(homeFor(name, [...three].reverse())).toBe(home)
      counts.set(home, (counts.get(home) ?? 0) + 1)
    }
    for (const { id } of three) expect(counts.get(id)).toBeGreaterThan(800)
  })

  it('moves the names of a node that goes, and no others', () => {
    const drained = [nodeOf('a'), nodeOf('b'), nodeOf('c', 'draining')]
    for (const name of names) {
      const before = homeFor(name, three)
      const after = homeFor(name, drained)
      if (before === 'c') expect(after).toMatch(/^[ab]$/)
      else expect(after).toBe(before)
    }
    expect(homeFor('a.example', [])).toBeUndefined()
  })
})

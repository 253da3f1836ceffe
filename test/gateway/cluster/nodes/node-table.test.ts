import { describe, expect, it } from 'vitest'
import { nextLeaseState } from '../../../../src/gateway/cluster/nodes/lease-state.ts'
import type { NodeRow } from '../../../../src/gateway/cluster/nodes/node-facts.ts'
import { NodeTable } from '../../../../src/gateway/cluster/nodes/node-table.ts'
import { nodeFacts } from '../../../helpers/cluster-node.ts'

const FACTS = nodeFacts()
const row = (beat: number, change: Partial<NodeRow> = {}): NodeRow => ({
  ...{ id: 'one', epoch: 1, beat, standing: 'serving', since: 0, facts: FACTS },
  ...change,
})
const LEASE_MS = 12_000

describe('NodeTable', () => {
  it('counts how long a beat stands still while it looks', () => {
    const table = new NodeTable()
    for (let now = 0; now < LEASE_MS; now += 1_000) {
      table.observe([row(7)], now)
      expect(table.silent(LEASE_MS)).toEqual([])
    }
    table.observe([row(7)], LEASE_MS)
    expect(table.silent(LEASE_MS)).toEqual([row(7)])
    table.observe([row(8)], LEASE_MS + 1_000)
    expect(table.silent(LEASE_MS)).toEqual([])
  })

  it('begins to count anew with another epoch', () => {
    const table = new NodeTable()
    for (let now = 0; now <= LEASE_MS; now += 1_000) table.observe([row(7)], now)
    table.observe([row(7, { epoch: 2 })], LEASE_MS + 1_000)
    expect(table.silent(LEASE_MS)).toEqual([])
  })

  it('does not hold against a node that nobody could look for a while', () => {
    const table = new NodeTable()
    table.observe([row(7)], 0)
    table.observe([row(7)], 60_000)
    expect(table.silent(LEASE_MS)).toEqual([])
    expect(table.silent(2_000)).toEqual([row(7)])
  })

  it('counts no silence of nodes that it learns from another node', () => {
    const table = new NodeTable()
    for (let now = 0; now <= 60_000; now += 1_000) table.learn([row(7)])
    table.observe([row(7)], 60_000)
    expect(table.silent(1)).toEqual([])
    table.observe([row(7)], 61_000)
    expect(table.silentMsOf('one')).toBe(1_000)
  })

  it('gives up nobody who is not there', () => {
    const table = new NodeTable()
    for (const standing of ['lost', 'left'] as const) {
      for (let now = 0; now <= 60_000; now += 1_000) table.observe([row(7, { standing })], now)
      expect(table.silent(LEASE_MS)).toEqual([])
      expect(table.isValid('one', 1)).toBe(false)
    }
  })

  it('takes claims of an epoch for valid until the node has another', () => {
    const table = new NodeTable()
    table.observe([row(7, { epoch: 2 })], 0)
    expect([1, 2].map((epoch) => table.isValid('one', epoch))).toEqual([false, true])
    expect(table.isValid('two', 1)).toBe(false)
    table.observe([], 1_000)
    expect(table.all()).toEqual([])
  })
})

describe('nextLeaseState', () => {
  it('goes back to held only by a renewal, or in another epoch', () => {
    expect(nextLeaseState('none', 'joined')).toBe('held')
    expect(nextLeaseState('held', 'expired')).toBe('overdue')
    expect(nextLeaseState('overdue', 'renewed')).toBe('held')
    expect(nextLeaseState('fenced', 'renewed')).toBe('fenced')
    expect(nextLeaseState('fenced', 'joined')).toBe('held')
    expect(nextLeaseState('held', 'woke')).toBe('unsure')
    expect(nextLeaseState('unsure', 'failed')).toBe('overdue')
    expect(nextLeaseState('held', 'failed')).toBe('held')
    expect(nextLeaseState('left', 'joined')).toBe('left')
  })
})

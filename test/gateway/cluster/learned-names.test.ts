import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { LearnedNames } from '../../../src/gateway/cluster/learned-names.ts'
import type { ClaimRow } from '../../../src/gateway/cluster/nodes/claim.ts'
import type { NodeRow } from '../../../src/gateway/cluster/nodes/node-facts.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { nodeFacts } from '../../helpers/cluster-node.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

type Handler = (of: object) => unknown

const node = (id: string): NodeRow => ({
  ...{ id, epoch: 1, beat: 1, standing: 'serving', since: 0, facts: nodeFacts() },
})
const names = (count: number, nodeId: string): ClaimRow[] =>
  Array.from({ length: count }, (_, n) => ({
    ...{
      scope: '',
      entrance: 'https',
      host: `n${n}.site.test`,
      member: '',
      node: nodeId,
      epoch: 1,
    },
    facts: {
      ...{
        kind: 'agent',
        protocol: 'https',
        endpointId: `ep_${n}`,
        url: `https://n${n}.site.test`,
      },
      ...{ ownerId: null, credentialId: 'cr_1', deviceId: 'cam', instance: null },
      ...{ sessionId: null, clientId: null, generation: 1, endsTls: false, isShared: false },
    },
  })) as unknown as ClaimRow[]

/** Nodes that answer each other in this process. */
function site() {
  const handlers = new Map<string, Handler>()
  const asked: string[] = []
  const folder = temporaryFolder()
  const { log } = captureLog()
  const clock = new ManualClock()
  const open = (id: string, number: number | undefined, rows: ClaimRow[], listed: string[]) => {
    const facts = { number, rows, reads: 0, learned: [] as (readonly ClaimRow[])[] }
    const cluster = {
      get number() {
        return facts.number
      },
      nodes: { all: () => listed.map(node) },
      table: {
        rows: () => {
          facts.reads += 1
          return facts.rows
        },
        areKnown: () => facts.learned.length > 0,
      },
      learn: (_: readonly NodeRow[], claims: readonly ClaimRow[]) => facts.learned.push(claims),
    }
    const learned = new LearnedNames({
      ...{ folder, log, clock },
      cluster: cluster as never,
      links: {
        follow: () => {},
        all: () =>
          [...handlers.keys()].filter((it) => it !== id).map((nodeId) => ({ nodeId, session: {} })),
      } as never,
      questions: {
        on: (_: string, handler: Handler) => void handlers.set(id, handler),
        ask: async (nodeId: string, _: string, of: { from: number }) => {
          asked.push(`${nodeId} ${of.from}`)
          const answer = handlers.get(nodeId)?.(of)
          // The names of the other node change between two pages.
          onAsked(nodeId)
          return JSON.parse(JSON.stringify(answer))
        },
      } as never,
    })
    return { ...facts, facts, learned }
  }
  let onAsked = (_: string) => {}
  const whenAsked = (act: (nodeId: string) => void) => {
    onAsked = act
  }
  return { open, asked, folder, whenAsked }
}

describe('the names that a node learns from others', () => {
  it('are of one moment, also above one page while they change', async () => {
    const { open, whenAsked } = site()
    const two = open('two', 7, names(4_500, 'two'), ['one', 'two'])
    const one = open('one', undefined, [], [])
    whenAsked(() => {
      two.facts.number = (two.facts.number ?? 0) + 1
      two.facts.rows = two.facts.rows.slice(1)
    })
    expect(await one.learned.learn()).toBe(true)
    const hosts = one.facts.learned[0]?.map(({ host }) => host)
    expect(new Set(hosts).size).toBe(4_500)
  })

  it('are not sent again while nothing has changed', async () => {
    const { open } = site()
    const two = open('two', 7, names(3, 'two'), ['one', 'two'])
    const one = open('one', undefined, [], [])
    for (let round = 0; round < 3; round += 1) expect(await one.learned.learn()).toBe(true)
    expect([two.facts.reads, one.facts.learned.length]).toEqual([1, 1])
    two.facts.number = 8
    await one.learned.learn()
    expect([two.facts.reads, one.facts.learned.length]).toEqual([2, 2])
  })

  it('come from the node that knows the latest change, and only its other pages are asked for', async () => {
    const { open, asked } = site()
    open('two', 7, names(2_500, 'two'), ['one', 'two', 'three'])
    open('three', 8, names(2_001, 'three'), ['one', 'two', 'three'])
    const one = open('one', undefined, [], [])
    await one.learned.learn()
    expect(one.facts.learned[0]).toHaveLength(2_001)
    expect(asked).toEqual(['two 0', 'three 0', 'three 2000'])
  })

  it('do not come from a node that another one does not list', async () => {
    const { open } = site()
    open('two', 7, names(1, 'two'), ['one', 'two'])
    open('removed', 9_999, names(1, 'removed'), ['one', 'two', 'removed'])
    const one = open('one', undefined, [], [])
    expect(await one.learned.learn()).toBe(true)
    expect(one.facts.learned.map(([row]) => row?.node)).toEqual(['two'])
  })

  it('do not change the saved addresses, which only PostgreSQL does', () => {
    const { open, folder } = site()
    const one = open('one', 3, [], [])
    one.learned.keep([node('two')])
    const before = readFileSync(join(folder, 'peers.json'), 'utf8')
    expect(before).toContain('"two"')
    one.facts.number = undefined
    one.learned.keep([node('removed')])
    expect(readFileSync(join(folder, 'peers.json'), 'utf8')).toBe(before)
  })
})

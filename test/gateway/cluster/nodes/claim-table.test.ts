import { describe, expect, it } from 'vitest'
import {
  type ClaimKey,
  type ClaimRow,
  keyText,
  sharedKey,
} from '../../../../src/gateway/cluster/nodes/claim.ts'
import { ClaimTable } from '../../../../src/gateway/cluster/nodes/claim-table.ts'
import { NodeTable } from '../../../../src/gateway/cluster/nodes/node-table.ts'
import { readGiveRequest } from '../../../../src/gateway/cluster/peer-rpc.ts'
import { claimOf, nodeFacts } from '../../../helpers/cluster-node.ts'

const tableOf = () => {
  const nodes = new NodeTable()
  const observe = (epochs: Record<string, number>) => {
    const rows = Object.entries(epochs).map(([id, epoch]) => ({
      ...{ id, epoch, beat: 1, standing: 'serving' as const, since: 0, facts: nodeFacts() },
    }))
    nodes.observe(rows, 0)
  }
  observe({ here: 1, one: 1, two: 1 })
  const here = new Set<string>()
  const isHere = (key: ClaimKey) => here.has(keyText(key))
  return { table: new ClaimTable({ nodeId: 'here', nodes, isHere }), observe, here }
}
const row = (host: string, node: string | null, member = '', epoch = 1): ClaimRow => {
  const { key, facts } = claimOf(host, {}, member)
  return { ...key, node, epoch, facts }
}
const { facts: cloud } = claimOf('cloud.example', { kind: 'cloud' })

describe('ClaimTable', () => {
  it('finds the exact name, else the longest wildcard above it', () => {
    const { table } = tableOf()
    table.apply([row('*.example', 'one'), row('*.b.example', 'two'), row('a.b.example', 'one')])
    const nodeOf = (host: string) => table.find('https', host)?.nodeId
    expect(nodeOf('a.b.example')).toBe('one')
    expect(nodeOf('c.b.example')).toBe('two')
    expect(nodeOf('c.d.example')).toBe('one')
    expect(nodeOf('example')).toBeUndefined()
    expect(table.find('http', 'a.b.example')).toBeUndefined()
  })

  it('does not look above a name that is served here', () => {
    const { table } = tableOf()
    table.apply([row('*.example', 'one'), row('a.example', 'here')])
    expect(table.find('https', 'a.example')).toBeUndefined()
    expect(table.find('https', 'b.example')?.nodeId).toBe('one')
  })

  it('forgets what was given up, and what is of another epoch', () => {
    const { table, observe } = tableOf()
    table.apply([row('a.example', 'one'), row('b.example', 'two')])
    expect(table.size).toBe(2)
    table.apply([row('a.example', null), row('never.example', null)])
    expect([table.size, table.find('https', 'a.example')]).toEqual([1, undefined])
    expect(table.get(row('b.example', 'two'))?.node).toBe('two')
    observe({ two: 2 })
    expect(table.get(row('b.example', 'two'))).toBeUndefined()
    expect(table.get(row('never.example', 'two'))).toBeUndefined()
    table.clear()
    expect(table.size).toBe(0)
  })

  it('leads to where a device was until it is somewhere else, unless a wildcard serves', () => {
    const { table, observe } = tableOf()
    table.apply([row('a.example', 'two'), row('b.site', 'two'), row('*.site', 'one')])
    observe({ one: 1, two: 2 })
    expect(table.find('https', 'a.example')?.nodeId).toBe('two')
    expect(table.find('https', 'b.site')?.nodeId).toBe('one')
    table.apply([row('a.example', 'one')])
    expect(table.find('https', 'a.example')?.nodeId).toBe('one')
  })

  it('leads to who has to claim its names again, for a minute', () => {
    const { table } = tableOf()
    const cam = row('cam.example', 'one')
    table.apply([row('kept.example', 'two'), cam, row('pool.example', 'one', 'd1')])
    table.apply([row('own.example', 'here'), row('given.example', 'two')])
    table.apply([row('given.example', null), { ...cam, host: 'cloud.example', facts: cloud }])
    table.restart([row('kept.example', 'one'), row('pool.example', 'two', 'd2')], 1_000)
    const nodeOf = (host: string) => table.find('https', host)?.nodeId
    const seen = () => ['kept', 'cam', 'own', 'given', 'cloud'].map((it) => nodeOf(`${it}.example`))
    expect(seen()).toEqual(['one', 'one', undefined, undefined, undefined])
    expect(nodeOf('pool.example')).toBe('two')
    expect([table.get(cam), [...table.of('one')].length]).toEqual([undefined, 1])
    table.apply([row('own.example', 'two')])
    table.expire(60_999)
    expect(seen()).toEqual(['one', 'one', 'two', undefined, undefined])
    table.expire(61_000)
    expect(seen()).toEqual(['one', undefined, 'two', undefined, undefined])
    expect(table.size).toBe(3)
  })

  it('forgets nothing of what was claimed again', () => {
    const { table } = tableOf()
    table.apply([row('cam.example', 'one')])
    table.restart([], 0)
    table.apply([row('cam.example', 'one')])
    table.expire(60_000)
    expect(table.find('https', 'cam.example')?.nodeId).toBe('one')
  })

  it('leads to where a name moves, and waits for what comes here', () => {
    const { table, observe } = tableOf()
    const moved = (host: string, movesTo: string) => {
      const given = row(host, null)
      return { ...given, facts: { ...given.facts, movesTo } }
    }
    const coming = (host: string) => table.coming('https', host, null)?.nodeId
    table.apply([row('a.example', 'one'), row('b.example', 'one'), row('c.example', 'one')])
    table.apply([moved('a.example', 'two'), moved('b.example', 'here'), row('c.example', null)])
    expect(table.size).toBe(0)
    expect(table.find('https', 'a.example')?.nodeId).toBe('two')
    expect(table.find('https', 'b.example')).toBeUndefined()
    expect(['a.example', 'b.example', 'c.example'].map(coming)).toEqual([
      undefined,
      'here',
      undefined,
    ])
    table.apply([row('b.example', 'here'), row('*.site', 'here')])
    expect(['b.example', 'x.site'].map(coming)).toEqual(['here', 'here'])
    table.apply([row('a.example', 'two'), row('b.example', 'one')])
    expect(table.find('https', 'a.example')?.nodeId).toBe('two')
    expect(coming('b.example')).toBeUndefined()
    observe({ here: 2 })
    expect(coming('x.site')).toBeUndefined()
  })

  it('waits for internal names of the account, and those that are shared', () => {
    const { table } = tableOf()
    const own = claimOf('db.internal', { protocol: 'http' })
    table.apply([{ ...own.key, node: 'here', epoch: 1, facts: own.facts }])
    expect(table.coming('http', 'db.internal', 'bot_1')?.host).toBe('db.internal')
    expect(table.coming('http', 'db.internal', 'bot_2')).toBeUndefined()
    table.apply([{ ...sharedKey(own.key), node: 'here', epoch: 1, facts: own.facts }])
    expect(table.coming('http', 'db.internal', 'bot_2')?.host).toBe('db.internal')
  })

  it('leads to a pool while one of its members is there, and nowhere when one is here', () => {
    const { table, observe } = tableOf()
    table.apply([row('p.example', 'one', 'd1'), row('p.example', 'two', 'd2')])
    expect(table.find('https', 'p.example')?.nodeId).toBe('one')
    observe({ two: 1 })
    expect(table.find('https', 'p.example')?.nodeId).toBe('two')
    table.apply([row('p.example', 'two', 'd2'), row('p.example', null, 'd1')])
    expect(table.size).toBe(1)
    expect(Array.from(table.of('two'), ({ member }) => member)).toEqual(['d2'])
    observe({ two: 1, here: 1 })
    table.apply([row('p.example', 'here', 'd3')])
    expect(table.find('https', 'p.example')).toBeUndefined()
  })

  it('knows which other node had a name last, also when nobody has it', () => {
    const { table, observe } = tableOf()
    const key = row('a.example', 'one')
    expect(table.lastHome(key)).toBeUndefined()
    table.apply([key])
    expect(table.lastHome(key)).toBe('one')
    table.apply([row('a.example', null)])
    table.apply([row('a.example', null)])
    expect(table.lastHome(key)).toBe('one')
    table.apply([row('a.example', 'here')])
    expect(table.lastHome(key)).toBeUndefined()
    table.apply([row('a.example', 'two')])
    observe({ here: 1, two: 2 })
    expect(table.lastHome(key)).toBe('two')
    table.apply([row('a.example', null)])
    table.clear()
    expect(table.lastHome(key)).toBeUndefined()
  })
})

describe('readGiveRequest', () => {
  const request = { nodeId: 'one', byNode: 'two', heldBy: 'x', wanted: claimOf('a.example') }

  it('reads what is for this node, and nothing else', () => {
    const text = JSON.stringify(request)
    expect(readGiveRequest(text, 'one')).toEqual(request)
    expect(readGiveRequest(text, 'two')).toBeUndefined()
    expect(readGiveRequest('{', 'one')).toBeUndefined()
    expect(readGiveRequest('{"nodeId":"one"}', 'one')).toBeUndefined()
  })

  const usageOf = () => {
    const { table, observe, here } = tableOf()
    const of = (host: string, node: string | null, facts: Partial<ClaimRow['facts']> = {}) => {
      const before = row(host, node)
      const one = { credentialId: 'cr_a', sessionId: `ts_${host}`, clientId: `ts_${host}` }
      return { ...before, facts: { ...before.facts, ...one, ...facts } }
    }
    const nobody = { clientId: 'ts_none', deviceId: undefined }
    const endpoints = (host = 'new.example') =>
      table.usage.endpointsOf('cr_a', { protocol: 'https', host, ownerId: null })
    const sessions = (device: { clientId?: string; deviceId?: string } = {}) =>
      table.usage.sessionsOf('cr_a', { ...nobody, ...device })
    table.apply([
      of('a.example', 'one', { sessionId: 'ts_1' }),
      of('b.example', 'one', { sessionId: 'ts_1', deviceId: 'cam' }),
      of('c.example', 'two', { deviceId: 'cam' }),
      of('d.example', 'here'),
      of('e.example', 'two', { credentialId: 'cr_b' }),
      { ...of('f.example', 'two'), ...sharedKey(row('f.example', 'two')) },
    ])
    return { table, observe, here, of, endpoints, sessions }
  }

  it('counts what an authtoken has at other nodes, but for the name that comes here', () => {
    const { table, observe, here, of, endpoints, sessions } = usageOf()
    expect([endpoints(), endpoints('a.example'), sessions()]).toEqual([3, 2, 2])
    expect(table.usage.mostOf('cr_a')).toBe(3)
    // It has come here, whether that was told or not, and one has gone.
    here.add(keyText(row('c.example', 'two')))
    expect([endpoints(), sessions()]).toEqual([2, 1])
    table.apply([of('c.example', 'here'), of('a.example', null)])
    expect([endpoints(), sessions()]).toEqual([1, 1])
    expect(table.usage.mostOf('cr_a')).toBe(1)
    observe({ here: 1, one: 2, two: 1 })
    expect([endpoints(), sessions()]).toEqual([0, 0])
    table.clear()
    expect(table.usage.mostOf('cr_a')).toBe(0)
  })

  it('leaves one session of the device out that comes here, and no more', () => {
    const { sessions } = usageOf()
    expect(sessions({ deviceId: 'cam' })).toBe(1)
    expect(sessions({ deviceId: 'door' })).toBe(2)
    expect(sessions({ clientId: 'ts_c.example' })).toBe(1)
    expect(sessions({ clientId: 'ts_c.example', deviceId: 'cam' })).toBe(1)
  })

  it('keeps a name for its account for an hour after its node went, while that may have it', () => {
    const { table, observe } = tableOf()
    table.apply([row('a.example', 'one')])
    const key = (protocol: 'http' | 'https' | 'tls') => claimOf('a.example', { protocol }).key
    const isForeign = (ownerId: string, now: number, mayReturn = true) =>
      [key('http'), key('https'), key('tls')].map((it) =>
        table.isForeign(it, ownerId, now, () => mayReturn),
      )
    const [all, none] = [
      [true, true, true],
      [false, false, false],
    ]
    expect([isForeign('bot_2', 1e9, false), isForeign('bot_1', 0)]).toEqual([all, none])
    // Another process of it, which came at 0.
    observe({ here: 1, one: 2 })
    expect([isForeign('bot_2', 3_599_999), isForeign('bot_1', 0)]).toEqual([all, none])
    expect([isForeign('bot_2', 3_600_000), isForeign('bot_2', 0, false)]).toEqual([none, none])
  })
})

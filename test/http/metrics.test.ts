import { describe, expect, it } from 'vitest'
import { createRegistry, MAX_SERIES, oneOf } from '../../src/http/metrics.ts'

describe('a registry of metrics', () => {
  it('reads them when it is asked, and forgets what is not there any more', async () => {
    let names = ['a', 'b']
    let total = 5
    const registry = await createRegistry([
      {
        name: 'x_up',
        type: 'gauge',
        help: 'Up.',
        labels: ['name'],
        read: () => names.map((name) => [{ name }, 1] as const),
      },
      { name: 'x_total', type: 'counter', help: 'All.', read: () => total },
      { name: 'x_unknown', type: 'gauge', help: 'Nothing.', read: () => undefined },
    ])
    const lines = async () =>
      (await registry.metrics()).split('\n').filter((line) => line !== '' && !line.startsWith('#'))
    expect(await lines()).toEqual(['x_up{name="a"} 1', 'x_up{name="b"} 1', 'x_total 5'])
    names = ['b']
    total = 7
    expect(await lines()).toEqual(['x_up{name="b"} 1', 'x_total 7'])
  })

  it('has no more series than a database of somebody else can take', async () => {
    const read = () =>
      Array.from({ length: MAX_SERIES + 5 }, (_, n) => [{ name: String(n) }, n] as const)
    const registry = await createRegistry([
      { name: 'x', type: 'gauge', help: 'X.', labels: ['name'], read },
    ])
    expect((await registry.metrics()).match(/^x\{/gm)).toHaveLength(MAX_SERIES)
  })

  it('has the buckets of a histogram, each with what is below it', async () => {
    const names = ['a', 'b']
    const registry = await createRegistry([
      {
        name: 'x_seconds',
        type: 'histogram',
        help: 'X.',
        labels: ['name'],
        bounds: [0.5, 1],
        read: () => names.map((name) => [{ name }, { buckets: [2, 0, 1], sum: 4.5 }] as const),
      },
    ])
    const text = await registry.metrics()
    expect(text.trim().split('\n').slice(0, 7)).toEqual([
      '# HELP x_seconds X.',
      '# TYPE x_seconds histogram',
      'x_seconds_bucket{name="a",le="0.5"} 2',
      'x_seconds_bucket{name="a",le="1"} 2',
      'x_seconds_bucket{name="a",le="+Inf"} 3',
      'x_seconds_sum{name="a"} 4.5',
      'x_seconds_count{name="a"} 3',
    ])
    names.push(...Array.from({ length: MAX_SERIES }, (_, n) => String(n)))
    expect((await registry.metrics()).match(/^x_seconds/gm)).toHaveLength(MAX_SERIES)
  })

  it('says of a state which one it is', () => {
    expect([...oneOf(['up', 'down'], 'down')]).toEqual([
      [{ state: 'up' }, 0],
      [{ state: 'down' }, 1],
    ])
  })
})

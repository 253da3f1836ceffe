import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  UpstreamCheck,
  type UpstreamCheckOptions,
} from '../../../src/agent/upstreams/upstream-check.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const TARGET = { host: 'localhost', port: 1 }

function setUp(options: Partial<UpstreamCheckOptions> = {}) {
  const clock = new ManualClock()
  let isUp = true
  let checks = 0
  let changes = 0
  const upstreams = new UpstreamCheck({
    timings: { intervalMs: 10_000, connectMs: 100 },
    clock,
    connects: async () => {
      checks += 1
      return isUp
    },
    onChange: () => {
      changes += 1
    },
    ...options,
  })
  onTestFinished(() => upstreams.stop())
  return {
    clock,
    upstreams,
    checks: () => checks,
    changes: () => changes,
    setUp: (next: boolean) => {
      isUp = next
    },
    start: async () => {
      upstreams.start()
      await clock.advance(0)
    },
  }
}

describe('UpstreamCheck', () => {
  it('begins no check after a stop, however many wait', async () => {
    const tried: (() => void)[] = []
    const connects = () => new Promise<boolean>((resolve) => tried.push(() => resolve(false)))
    const { upstreams, start } = setUp({ connects })
    for (let n = 0; n < 100; n += 1) upstreams.watch(`s${n}`, TARGET)
    await start()
    const underWay = tried.length
    expect(underWay).toBeLessThan(100)
    const stopped = upstreams.stop()
    for (const settle of tried.slice()) settle()
    await stopped
    expect(tried).toHaveLength(underWay)
  })

  it('takes one success for up and two failures in a row for down', async () => {
    const { upstreams, clock, start, setUp: set, changes } = setUp()
    upstreams.watch('a', TARGET)
    expect(upstreams.stateOf('a')).toBe('unknown')
    await start()
    expect(upstreams.stateOf('a')).toBe('up')
    set(false)
    await clock.advance(10_000)
    expect(upstreams.stateOf('a')).toBe('up')
    await clock.advance(10_000)
    expect(upstreams.stateOf('a')).toBe('down')
    set(true)
    await clock.advance(10_000)
    expect(upstreams.stateOf('a')).toBe('up')
    expect(changes()).toBe(3)
  })

  it('knows nothing of a service that failed once', async () => {
    const { upstreams, clock, start, setUp: set } = setUp()
    set(false)
    upstreams.watch('a', TARGET)
    await start()
    expect(upstreams.stateOf('a')).toBe('unknown')
    await clock.advance(10_000)
    expect(upstreams.stateOf('a')).toBe('down')
  })

  it('tries a service once however many tunnels use it, until the last lets go', async () => {
    const { upstreams, clock, start, checks } = setUp()
    const unwatch = [upstreams.watch('a', TARGET), upstreams.watch('a', TARGET)]
    await start()
    expect(checks()).toBe(1)
    unwatch[0]?.()
    await clock.advance(10_000)
    expect(checks()).toBe(2)
    unwatch[1]?.()
    expect(upstreams.stateOf('a')).toBe('unknown')
    await clock.advance(10_000)
    expect(checks()).toBe(2)
  })

  it('tries a new service at once', async () => {
    const { upstreams, clock, start } = setUp()
    await start()
    upstreams.watch('a', TARGET)
    await clock.advance(0)
    expect(upstreams.stateOf('a')).toBe('up')
  })

  it('has no more than 16 connections open at once', async () => {
    let open = 0
    let most = 0
    const { upstreams, start } = setUp({
      connects: async () => {
        open += 1
        most = Math.max(most, open)
        await new Promise((resolve) => setImmediate(resolve))
        open -= 1
        return true
      },
    })
    for (let port = 1; port <= 100; port += 1) upstreams.watch(`a:${port}`, { host: 'a', port })
    await start()
    await eventually(() => expect(upstreams.stateOf('a:100')).toBe('up'))
    expect(most).toBe(16)
  })

  it('stops, and leaves no sleeper', async () => {
    const { upstreams, clock, start } = setUp()
    await start()
    await upstreams.stop()
    expect(clock.sleeping).toBe(0)
  })

  it('connects for real: to a service, to nobody, and to a name that does not exist', async () => {
    const server = createServer((socket) => socket.destroy())
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo
    const upstreams = new UpstreamCheck({
      timings: { intervalMs: 20, connectMs: 500 },
      clock: systemClock,
      onChange: () => {},
    })
    onTestFinished(() => upstreams.stop())
    upstreams.watch('up', { host: 'localhost', port })
    upstreams.watch('down', { host: '127.0.0.1', port: 1 })
    upstreams.watch('nowhere', { host: 'no-such-name.invalid', port: 1 })
    upstreams.start()
    await eventually(() => {
      const states = ['up', 'down', 'nowhere'].map((key) => upstreams.stateOf(key))
      expect(states).toEqual(['up', 'down', 'down'])
    })
  })
})

import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  type UpstreamAnswer,
  UpstreamCheck,
  type UpstreamCheckOptions,
} from '../../../src/agent/upstreams/upstream-check.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const TARGET = { host: 'localhost', port: 1 }

function setUp(options: Partial<UpstreamCheckOptions> = {}) {
  const clock = new ManualClock()
  let answer: UpstreamAnswer = 'connected'
  let checks = 0
  const asked: (string | undefined)[] = []
  let changes = 0
  const upstreams = new UpstreamCheck({
    timings: { intervalMs: 10_000, maxIntervalMs: 300_000, connectMs: 100 },
    clock,
    ask: async ({ http }) => {
      checks += 1
      asked.push(http && `${http.method} ${http.path}`)
      return answer
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
    asked,
    setUp: (isUp: boolean) => {
      answer = isUp ? 'connected' : 'failed'
    },
    setAnswer: (next: UpstreamAnswer) => {
      answer = next
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
    const ask = () => new Promise<UpstreamAnswer>((resolve) => tried.push(() => resolve('failed')))
    const { upstreams, start } = setUp({ ask })
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
      ask: async () => {
        open += 1
        most = Math.max(most, open)
        await new Promise((resolve) => setImmediate(resolve))
        open -= 1
        return 'connected'
      },
    })
    for (let port = 1; port <= 100; port += 1) upstreams.watch(`a:${port}`, { host: 'a', port })
    await start()
    await eventually(() => expect(upstreams.stateOf('a:100')).toBe('up'))
    expect(most).toBe(16)
  })

  it('asks a service less and less often while it is up, and soon again when it is not', async () => {
    const { upstreams, clock, start, checks, setUp: set } = setUp()
    upstreams.watch('a', TARGET)
    await start()
    await clock.advance(3_600_000)
    // 10, 20, 40 … 300 s, then every 300 s.
    expect(checks()).toBeGreaterThanOrEqual(14)
    expect(checks()).toBeLessThanOrEqual(18)
    set(false)
    await clock.advance(302_000)
    expect(upstreams.stateOf('a')).toBe('down')
    const before = checks()
    await clock.advance(60_000)
    expect(checks() - before).toBe(6)
  })

  it('checks a service when its state is asked, and knows 2 s later that it is down', async () => {
    const { upstreams, clock, start, checks, setUp: set } = setUp()
    upstreams.watch('a', TARGET)
    await start()
    // The last check was at 310 s, and the next is due at 610 s.
    await clock.advance(400_000)
    const before = checks()
    set(false)
    upstreams.refresh()
    await clock.advance(0)
    expect([checks(), upstreams.stateOf('a')]).toEqual([before + 1, 'up'])
    upstreams.refresh()
    await clock.advance(0)
    await clock.advance(1_999)
    expect(checks()).toBe(before + 1)
    await clock.advance(1)
    expect([checks(), upstreams.stateOf('a')]).toEqual([before + 2, 'down'])
  })

  it('checks once per interval, however often the states are asked', async () => {
    const { upstreams, clock, start, checks } = setUp()
    upstreams.watch('a', TARGET)
    upstreams.watch('off', TARGET, { health: 'off', http2: false, verify_tls: true })
    await start()
    for (let second = 0; second < 60; second += 1) {
      upstreams.refresh()
      await clock.advance(0)
      await clock.advance(1_000)
    }
    expect(checks()).toBe(6)
    // Questions do not make later checks less frequent: the pause after the last check is 20 s.
    await clock.advance(10_000)
    expect(checks()).toBe(7)
  })

  it('believes a report about a busy service, also when its state is asked', async () => {
    const { upstreams, clock, start, checks, setUp: set } = setUp()
    upstreams.watch('a', TARGET)
    await start()
    set(false)
    upstreams.told('a', 'crowded')
    await clock.advance(59_000)
    upstreams.refresh()
    await clock.advance(0)
    expect([checks(), upstreams.stateOf('a')]).toEqual([1, 'busy'])
    upstreams.told('a', 'answered')
    await clock.advance(10_000)
    upstreams.refresh()
    await clock.advance(0)
    expect(checks()).toBe(2)
  })

  it('wakes up once for many services', async () => {
    const { upstreams, clock, start, checks } = setUp()
    for (let n = 0; n < 200; n += 1) upstreams.watch(`s${n}`, TARGET)
    await start()
    const first = checks()
    expect(first).toBe(200)
    await clock.advance(9_999)
    expect([checks(), clock.sleeping]).toEqual([200, 1])
  })

  it('never asks a service that is not to be asked', async () => {
    const { upstreams, clock, start, checks } = setUp()
    upstreams.watch('a', TARGET, { health: 'off', http2: false, verify_tls: true })
    await start()
    upstreams.told('a', 'failed')
    await clock.advance(600_000)
    expect([checks(), upstreams.stateOf('a')]).toEqual([0, 'down'])
    upstreams.told('a', 'answered')
    expect(upstreams.stateOf('a')).toBe('up')
  })

  it('asks for the path that has to answer', async () => {
    const { upstreams, start, asked } = setUp()
    upstreams.watch('a', TARGET, { health: '/healthz', http2: false, verify_tls: true })
    upstreams.watch('b', TARGET, { health: 'off', http2: true, verify_tls: true })
    upstreams.watch('c', TARGET)
    await start()
    expect(asked).toEqual(['GET /healthz', undefined])
  })

  describe('told what visitors got', () => {
    it.each([
      ['garbled', 'garbage'],
      ['hung', 'slow'],
    ] as const)('believes it over a connection: %s', async (event, state) => {
      const { upstreams, clock, start, asked } = setUp()
      upstreams.watch('a', TARGET)
      await start()
      upstreams.told('a', event)
      expect(upstreams.stateOf('a')).toBe(state)
      await clock.advance(29_000)
      expect([asked, upstreams.stateOf('a')]).toEqual([[undefined], state])
      await clock.advance(2_000)
      expect([asked[1], upstreams.stateOf('a')]).toEqual(['HEAD /', state])
    })

    it('takes it back when the service answers, or visitors get answers', async () => {
      const { upstreams, clock, start, setAnswer } = setUp()
      upstreams.watch('a', TARGET)
      upstreams.watch('b', TARGET)
      await start()
      for (const key of ['a', 'b']) upstreams.told(key, 'garbled')
      upstreams.told('b', 'answered')
      expect(upstreams.stateOf('b')).toBe('up')
      setAnswer('answered')
      await clock.advance(31_000)
      expect(upstreams.stateOf('a')).toBe('up')
    })

    it('looks itself, at once and once, when they could not connect', async () => {
      const { upstreams, clock, start, setUp: set } = setUp()
      upstreams.watch('a', TARGET)
      await start()
      await clock.advance(1_000_000)
      set(false)
      upstreams.told('a', 'failed')
      await clock.advance(0)
      // Their failure and this check are two, as many as decide.
      expect(upstreams.stateOf('a')).toBe('down')
    })

    it('knows nothing of a service that no tunnel has', async () => {
      const { upstreams, start } = setUp()
      await start()
      upstreams.told('a', 'garbled')
      expect(upstreams.stateOf('a')).toBe('unknown')
    })
  })

  it('does not blame a service that it has no descriptor to ask with', async () => {
    let exhausted = 0
    const { upstreams, clock, start, setAnswer } = setUp({
      onExhausted: () => {
        exhausted += 1
      },
    })
    upstreams.watch('a', TARGET)
    await start()
    setAnswer('exhausted')
    await clock.advance(60_000)
    expect(upstreams.stateOf('a')).toBe('up')
    expect(exhausted).toBeGreaterThan(1)
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
      timings: { intervalMs: 20, maxIntervalMs: 40, connectMs: 500 },
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
      const flaws = ['up', 'down', 'nowhere'].map((key) => upstreams.flawOf(key))
      expect(flaws).toEqual([undefined, undefined, 'unresolved'])
    })
  })
})

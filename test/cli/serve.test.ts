import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { EXIT_RESTART_ME, type Served, serve } from '../../src/cli/serve.ts'
import { captureLog } from '../helpers/captured-log.ts'

/** A service whose last part closes when it is told to. */
function begin() {
  const { log, lines } = captureLog()
  const stop = new AbortController()
  const events = { broken: createDeferred<string>(), left: createDeferred<number>() }
  const bereft = createDeferred<string>()
  const closing = createDeferred<void>()
  const closed = createDeferred<void>()
  const order: string[] = []
  const run = (outcome?: Error) =>
    serve({
      log,
      stop: stop.signal,
      start: async (closer): Promise<Served> => {
        closer.own('first', undefined, () => void order.push('first'))
        closer.own('last', undefined, async () => {
          order.push('last')
          closing.resolve()
          await closed.promise
        })
        if (outcome) throw outcome
        return {
          broken: events.broken.promise,
          left: events.left.promise,
          bereft: bereft.promise,
        }
      },
    })
  const told = () => lines.filter(({ level }) => level === 'fatal').map(({ reason }) => reason)
  return { run, stop, events, bereft, closing, closed, order, told }
}

describe('a service that runs', () => {
  let before: typeof process.exitCode
  beforeEach(() => {
    before = process.exitCode
    process.exitCode = 0
  })
  afterEach(() => {
    process.exitCode = before
  })

  it('ends by a stop, the last part first', async () => {
    const { run, stop, closed, order, told } = begin()
    const running = run()
    closed.resolve()
    stop.abort('SIGTERM')
    await running
    expect([order, told(), process.exitCode]).toEqual([['last', 'first'], [], 0])
  })

  it('asks for another process when this one is of no use any more', async () => {
    const { run, events, closed, order, told } = begin()
    closed.resolve()
    events.broken.resolve('the SDK hangs')
    await run()
    expect(order).toEqual(['last', 'first'])
    expect([told(), process.exitCode]).toEqual([['the SDK hangs'], EXIT_RESTART_ME])
  })

  it.each([
    ['asks for another one when that which took over dies first', false],
    ['misses nobody where both were told to stop', true],
  ])('%s', async (_what, isStopped) => {
    const { run, stop, events, bereft, closing, closed, told } = begin()
    const running = run()
    events.left.resolve(4242)
    await closing.promise
    if (isStopped) stop.abort('SIGTERM')
    bereft.resolve('it died')
    closed.resolve()
    await running
    expect([told(), process.exitCode]).toEqual(isStopped ? [[], 0] : [['it died'], EXIT_RESTART_ME])
  })

  it('says why it did not start, unless it was stopped meanwhile, and closes what it had opened', async () => {
    for (const isStopped of [false, true]) {
      const { run, stop, closed, order } = begin()
      closed.resolve()
      if (isStopped) stop.abort('SIGTERM')
      const running = run(new Error('the port is taken'))
      if (isStopped) await running
      else await expect(running).rejects.toThrow('the port is taken')
      expect(order).toEqual(['last', 'first'])
    }
  })
})

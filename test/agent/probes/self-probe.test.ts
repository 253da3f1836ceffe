import { describe, expect, it, onTestFinished } from 'vitest'
import type { PublicAnswer } from '../../../src/agent/probes/public-request.ts'
import { type Reach, reachProblem } from '../../../src/agent/probes/reach.ts'
import { PROBE_PATH, SelfProbe } from '../../../src/agent/probes/self-probe.ts'
import { ServiceTime } from '../../../src/agent/probes/service-time.ts'
import type { Problem } from '../../../src/agent/problem.ts'
import { DEFAULT_TIMINGS } from '../../../src/agent/timings.ts'
import { DeadlineError } from '../../../src/base/deadline.ts'
import { createDeferred } from '../../../src/base/deferred.ts'
import type { ListenAddress } from '../../../src/base/listen-address.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

const TIMINGS = DEFAULT_TIMINGS.probe
/** A jitter of nothing. */
const MIDDLE = 0.5

function setUp(timings = TIMINGS, ingress?: ListenAddress) {
  const clock = new ManualClock()
  const serviceTime = new ServiceTime(clock)
  let serviceDate: number | undefined
  let dateAsked = 0
  const asked: URL[] = []
  const results: Reach[] = []
  let linkAnswers: (signal: AbortSignal) => Promise<boolean> = async () => false
  const rebuilds: Problem[] = []
  let url: string | undefined = 'https://agent.test:8443'
  let answer: (nonce: string) => Partial<PublicAnswer> | Promise<Partial<PublicAnswer>> = (
    nonce,
  ) => ({
    body: probe.answer(nonce) ?? 'nobody asked',
  })
  const probe = new SelfProbe({
    url: () => url,
    request: async (target) => {
      asked.push(target)
      const nonce = target.pathname.split('/').at(-1) ?? ''
      return {
        status: 200,
        body: '',
        date: undefined,
        serviceCode: undefined,
        ...(await answer(nonce)),
      }
    },
    timings,
    ingress,
    random: () => MIDDLE,
    clock,
    log: captureLog().log,
    watchLink: () => ({ answers: (signal) => linkAnswers(signal) }),
    serviceTime,
    serviceDate: async () => {
      dateAsked += 1
      return serviceDate
    },
    certificateEnd: async () => Date.UTC(2026, 10, 20),
    onResult: (reach) => results.push(reach),
    onRebuild: (problem) => rebuilds.push(problem),
  })
  onTestFinished(() => probe.stop())
  return {
    clock,
    probe,
    asked,
    results,
    rebuilds,
    start: async () => {
      probe.start()
      await clock.advance(0)
    },
    setUrl: (next: string | undefined) => {
      url = next
    },
    setAnswer: (next: typeof answer) => {
      answer = next
    },
    serviceTime,
    setServiceDate: (next: number | undefined) => {
      serviceDate = next
    },
    dateAsked: () => dateAsked,
    setLink: (next: typeof linkAnswers) => {
      linkAnswers = next
    },
  }
}

const fails = () => ({ status: 502, serviceCode: 'ERR_NGROK_8012' })

describe('SelfProbe', () => {
  it('fetches a fresh nonce through the public URL every 30 s', async () => {
    const { probe, clock, asked, results, start } = setUp()
    await start()
    expect(asked[0]?.href).toMatch(
      new RegExp(`^https://agent\\.test:8443${PROBE_PATH}/[0-9a-f]{32}$`),
    )
    expect(probe.reachable).toBe('yes')
    expect(probe.lastProbeAt).toBe(clock.now())
    await clock.advance(TIMINGS.intervalMs)
    expect(asked).toHaveLength(2)
    expect(asked[1]?.href).not.toBe(asked[0]?.href)
    expect(results).toEqual([{ name: 'reached' }, { name: 'reached' }])
  })

  it('looks only after a change where nobody wants it more often, and after a failure', async () => {
    const { probe, clock, asked, start, setAnswer } = setUp({ ...TIMINGS, intervalMs: Infinity })
    await start()
    await clock.advance(86_400_000)
    expect(asked).toHaveLength(1)
    setAnswer(fails)
    probe.kick()
    await clock.advance(0)
    expect(asked).toHaveLength(2)
    await clock.advance(TIMINGS.retryMs)
    expect(asked).toHaveLength(3)
  })

  it('answers a nonce only while it is on its way', async () => {
    const { probe, asked, start } = setUp()
    await start()
    const nonce = asked[0]?.pathname.split('/').at(-1) ?? ''
    expect(nonce).not.toBe('')
    expect(probe.answer(nonce)).toBeUndefined()
    expect(probe.answer('')).toBeUndefined()
  })

  it.each([
    ['the status', { status: 502, serviceCode: 'ERR_NGROK_8012' }, /answered 502 ERR_NGROK_8012$/],
    ['another page', { body: '<html>welcome' }, /answered 200$/],
  ])('does not believe %s', async (_what, given, detail) => {
    const { probe, results, setAnswer, start } = setUp()
    setAnswer(() => given)
    await start()
    expect(probe.reachable).toBe('no')
    expect(results[0]).toMatchObject({
      name: 'unreachable',
      problem: { reason: 'network', detail: expect.stringMatching(detail) },
    })
  })

  it.each([
    [new DeadlineError('x', 1), 'network'],
    [Object.assign(new Error(), { code: 'ECONNREFUSED' }), 'network'],
    [Object.assign(new Error(), { code: 'ENOTFOUND' }), 'dns'],
    [Object.assign(new Error(), { code: 'CERT_UNTRUSTED' }), 'tls'],
  ])('says why there was no answer: %s', async (error, reason) => {
    const { results, setAnswer, start } = setUp()
    setAnswer(() => Promise.reject(error))
    await start()
    expect(results[0]).toMatchObject({ name: 'unreachable', problem: { reason } })
  })

  it('asks for a new link after two failures in a row, and not after one', async () => {
    const { clock, rebuilds, setAnswer, start, probe } = setUp()
    setAnswer(fails)
    await start()
    expect(rebuilds).toHaveLength(0)
    await clock.advance(TIMINGS.retryMs)
    expect(rebuilds).toHaveLength(1)
    setAnswer((nonce) => ({ body: probe.answer(nonce) ?? '' }))
    await clock.advance(TIMINGS.retryMs)
    setAnswer(fails)
    await clock.advance(TIMINGS.intervalMs)
    expect(rebuilds).toHaveLength(1)
  })

  it('asks for new links less and less often when they do not help', async () => {
    const { clock, asked, rebuilds, setAnswer, start } = setUp()
    setAnswer(fails)
    await start()
    const probesPerRebuild: number[] = []
    for (let seen = 0; probesPerRebuild.length < 7; ) {
      const before = rebuilds.length
      await clock.advance(TIMINGS.retryMs)
      if (rebuilds.length === before) continue
      probesPerRebuild.push(asked.length - seen)
      seen = asked.length
    }
    expect(probesPerRebuild).toEqual([2, 4, 8, 16, 32, 64, 64])
  })

  it('asks after two failures again once it has come through', async () => {
    const { clock, rebuilds, setAnswer, start, probe } = setUp()
    setAnswer(fails)
    await start()
    await clock.advance(TIMINGS.retryMs)
    expect(rebuilds).toHaveLength(1)
    setAnswer((nonce) => ({ body: probe.answer(nonce) ?? '' }))
    await clock.advance(TIMINGS.retryMs)
    setAnswer(fails)
    await clock.advance(TIMINGS.intervalMs)
    await clock.advance(TIMINGS.retryMs)
    expect(rebuilds).toHaveLength(2)
  })

  const unanswered = (code: string) => () => Promise.reject(Object.assign(new Error(), { code }))

  it.each(['ECONNRESET', 'ENOTFOUND', 'CERT_UNTRUSTED'])(
    'cannot tell where the link answers and no probe does: %s',
    async (code) => {
      const { clock, asked, results, rebuilds, setAnswer, setLink, start, probe } = setUp()
      setAnswer(unanswered(code))
      setLink(async () => true)
      await start()
      for (let probes = 0; probes < 10; probes += 1) await clock.advance(TIMINGS.retryMs)
      expect(asked.length).toBeGreaterThan(8)
      expect(new Set(results.map(({ name }) => name))).toEqual(new Set(['unverified']))
      expect(probe.reachable).toBe('unverified')
      expect(rebuilds).toEqual([])
    },
  )

  it.each([
    [undefined, /In a closed network, set SVC_INGRESS_ADDR to .* such as 10\.0\.0\.1:443/],
    [
      { host: '10.0.0.2', port: 443 },
      /SVC_INGRESS_ADDR is 10\.0\.0\.2:443\. Start the gateway at that address, or set SVC_INGRESS_ADDR to another gateway/,
    ],
  ])('gives advice that fits SVC_INGRESS_ADDR %j', async (ingress, remedy) => {
    const { results, setAnswer, setLink, start } = setUp(TIMINGS, ingress)
    setAnswer(unanswered('ECONNREFUSED'))
    setLink(async () => true)
    await start()
    expect(results.at(-1)).toMatchObject({ problem: { remedy: expect.stringMatching(remedy) } })
  })

  it('asks for a new link at once where neither a probe nor the link is answered', async () => {
    const { results, rebuilds, setAnswer, start } = setUp()
    setAnswer(unanswered('ECONNRESET'))
    await start()
    expect(results.map(({ name }) => name)).toEqual(['unreachable'])
    expect(rebuilds).toHaveLength(1)
  })

  it('believes the service that its endpoint is not there, however the link answers', async () => {
    const { clock, results, rebuilds, setAnswer, setLink, start } = setUp()
    setAnswer(fails)
    setLink(async () => true)
    await start()
    await clock.advance(TIMINGS.retryMs)
    expect(results.map(({ name }) => name)).toEqual(['unreachable', 'unreachable'])
    expect(rebuilds).toHaveLength(1)
  })

  it('starts anew when the link is another one before it was asked', async () => {
    const { clock, asked, results, rebuilds, setAnswer, setLink, start, probe } = setUp()
    setAnswer(unanswered('ECONNRESET'))
    setLink(
      (signal) => new Promise((resolve) => signal.addEventListener('abort', () => resolve(false))),
    )
    await start()
    setAnswer((nonce) => ({ body: probe.answer(nonce) ?? '' }))
    probe.linkChanged()
    await clock.advance(0)
    expect(asked).toHaveLength(2)
    expect(results.map(({ name }) => name)).toEqual(['reached'])
    expect(rebuilds).toEqual([])
  })

  it('stops while it waits for what the link says', async () => {
    const { results, setAnswer, setLink, start, probe } = setUp()
    setAnswer(unanswered('ECONNRESET'))
    setLink(
      (signal) => new Promise((resolve) => signal.addEventListener('abort', () => resolve(false))),
    )
    await start()
    await probe.stop()
    expect(results).toEqual([])
  })

  it.each(['ERR_GATEWAY_SATURATED', 'ERR_GATEWAY_LINK_FULL'])(
    'tells a busy device from a broken link, and asks for no new one: %s',
    async (serviceCode) => {
      const { clock, results, rebuilds, setAnswer, start, probe } = setUp()
      setAnswer(() => ({ status: 503, serviceCode }))
      await start()
      for (let probes = 0; probes < 10; probes += 1) await clock.advance(TIMINGS.retryMs)
      expect(results.length).toBeGreaterThan(8)
      expect(new Set(results.map((reach) => reachProblem(reach)?.reason))).toEqual(
        new Set(['saturated']),
      )
      expect(probe.reachable).toBe('no')
      expect(reachProblem(probe.reach)?.serviceCode).toBe(serviceCode)
      expect(rebuilds).toEqual([])
    },
  )

  it('does not add up failures with a busy device between them', async () => {
    const { clock, rebuilds, setAnswer, start } = setUp()
    const busy = () => ({ status: 503, serviceCode: 'ERR_GATEWAY_SATURATED' })
    setAnswer(fails)
    await start()
    for (const answer of [busy, fails, busy, fails]) {
      setAnswer(answer)
      await clock.advance(TIMINGS.retryMs)
    }
    expect(rebuilds).toEqual([])
    await clock.advance(TIMINGS.retryMs)
    expect(rebuilds).toHaveLength(1)
  })

  it('waits while there is nothing to reach, and probes as soon as there is', async () => {
    const { probe, clock, asked, setUrl, start } = setUp()
    setUrl(undefined)
    await start()
    await clock.advance(600_000)
    expect(asked).toEqual([])
    expect(probe.reachable).toBe('unknown')
    setUrl('https://agent.test')
    probe.kick()
    await clock.advance(0)
    expect(asked).toHaveLength(1)
  })

  it('does not count an answer that comes when the endpoint is gone', async () => {
    const { probe, results, setUrl, setAnswer, start } = setUp()
    setAnswer(() => {
      setUrl(undefined)
      return fails()
    })
    await start()
    expect(results).toEqual([])
    expect(probe.reachable).toBe('unknown')
  })

  it('takes a failure back when there is nothing left to reach', async () => {
    const { probe, results, setAnswer, start } = setUp()
    setAnswer(fails)
    await start()
    probe.forget()
    expect(probe.reachable).toBe('unknown')
    expect(results.at(-1)).toEqual({ name: 'unknown' })
    probe.forget()
    expect(results).toHaveLength(2)
  })

  it('does not count an answer that comes when it stops', async () => {
    const { probe, results, setAnswer, start } = setUp()
    const answered = createDeferred<Partial<PublicAnswer>>()
    setAnswer(() => answered.promise)
    await start()
    const stopped = probe.stop()
    answered.resolve(fails())
    await stopped
    expect(results).toEqual([])
  })

  it('reads the time of the service off the answer', async () => {
    const { probe, clock, serviceTime, setAnswer, start } = setUp()
    setAnswer((nonce) => ({ body: probe.answer(nonce) ?? '', date: clock.now() - 400_000 }))
    await start()
    expect(serviceTime.skewMs).toBe(400_000)
  })

  describe('a certificate of another time', () => {
    const DAY = 86_400_000
    const refuse = (code: string) => () => Promise.reject(Object.assign(new Error(), { code }))

    it.each([
      ['CERT_HAS_EXPIRED', 400 * DAY],
      ['CERT_NOT_YET_VALID', -400 * DAY],
    ])('is blamed on a clock that was set: %s', async (code, jump) => {
      const { probe, clock, rebuilds, setAnswer, start, results } = setUp()
      setAnswer((nonce) => ({ body: probe.answer(nonce) ?? '', date: clock.now() }))
      await start()
      clock.stepWall(jump)
      setAnswer(refuse(code))
      probe.kick()
      await clock.advance(TIMINGS.retryMs)
      expect(results.at(-1)).toMatchObject({ name: 'misdated', problem: { reason: 'clock' } })
      expect(rebuilds).toEqual([])
    })

    it('is blamed on a clock that the service says is wrong, before it ever answered', async () => {
      const { clock, setAnswer, setServiceDate, start, results } = setUp()
      setAnswer(refuse('CERT_NOT_YET_VALID'))
      setServiceDate(clock.now() + 61_000)
      await start()
      expect(results.at(-1)).toMatchObject({ name: 'misdated' })
    })

    it('is blamed on the certificate where the clocks agree', async () => {
      const { clock, setAnswer, setServiceDate, start, results, rebuilds } = setUp()
      setAnswer(refuse('CERT_HAS_EXPIRED'))
      setServiceDate(clock.now() + 60_000)
      await start()
      expect(results.at(-1)).toMatchObject({
        name: 'expired',
        problem: {
          reason: 'tls',
          detail: "the gateway's certificate has expired: https://agent.test:8443, on 2026-11-20",
          remedy: expect.stringMatching(/^Renew the certificate at the gateway/),
        },
      })
      expect(rebuilds).toEqual([])
    })

    it('is not sure where nobody tells the time', async () => {
      const { setAnswer, start, results } = setUp()
      setAnswer(refuse('CERT_HAS_EXPIRED'))
      await start()
      expect(results.at(-1)).toMatchObject({
        name: 'expired',
        problem: { remedy: expect.stringMatching(/^Check the clock of the device/) },
      })
    })

    it('asks for no date where something else is wrong', async () => {
      const { setAnswer, start, dateAsked } = setUp()
      setAnswer(refuse('ERR_TLS_CERT_ALTNAME_INVALID'))
      await start()
      expect(dateAsked()).toBe(0)
    })
  })
})

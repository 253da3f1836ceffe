import { describe, expect, it } from 'vitest'
import { onRequest, PolicyBench, replyOf } from '../../helpers/policy-exchange.ts'

const bench = (changes: Record<string, unknown> = {}) =>
  new PolicyBench(
    onRequest('circuit-breaker', {
      error_threshold: 0.5,
      volume_threshold: 4,
      window_duration: '10s',
      tripped_duration: '20s',
      ...changes,
    }),
  )

/** One request, and how the upstream did; undefined for no valid answer. */
async function ask(policy: PolicyBench, status: number | undefined): Promise<number> {
  const { outcome, exchange } = await policy.request()
  if (outcome.kind === 'respond') return outcome.reply.status
  exchange.upstreamEnded(status)
  return 200
}

async function trip(policy: PolicyBench): Promise<void> {
  for (let call = 0; call < 4; call += 1) expect(await ask(policy, 500)).toBe(200)
}

describe('circuit-breaker', () => {
  it('opens when enough answers of the upstream are errors', async () => {
    const policy = bench()
    for (const status of [200, 500, 404]) expect(await ask(policy, status)).toBe(200)
    expect(await ask(policy, 503)).toBe(200)
    const { outcome } = await policy.request()
    const reply = replyOf(outcome)
    expect(reply).toMatchObject({ status: 503, errorCode: 'ERR_NGROK_3202' })
    expect(reply.headers.get('retry-after')).toBe('20')
  })

  it('stays closed below the volume', async () => {
    const policy = bench()
    for (let call = 0; call < 3; call += 1) await ask(policy, 500)
    expect(await ask(policy, 200)).toBe(200)
  })

  it('stays closed below the share of errors', async () => {
    const policy = bench()
    for (const status of [200, 200, 500, 200, 200, 500]) expect(await ask(policy, status)).toBe(200)
    expect(await ask(policy, 200)).toBe(200)
  })

  it('takes no answer for an error, and 4xx for an answer', async () => {
    const policy = bench()
    for (let call = 0; call < 4; call += 1) await ask(policy, 404)
    expect(await ask(policy, 200)).toBe(200)
    const broken = bench()
    for (let call = 0; call < 4; call += 1) await ask(broken, undefined)
    expect(await ask(broken, 200)).toBe(503)
  })

  it('forgets what is older than its window', async () => {
    const policy = bench()
    for (let call = 0; call < 3; call += 1) await ask(policy, 500)
    await policy.clock.advance(10_000)
    await ask(policy, 500)
    expect(await ask(policy, 200)).toBe(200)
  })

  it('counts over its window, slice by slice', async () => {
    const policy = bench()
    for (let call = 0; call < 4; call += 1) {
      await ask(policy, 500)
      await policy.clock.advance(2_000)
    }
    expect(await ask(policy, 200)).toBe(503)
  })

  it('lets one request through after a while, and closes when that goes well', async () => {
    const policy = bench()
    await trip(policy)
    await policy.clock.advance(19_999)
    expect(await ask(policy, 200)).toBe(503)
    await policy.clock.advance(1)
    const probe = await policy.request()
    expect(probe.outcome.kind).toBe('continue')
    expect(await ask(policy, 200)).toBe(503)
    probe.exchange.upstreamEnded(200)
    for (let call = 0; call < 10; call += 1) expect(await ask(policy, 200)).toBe(200)
  })

  it('stays open when the one request fails, and lets the next one through after a while', async () => {
    const policy = bench()
    await trip(policy)
    await policy.clock.advance(20_000)
    expect(await ask(policy, 500)).toBe(200)
    expect(await ask(policy, 200)).toBe(503)
    await policy.clock.advance(20_000)
    expect(await ask(policy, 200)).toBe(200)
    expect(await ask(policy, 200)).toBe(200)
  })

  it('lets another one through when the first is never heard of again', async () => {
    const policy = bench()
    await trip(policy)
    await policy.clock.advance(20_000)
    await policy.request()
    await policy.clock.advance(20_000)
    expect(await ask(policy, 200)).toBe(200)
  })

  it('is not opened by requests from before', async () => {
    const policy = bench()
    const early = await Promise.all([policy.request(), policy.request(), policy.request()])
    await trip(policy)
    await policy.clock.advance(20_000)
    expect(await ask(policy, 200)).toBe(200)
    for (const { exchange } of early) exchange.upstreamEnded(500)
    expect(await ask(policy, 200)).toBe(200)
  })

  it('never opens with enforce: false', async () => {
    const policy = bench({ enforce: false })
    for (let call = 0; call < 20; call += 1) expect(await ask(policy, 500)).toBe(200)
  })

  it('has defaults of ten requests, ten seconds and one half', async () => {
    const policy = new PolicyBench(onRequest('circuit-breaker'))
    for (let call = 0; call < 10; call += 1)
      expect(await ask(policy, call % 2 ? 500 : 200)).toBe(200)
    expect(await ask(policy, 200)).toBe(503)
    await policy.clock.advance(10_000)
    expect(await ask(policy, 200)).toBe(200)
  })
})

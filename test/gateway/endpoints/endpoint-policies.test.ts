import { describe, expect, it } from 'vitest'
import {
  type AuthoredPlace,
  EndpointPolicies,
  problemsText,
} from '../../../src/gateway/endpoints/endpoint-policies.ts'
import { PolicyError } from '../../../src/policy/document/problem.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { ONE_PER_MINUTE } from '../../helpers/one-per-minute.ts'
import { createExchange, onRequest } from '../../helpers/policy-exchange.ts'

const place = (host: string): AuthoredPlace => ({
  protocol: 'https',
  host,
  ownerId: null,
  credentialId: null,
})

const RULES = [{ actions: [{ type: 'deny' }] }]

function compile(host: string, policy: object): string {
  const policies = new EndpointPolicies({ clock: new ManualClock(), log: captureLog().log })
  try {
    policies.compile(JSON.stringify(policy), place(host))
    return 'compiled'
  } catch (error) {
    return problemsText(error as PolicyError)
  }
}

describe('the counters of a policy', () => {
  it('go on at the next endpoint of the account on that host, and at nobody else’s', async () => {
    const policies = new EndpointPolicies({ clock: new ManualClock(), log: captureLog().log })
    const place: AuthoredPlace = {
      protocol: 'https',
      host: 'cam.internal',
      ownerId: 'bot_a',
      credentialId: null,
    }
    const statusAt = async (at: AuthoredPlace) => {
      const outcome = await policies.compile(ONE_PER_MINUTE, at).onHttpRequest(createExchange())
      return outcome.kind === 'respond' && outcome.reply.status
    }
    const first = policies.compile(ONE_PER_MINUTE, place)
    await first.onHttpRequest(createExchange())
    policies.remember(place, first)
    expect(await statusAt({ ...place, ownerId: 'bot_b' })).toBe(200)
    expect(await statusAt({ ...place, ownerId: null })).toBe(200)
    expect(await statusAt(place)).toBe(429)
  })

  it('are forgotten of the account that has most, the oldest first', async () => {
    const policies = new EndpointPolicies({ clock: new ManualClock(), log: captureLog().log })
    const used = async (at: AuthoredPlace) => {
      const policy = policies.compile(ONE_PER_MINUTE, at)
      await policy.onHttpRequest(createExchange())
      policies.remember(at, policy)
    }
    const statusAt = async (at: AuthoredPlace) => {
      const outcome = await policies.compile(ONE_PER_MINUTE, at).onHttpRequest(createExchange())
      return outcome.kind === 'respond' && outcome.reply.status
    }
    const calm = { ...place('cam.a.test'), ownerId: 'bot_a' }
    const busy = (at: number) => ({ ...place(`${at}.b.test`), ownerId: 'bot_b' })
    await used(calm)
    await used(busy(0))
    await used(busy(1))
    const unused = policies.compile(ONE_PER_MINUTE, busy(2))
    for (let at = 2; at < 4_096; at += 1) policies.remember(busy(at), unused)
    const [first, second] = [await statusAt(busy(0)), await statusAt(busy(1))]
    expect([await statusAt(calm), first, second]).toEqual([429, 200, 429])
  })
})

describe('a policy with many limits', () => {
  it('takes the places of as many: their memory is bounded', () => {
    const policies = new EndpointPolicies({ clock: new ManualClock(), log: captureLog().log })
    const limits = Array.from({ length: 100 }, (_, at) => ({
      type: 'rate-limit',
      config: {
        ...{ name: `limit ${at}`, algorithm: 'sliding_window', capacity: 1, rate: '60s' },
        bucket_key: ['conn.client_ip'],
      },
    }))
    const text = JSON.stringify({
      on_http_request: [{ actions: limits.slice(50) }, { actions: limits.slice(0, 50) }],
    })
    const policy = policies.compile(text, place('many.site.test'))
    expect(policy.states.size).toBe(100)
    for (let at = 0; at < 100; at += 1) policies.remember(place(`${at}.site.test`), policy)
    expect([...policies.remembered()]).toHaveLength(40)
    // The same again is no more.
    policies.remember(place('99.site.test'), policy)
    expect([...policies.remembered()]).toHaveLength(40)
  })
})

describe('a policy that counts nothing', () => {
  it('makes no counters forgotten but those that it has replaced', async () => {
    const policies = new EndpointPolicies({ clock: new ManualClock(), log: captureLog().log })
    const used = policies.compile(ONE_PER_MINUTE, place('cam.site.test'))
    await used.onHttpRequest(createExchange())
    policies.remember(place('cam.site.test'), used)
    const none = policies.compile(null, place('cam.site.test'))
    for (let at = 0; at < 5_000; at += 1) policies.remember(place(`${at}.site.test`), none)
    expect(policies.last(place('cam.site.test'))?.states).toBe(used.states)
    policies.remember(place('cam.site.test'), none)
    expect(policies.last(place('cam.site.test'))).toBeUndefined()
    expect([...policies.remembered()]).toEqual([])
  })
})

describe('the policy of an internal endpoint', () => {
  it('has no rules for connections, which it never gets', () => {
    const text = compile('cam.internal', { on_tcp_connect: RULES })
    expect(text).toContain('/on_tcp_connect: An internal HTTP endpoint has no visitor connections')
    expect(text).toContain('(ERR_NGROK_2262)')
  })

  it.each([
    ['cam.internal', { on_tcp_connect: [], on_http_request: RULES }],
    ['cam.site.test', { on_tcp_connect: RULES }],
  ])('is good at %s as %j', (host, policy) => {
    expect(compile(host, policy)).toBe('compiled')
  })
})

describe('a policy that is compiled in turns', () => {
  const limited = JSON.stringify(
    onRequest('rate-limit', {
      name: 'one',
      algorithm: 'sliding_window',
      capacity: 1,
      rate: '60s',
      bucket_key: ['conn.client_ip'],
    }),
  )

  it('goes on with the counters of what was the last one when it is done', async () => {
    const policies = new EndpointPolicies({ clock: new ManualClock(), log: captureLog().log })
    const compiling = policies.compileInTurns(limited, place('cam.site.test'))
    // The endpoint that was online goes offline meanwhile.
    const last = policies.compile(limited, place('cam.site.test'))
    void last.onHttpRequest(createExchange())
    policies.remember(place('cam.site.test'), last)
    const next = await compiling
    expect((await next.onHttpRequest(createExchange())).kind).toBe('respond')
  })

  it('is refused as any other', async () => {
    const policies = new EndpointPolicies({ clock: new ManualClock(), log: captureLog().log })
    const text = JSON.stringify({ on_tcp_connect: RULES })
    await expect(policies.compileInTurns(text, place('cam.internal'))).rejects.toThrow(PolicyError)
    await expect(policies.compileInTurns('[', place('cam.site.test'))).rejects.toThrow(PolicyError)
  })
})

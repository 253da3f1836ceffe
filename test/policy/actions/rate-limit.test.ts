// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { PolicyError } from '../../../src/policy/document/problem.ts'
import { LimiterTables } from '../../../src/policy/limit/limiter-tables.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import {
  type createExchange,
  type ExchangeParts,
  onRequest,
  onResponse,
  PolicyBench,
  replyOf,
} from '../../helpers/policy-exchange.ts'

const config = (changes: Record<string, unknown> = {}) => ({
  name: 'clients',
  algorithm: 'sliding_window',
  capacity: 3,
  rate: '60s',
  bucket_key: ['conn.client_ip'],
  ...changes,
})

const bench = (changes: Record<string, unknown> = {}) =>
  new PolicyBench(onRequest('rate-limit', config(changes)))

async function isAdmitted(policy: PolicyBench, parts?: ExchangeParts): Promise<boolean> {
  return (await policy.request(parts)).outcome.kind === 'continue'
}

async function admittedOf(
  policy: PolicyBench,
  count: number,
  parts?: ExchangeParts,
): Promise<number> {
  let admitted = 0
  for (let call = 0; call < count; call += 1) admitted += (await isAdmitted(policy, parts)) ? 1 : 0
  return admitted
}

function refusalOf(
  changes: Record<string, unknown>,
  phase: (type: string, config: unknown) => unknown = onRequest,
) {
  try {
    new PolicyBench(phase('rate-limit', config(changes)))
  } catch (error) {
    if (error instanceof PolicyError) {
      return error.problems.map(
        ({ code, message, pointer }) =>
          `${code} ${pointer.split('/').slice(6).join('/')}: ${message}`,
      )
    }
    throw error
  }
  return []
}

describe('the configuration of rate-limit', () => {
  it.each(['name', 'algorithm', 'capacity', 'rate', 'bucket_key'])('needs %s', (field) => {
    expect(refusalOf({ [field]: undefined })).toHaveLength(1)
  })

  it.each([
    [{ name: 'x'.repeat(1_023) }, undefined],
    [{ name: 'x'.repeat(1_024) }, 'ERR_NGROK_2221 name: name must have at most 1,023 characters.'],
    [{ algorithm: 'fixed_window' }, 'ERR_NGROK_2219 algorithm: algorithm must be sliding_window.'],
    [{ capacity: 1 }, undefined],
    [{ capacity: 2_000_000_000 }, undefined],
    [{ capacity: 0 }, 'ERR_NGROK_2215 capacity: capacity must be at least 1.'],
    [
      { capacity: 2_000_000_001 },
      'ERR_NGROK_2215 capacity: capacity must be at most 2,000,000,000.',
    ],
    [{ capacity: 1.5 }, 'ERR_NGROK_2204 capacity: capacity must be a whole number.'],
    [
      { capacity: '30' },
      'ERR_NGROK_2204 capacity: capacity must be a number. Write 30 without quotes.',
    ],
    [{ rate: '60s' }, undefined],
    [{ rate: '90s' }, undefined],
    [{ rate: '10m' }, undefined],
    [{ rate: '24h' }, undefined],
    [{ rate: '50s' }, 'ERR_NGROK_2215 rate: rate must be from 60s to 24h.'],
    [{ rate: '25h' }, 'ERR_NGROK_2215 rate: rate must be from 60s to 24h.'],
    [{ rate: '65s' }, 'ERR_NGROK_2225 rate: rate must be a multiple of ten seconds.'],
    [{ rate: 'a minute' }, 'ERR_NGROK_2225 rate: A duration must be text such as 90s, 10m or 1h.'],
    [
      { rate: 60 },
      'ERR_NGROK_2204 rate: A duration must be text such as 90s, 10m or 1h. Write 60s.',
    ],
    [{ bucket_key: Array(10).fill('conn.client_ip') }, undefined],
    [
      { bucket_key: Array(11).fill('conn.client_ip') },
      'ERR_NGROK_2218 bucket_key: bucket_key must have at most 10 items.',
    ],
    [{ bucket_key: [] }, 'ERR_NGROK_2223 bucket_key: bucket_key must have at least 1 item.'],
    [
      { bucket_key: 'conn.client_ip' },
      'ERR_NGROK_2204 bucket_key: bucket_key must be a list. Write [conn.client_ip].',
    ],
    [
      { window: '60s' },
      'ERR_NGROK_2204 window: window is not a field of this action. Did you mean rate?',
    ],
  ])('%j: %s', (changes, refusal) => {
    expect(refusalOf(changes)).toEqual(refusal === undefined ? [] : [refusal])
  })

  it('can stand in both directions of HTTP', () => {
    expect(refusalOf({}, onRequest)).toEqual([])
    expect(refusalOf({}, onResponse)).toEqual([])
  })
})

describe('elements of bucket_key', () => {
  const requests: readonly ExchangeParts[] = [
    { ip: '203.0.113.1', url: 'https://a.example/', headers: ['X-Key', 'one'] },
    { ip: '203.0.113.2', url: 'https://b.example/', headers: ['X-Key', 'two'] },
  ]

  it.each([
    'req.host',
    'conn.client_ip',
    "req.headers['x-key']",
    "getReqHeader('X-Key')",
    "req.headers['host']",
    "getReqHeader('X-Key')[0]",
    'conn.client_ip + req.url.path',
    "req.host == 'a.example' ? 'a' : 'others'",
    "req.headers['x-key'].map(v, v + '!')",
  ])('%s tells requests apart', async (element) => {
    const policy = bench({ capacity: 1, bucket_key: [element] })
    expect(await isAdmitted(policy, requests[0])).toBe(true)
    expect(await isAdmitted(policy, requests[0])).toBe(false)
    expect(await isAdmitted(policy, requests[1])).toBe(true)
  })

  it("'all' limits everybody together", async () => {
    const policy = bench({ capacity: 1, bucket_key: ["'all'"] })
    expect(await isAdmitted(policy, requests[0])).toBe(true)
    expect(await isAdmitted(policy, requests[1])).toBe(false)
  })

  it('give requests without the header one bucket', async () => {
    const policy = bench({ capacity: 1, bucket_key: ["req.headers['x-key']"] })
    expect(await isAdmitted(policy, { ip: '203.0.113.1' })).toBe(true)
    expect(await isAdmitted(policy, { ip: '203.0.113.2' })).toBe(false)
  })

  it('find headers in any case, and take a repeated one for a list', async () => {
    const policy = bench({ capacity: 1, bucket_key: ["req.headers['X-KEY']"] })
    expect(await isAdmitted(policy, { headers: ['x-key', 'a', 'X-Key', 'b'] })).toBe(true)
    expect(await isAdmitted(policy, { headers: ['X-Key', 'a, b'] })).toBe(false)
  })

  it('form one key together, in which no value can pass for another', async () => {
    const policy = bench({ capacity: 1, bucket_key: ["req.headers['a']", "req.headers['b']"] })
    expect(await isAdmitted(policy, { headers: ['a', 'x', 'b', 'y'] })).toBe(true)
    expect(await isAdmitted(policy, { headers: ['a', 'x', 'b', 'z'] })).toBe(true)
    expect(await isAdmitted(policy, { headers: ['a', 'x 1:y'] })).toBe(true)
    expect(await isAdmitted(policy, { headers: ['a', 'x', 'b', 'y'] })).toBe(false)
  })
})

describe('the evaluation of a bucket', () => {
  it('lets a request within the capacity go on to the next action', async () => {
    const policy = new PolicyBench({
      on_http_request: [
        {
          actions: [
            { type: 'rate-limit', config: config() },
            { type: 'add-headers', config: { headers: { 'x-next': 'ran' } } },
          ],
        },
      ],
    })
    const { outcome, exchange } = await policy.request()
    expect([outcome.kind, exchange.request?.headers.get('x-next')]).toEqual(['continue', 'ran'])
  })

  it('rejects a request over the capacity with 429', async () => {
    const policy = bench()
    expect(await admittedOf(policy, 3)).toBe(3)
    const { outcome } = await policy.request()
    expect(replyOf(outcome).status).toBe(429)
  })

  it('sets retry-after to the whole seconds after which a request passes', async () => {
    const policy = bench()
    await policy.request()
    await policy.clock.advance(20_500)
    await admittedOf(policy, 2)
    const reply = replyOf((await policy.request()).outcome)
    expect(reply.headers.get('retry-after')).toBe('40')
    await policy.clock.advance(39_000)
    const again = replyOf((await policy.request()).outcome)
    expect(again.headers.get('retry-after')).toBe('1')
    await policy.clock.advance(1_000)
    expect(await isAdmitted(policy)).toBe(true)
    expect(await isAdmitted(policy)).toBe(false)
  })

  it('counts only the requests that it admitted', async () => {
    const policy = bench()
    await admittedOf(policy, 3)
    for (let second = 0; second < 59; second += 1) {
      await policy.clock.advance(1_000)
      expect(await isAdmitted(policy)).toBe(false)
    }
    await policy.clock.advance(1_000)
    expect(await admittedOf(policy, 10)).toBe(3)
  })

  it('does not depend on the wall clock', async () => {
    const policy = bench()
    await admittedOf(policy, 3)
    policy.clock.stepWall(86_400_000)
    expect(await isAdmitted(policy)).toBe(false)
  })

  it('limits responses in the other direction', async () => {
    const policy = new PolicyBench(onResponse('rate-limit', config({ capacity: 1 })))
    expect((await policy.response()).outcome.kind).toBe('continue')
    expect(replyOf((await policy.response()).outcome).status).toBe(429)
  })

  it('is independent for each action', async () => {
    const policy = new PolicyBench({
      on_http_request: [
        {
          expressions: ["req.method == 'GET'"],
          actions: [{ type: 'rate-limit', config: config({ capacity: 1 }) }],
        },
        {
          expressions: ["req.method == 'PUT'"],
          actions: [{ type: 'rate-limit', config: config({ capacity: 1 }) }],
        },
      ],
    })
    expect(await admittedOf(policy, 2, { method: 'GET' })).toBe(1)
    expect(await admittedOf(policy, 2, { method: 'PUT' })).toBe(1)
  })

  it('never rejects with enforce: false', async () => {
    const policy = bench({ capacity: 1, enforce: false })
    expect(await admittedOf(policy, 5)).toBe(5)
  })
})

describe('a full table', () => {
  const limited = (maxKeys: number, changes: Record<string, unknown> = {}) => {
    const captured = captureLog()
    const clock = new ManualClock()
    const limits = new LimiterTables({ maxKeys, clock, log: captured.log })
    const source = onRequest(
      'rate-limit',
      config({ bucket_key: ["req.headers['x-key']"], ...changes }),
    )
    return { policy: new PolicyBench(source, { limits, clock }), limits, captured }
  }

  it('refuses nobody because of one address with ever new keys', async () => {
    const { policy, limits, captured } = limited(100)
    expect(captured.lines).toEqual([])
    const parts = (ip: string, key: string) => ({ ip, headers: ['x-key', key] })
    let flood = 0
    for (let key = 0; key < 500; key += 1) {
      flood += (await isAdmitted(policy, parts('203.0.113.1', `${key}`))) ? 1 : 0
    }
    expect(flood).toBe(20 + 3)
    let unlucky = 0
    for (let client = 2; client < 42; client += 1) {
      const before = limits.shared
      const admitted = await admittedOf(policy, 5, parts(`203.0.113.${client}`, `of ${client}`))
      expect(admitted).toBeLessThanOrEqual(3)
      if (limits.shared > before || admitted < 3) unlucky += 1
    }
    // By chance a newcomer is counted with the flood, or goes on with a bucket in which some of its
    // three admissions stand, one in some hundreds: never five of 40.
    expect(unlucky).toBeLessThan(5)
    expect(limits.shared).toBeGreaterThanOrEqual(480)
    expect(limits.sharedRefused).toBeGreaterThanOrEqual(477)
    expect(captured.lines).toMatchObject([
      { level: 'warn', endpoint: 'ep_1', limit: 'clients', client: '203.0.113.1', maxKeys: 100 },
    ])
  })

  it('is told of while every key has a bucket: not at all', async () => {
    const { policy, limits, captured } = limited(100)
    for (let key = 0; key < 20; key += 1) await policy.request({ headers: ['x-key', `${key}`] })
    for (let key = 0; key < 20; key += 1) await policy.request({ headers: ['x-key', `${key}`] })
    expect([limits.shared, captured.lines.length]).toEqual([0, 0])
  })
})

describe('results of rate-limit', () => {
  const resultOf = (exchange: ReturnType<typeof createExchange>) =>
    exchange.results.get('rate_limit')

  it('have the key, whether the request was limited, and no error', async () => {
    const policy = bench({ capacity: 1 })
    const none = { code: '', message: '' }
    expect(resultOf((await policy.request()).exchange)).toEqual({
      bucket_key: '203.0.113.9',
      limited: false,
      error: none,
    })
    expect(resultOf((await policy.request()).exchange)).toEqual({
      bucket_key: '203.0.113.9',
      limited: true,
      error: none,
    })
  })

  it('can be read by what follows, under both names', async () => {
    const policy = new PolicyBench({
      on_http_request: [
        { actions: [{ type: 'rate-limit', config: config({ capacity: 1, enforce: false }) }] },
        {
          expressions: ['actions.ngrok.rate_limit.limited', 'actions.svc.rate_limit.limited'],
          actions: [
            {
              type: 'custom-response',
              config: { status_code: 429, body: 'slow down, ${actions.svc.rate_limit.bucket_key}' },
            },
          ],
        },
      ],
    })
    expect(await isAdmitted(policy)).toBe(true)
    expect(replyOf((await policy.request()).outcome).body).toBe('slow down, 203.0.113.9')
  })

  it('reflect the last execution only', async () => {
    const policy = new PolicyBench({
      on_http_request: [
        {
          actions: [
            { type: 'rate-limit', config: config({ capacity: 1, enforce: false }) },
            { type: 'rate-limit', config: config({ capacity: 9, bucket_key: ['req.host'] }) },
          ],
        },
      ],
    })
    await policy.request()
    expect(resultOf((await policy.request()).exchange)).toMatchObject({
      bucket_key: 'device.example.com',
      limited: false,
    })
  })

  it('report an error of the invocation, which fails closed when the limit is enforced', async () => {
    const changes = { bucket_key: ["req.headers['x-none'][0]"] }
    const open = await bench({ ...changes, enforce: false }).request()
    expect(open.outcome.kind).toBe('continue')
    expect(resultOf(open.exchange)).toEqual({
      bucket_key: '',
      limited: false,
      error: {
        code: 'ERR_NGROK_2254',
        message: expect.stringContaining('the request has no header x-none'),
      },
    })
    const enforced = await bench(changes).request()
    expect(replyOf(enforced.outcome)).toMatchObject({ status: 500, errorCode: 'ERR_NGROK_2254' })
    expect(resultOf(enforced.exchange)).toMatchObject({ error: { code: 'ERR_NGROK_2254' } })
  })
})

describe('documented examples', () => {
  const example = (name: string) =>
    new PolicyBench(readFileSync(join(import.meta.dirname, '../fixtures/valid', name), 'utf8'))

  it('30 per minute and host: the 31st is limited, another host is not', async () => {
    const policy = example('rate-limit-by-host.yaml')
    expect(await admittedOf(policy, 31, { url: 'https://a.example/' })).toBe(30)
    expect(await isAdmitted(policy, { url: 'https://b.example/' })).toBe(true)
  })

  it('one path: only matching URLs are counted', async () => {
    const policy = example('rate-limit-one-path.json')
    expect(await admittedOf(policy, 50, { url: 'https://h/other' })).toBe(50)
    expect(await admittedOf(policy, 31, { url: 'https://h/api/specific_endpoint' })).toBe(30)
  })

  it('10 without a token and 100 with one', async () => {
    const policy = example('rate-limit-authenticated.yaml')
    expect(await admittedOf(policy, 120)).toBe(10)
    expect(await admittedOf(policy, 120, { headers: ['authorization', 'Bearer x'] })).toBe(100)
  })

  it('tiers by a header, in any case', async () => {
    const policy = example('rate-limit-tiers.yaml')
    expect(await admittedOf(policy, 20)).toBe(10)
    expect(await admittedOf(policy, 110, { headers: ['Tier', 'BRONZE'] })).toBe(100)
    expect(await admittedOf(policy, 1_010, { headers: ['TIER', 'Silver'] })).toBe(1_000)
  })

  it('the limit wins over a bad token in the same rule', async () => {
    const policy = example('rate-limit-then-jwt.yaml')
    for (let call = 0; call < 30; call += 1) {
      expect(replyOf((await policy.request({ headers: ['x-api-key', 'k'] })).outcome).status).toBe(
        401,
      )
    }
    const { outcome } = await policy.request({ headers: ['x-api-key', 'k'] })
    expect(replyOf(outcome).status).toBe(429)
  })

  it('an exempt category that nobody has here limits all', async () => {
    expect(await admittedOf(example('rate-limit-exempt-crawler.yaml'), 31)).toBe(30)
  })

  it('evaluation without enforcement, and an answer of its own', async () => {
    const policy = example('limited-but-let-pass.yaml')
    expect(await isAdmitted(policy)).toBe(true)
    const reply = replyOf((await policy.request()).outcome)
    expect([reply.status, JSON.parse(reply.body).error]).toEqual([429, ''])
  })

  it('either of two credentials', async () => {
    const policy = example('either-of-two-credentials.yaml')
    const basic = `Basic ${Buffer.from('admin:correct horse').toString('base64')}`
    expect(replyOf((await policy.request()).outcome).status).toBe(401)
    expect(await isAdmitted(policy, { ip: '10.1.2.3' })).toBe(true)
    expect(await isAdmitted(policy, { headers: ['Authorization', basic] })).toBe(true)
  })
})

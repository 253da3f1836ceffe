// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { describe, expect, it } from 'vitest'
import { FairScheduler } from '../../src/policy/limit/fair-scheduler.ts'
import { compilePolicyInTurns } from '../../src/policy/policy.ts'
import { manyExpressions } from '../helpers/policy-bombs.ts'
import {
  createExchange,
  onRequest,
  onResponse,
  PolicyBench,
  replyOf,
} from '../helpers/policy-exchange.ts'

const answer = (body: string) => ({ type: 'custom-response', config: { body } })
const setVar = (name: string, value: unknown) => ({
  type: 'set-vars',
  config: { vars: [{ [name]: value }] },
})
const addHeader = (value: string) => ({
  type: 'add-headers',
  config: { headers: { 'x-mark': value } },
})
const marks = (exchange: ReturnType<typeof createExchange>) =>
  exchange.request?.headers.all('x-mark')

describe('the rules of a phase', () => {
  it('run in order, each tested when it is reached', async () => {
    const bench = new PolicyBench({
      on_http_request: [
        { actions: [setVar('step', 1), addHeader('first')] },
        { expressions: ['vars.step == 1'], actions: [setVar('step', 2), addHeader('second')] },
        { expressions: ['vars.step == 1'], actions: [addHeader('never')] },
        { expressions: ['vars.step == 2'], actions: [addHeader('third')] },
      ],
    })
    const { exchange } = await bench.request()
    expect(marks(exchange)).toEqual(['first', 'second', 'third'])
  })

  it('always match without expressions', async () => {
    for (const expressions of [undefined, []]) {
      const { outcome } = await new PolicyBench({
        on_http_request: [{ ...(expressions && { expressions }), actions: [answer('yes')] }],
      }).request()
      expect(replyOf(outcome).body).toBe('yes')
    }
  })

  it('match when all expressions are true', async () => {
    const bench = new PolicyBench(
      onRequest('custom-response', { body: 'yes' }, [
        "req.method == 'GET'",
        "req.host == 'a.example'",
      ]),
    )
    expect((await bench.request({ url: 'https://a.example/' })).outcome.kind).toBe('respond')
    expect((await bench.request({ url: 'https://b.example/' })).outcome.kind).toBe('continue')
    expect((await bench.request({ url: 'https://a.example/', method: 'PUT' })).outcome.kind).toBe(
      'continue',
    )
  })

  it.each([
    ['deny', undefined],
    ['custom-response', { body: 'x' }],
    ['close-connection', undefined],
    ['redirect', { to: '/elsewhere' }],
  ])('end with %s: no later action or rule runs', async (type, config) => {
    const bench = new PolicyBench({
      on_http_request: [
        { actions: [{ type, ...(config && { config }) }, addHeader('late')] },
        { actions: [addHeader('later')] },
      ],
    })
    const { outcome, exchange } = await bench.request()
    expect(outcome.kind).not.toBe('continue')
    expect(marks(exchange)).toEqual([])
  })

  it('go on where they were after an action that had to wait', async () => {
    const bench = new PolicyBench({
      on_http_request: [
        {
          actions: [
            addHeader('before'),
            { type: 'verify-webhook', config: { provider: 'gitlab', secret: 's', enforce: false } },
            addHeader('after'),
          ],
        },
        { expressions: ['!actions.ngrok.verify_webhook.verified'], actions: [addHeader('next')] },
      ],
    })
    const { exchange } = await bench.request()
    expect(marks(exchange)).toEqual(['before', 'after', 'next'])
  })

  it('do not wait when nothing has to', () => {
    const { policy } = new PolicyBench(onRequest('deny'))
    expect(policy.onHttpRequest(createExchange())).not.toBeInstanceOf(Promise)
  })
})

describe('the phases of a policy', () => {
  it('can be asked for, so that empty ones cost nothing', () => {
    const { policy } = new PolicyBench({ on_http_request: [], on_http_response: [] })
    expect([policy.hasConnectRules, policy.hasRequestRules, policy.hasResponseRules]).toEqual([
      false,
      false,
      false,
    ])
    expect(new PolicyBench(onResponse('log', { metadata: {} })).policy.hasResponseRules).toBe(true)
  })

  it('have variables of their own, and share the results of actions', async () => {
    const bench = new PolicyBench({
      on_http_request: [{ actions: [setVar('a', 1), addHeader('sent')] }],
      on_http_response: [
        { actions: [setVar('a', '${actions.ngrok.add_headers.headers_added["x-mark"]}')] },
        { actions: [{ type: 'add-headers', config: { headers: { 'x-seen': '${vars.a}' } } }] },
      ],
    })
    const exchange = createExchange({ status: 200 })
    await bench.policy.onHttpRequest(exchange)
    await bench.policy.onHttpResponse(exchange)
    expect(exchange.response?.headers.get('x-seen')).toBe('sent')
  })

  it('run the response phase for custom-response in the request phase, and only for that', async () => {
    const custom = await new PolicyBench(onRequest('custom-response', { body: 'x' })).request()
    expect(custom.outcome).toMatchObject({ runsResponsePhase: true })
    for (const [type, config] of [
      ['deny', undefined],
      ['redirect', { to: '/x' }],
      ['restrict-ips', { allow: ['10.0.0.0/8'] }],
    ] as const) {
      const { outcome } = await new PolicyBench(onRequest(type, config)).request()
      expect(outcome).toMatchObject({ kind: 'respond', runsResponsePhase: false })
    }
  })
})

describe('a policy that fails while it runs', () => {
  const failing = "req.headers['x-none'][0] == 'secret'"

  it('answers 500 with ERR_NGROK_2254 instead of taking the rule for one that does not match', async () => {
    const bench = new PolicyBench({
      on_http_request: [
        { name: 'the guard', expressions: [failing], actions: [{ type: 'deny' }] },
        { actions: [addHeader('never')] },
      ],
    })
    const { outcome, exchange } = await bench.request()
    const reply = replyOf(outcome)
    expect(reply).toMatchObject({ status: 500, errorCode: 'ERR_NGROK_2254' })
    expect(reply.headers.get('ngrok-error-code')).toBe('ERR_NGROK_2254')
    expect(marks(exchange)).toEqual([])
    expect(bench.captured.lines).toEqual([
      expect.objectContaining({ rule: 'the guard', msg: 'policy failed for a request' }),
    ])
  })

  it('is logged as a warning once a minute, with the host', async () => {
    const bench = new PolicyBench({
      on_http_request: [{ expressions: [failing], actions: [{ type: 'deny' }] }],
      on_http_response: [
        { expressions: [failing], actions: [{ type: 'log', config: { metadata: {} } }] },
      ],
    })
    await bench.request()
    await bench.request()
    await bench.response()
    await bench.clock.advance(60_000)
    await bench.request()
    expect(bench.captured.lines.map(({ level }) => level)).toEqual(['warn', 'info', 'info', 'warn'])
    expect(bench.captured.lines[0]).toMatchObject({ host: 'device.example.com' })
  })

  it('answers 500 when an interpolation fails', async () => {
    const { outcome } = await new PolicyBench(
      onRequest('add-headers', { headers: { 'x-a': "${req.headers['x-none'][0]}" } }),
    ).request()
    expect(replyOf(outcome).status).toBe(500)
  })

  it('answers 500 in the place of the response', async () => {
    const { outcome } = await new PolicyBench({
      on_http_response: [
        { expressions: [failing], actions: [{ type: 'log', config: { metadata: {} } }] },
      ],
    }).response()
    expect(replyOf(outcome).status).toBe(500)
  })

  it('closes the connection in on_tcp_connect', async () => {
    const expressions = ["conn.tls.sni == 'x'"]
    const bench = new PolicyBench({
      on_tcp_connect: [{ expressions, actions: [{ type: 'deny' }] }],
    })
    expect(await bench.connect()).toEqual({ kind: 'close' })
  })

  it('answers 500 when an action breaks, and logs it as an error of ours', async () => {
    const bench = new PolicyBench(onRequest('verify-webhook', { provider: 'github', secret: 's' }))
    const exchange = createExchange()
    Object.defineProperty(exchange.request, 'readBody', {
      value: () => Promise.reject(new TypeError('broken')),
    })
    expect(replyOf(await bench.policy.onHttpRequest(exchange)).status).toBe(500)
    expect(bench.captured.lines).toEqual([expect.objectContaining({ level: 'error' })])
  })
})

describe('a policy that replaces another', () => {
  const limit = (name: string, capacity = 1) => ({
    type: 'rate-limit',
    config: {
      name,
      algorithm: 'sliding_window',
      capacity,
      rate: '60s',
      bucket_key: ['conn.client_ip'],
    },
  })
  const rules = (...actions: unknown[]) => ({
    on_http_request: actions.map((action) => ({ actions: [action] })),
  })

  async function statusAfter(first: unknown, second: unknown): Promise<number> {
    const bench = new PolicyBench(first)
    await bench.request()
    const next = new PolicyBench(second, { previous: bench.policy, clock: bench.clock })
    const { outcome } = await next.request()
    return outcome.kind === 'respond' ? outcome.reply.status : 200
  }

  it('takes over the counters of an action that is unchanged', async () => {
    expect(await statusAfter(rules(limit('a')), rules(limit('a')))).toBe(429)
  })

  it('takes them over when rules around the action change', async () => {
    const second = {
      on_http_request: [
        { actions: [addHeader('new')] },
        { name: 'renamed', expressions: ['true'], actions: [limit('a')] },
      ],
    }
    expect(await statusAfter(rules(limit('a')), second)).toBe(429)
  })

  it('starts anew for an action that is changed', async () => {
    expect(await statusAfter(rules(limit('a')), rules(limit('a', 2)))).toBe(200)
    expect(await statusAfter(rules(limit('a')), rules(limit('b')))).toBe(200)
  })

  it('keeps two equal actions apart', async () => {
    const bench = new PolicyBench(rules(limit('a', 2), limit('a', 2)))
    for (let call = 0; call < 2; call += 1) {
      expect((await bench.request()).outcome.kind).toBe('continue')
    }
    expect((await bench.request()).outcome.kind).toBe('respond')
  })

  it('shares nothing with a policy that it does not replace', async () => {
    const one = new PolicyBench(rules(limit('a')))
    const other = new PolicyBench(rules(limit('a')), { clock: one.clock })
    await one.request()
    expect((await other.request()).outcome.kind).toBe('continue')
  })
})

describe('a long policy', () => {
  const { clock, captured } = new PolicyBench(null)
  const nextRound = () => new Promise((resolve) => setImmediate(resolve))

  /** How many rounds of the event loop went by while it was compiled. */
  async function roundsOf(source: unknown): Promise<number> {
    let rounds = 0
    let isDone = false
    const compiled = compilePolicyInTurns(source, {
      clock,
      log: captured.log,
      lane: new FairScheduler(),
    }).finally(() => {
      isDone = true
    })
    while (!isDone) {
      await nextRound()
      rounds += 1
    }
    await compiled
    return rounds
  }

  it('lets others go on while it is compiled, every few hundred characters', async () => {
    const document = manyExpressions(1)
    const characters = JSON.stringify(document).length
    expect(await roundsOf(document)).toBeGreaterThan(characters / 2_000)
    expect(await roundsOf(JSON.stringify(document))).toBeGreaterThan(characters / 2_000)
  })

  it('lets others go on while its YAML is read', async () => {
    const yaml = `${'# a comment\n'.repeat(4_000)}on_http_request: []\n`
    expect(await roundsOf(yaml)).toBeGreaterThan(yaml.length / 2_000)
  })

  it('lets others go on between the interpolations of one action', async () => {
    const body = Array.from({ length: 150 }, (_, at) => `\${'${at} of many ' + req.host}`).join('')
    const document = onRequest('custom-response', { body })
    expect(await roundsOf(document)).toBeGreaterThan(2)
  })

  it('is refused where one action has more interpolations than can be compiled at once', () => {
    const body = '${req.host}'.repeat(201)
    expect(() => new PolicyBench(onRequest('custom-response', { body }))).toThrow(
      'The action has 201 interpolations; at most 200 are allowed.',
    )
  })

  it('is short where nobody has to wait', async () => {
    expect(await roundsOf(onRequest('deny'))).toBe(1)
  })
})

describe('a policy ends all traffic', () => {
  const forward = (config: object = {}) => ({
    type: 'forward-internal',
    config: { url: 'https://cam.internal', ...config },
  })
  const redirect = (config: object) => ({ type: 'redirect', config: { to: '/b', ...config } })
  const rule = (...actions: object[]) => [{ actions }]
  const when = (expression: string, ...actions: object[]) => [
    { expressions: [expression], actions },
  ]

  it.each([
    [true, 'it answers', { on_http_request: rule(answer('yes')) }],
    [true, 'it denies', { on_http_request: rule({ type: 'deny' }) }],
    [true, 'it closes each connection', { on_tcp_connect: rule({ type: 'close-connection' }) }],
    [true, 'it forwards', { on_http_request: rule(forward()) }],
    [true, 'it redirects everything', { on_http_request: rule(redirect({})) }],
    [true, 'its condition is true', { on_http_request: when('true', answer('yes')) }],
    [
      true,
      'a later rule catches the rest',
      { on_http_request: [...when("req.method == 'PUT'", forward()), ...rule(answer('no'))] },
    ],
    [
      true,
      'something follows that runs first',
      { on_http_request: rule(addHeader('first'), answer('yes')) },
    ],
    [false, 'it has no rules', {}],
    [false, 'it only changes what passes', { on_http_request: rule(addHeader('x')) }],
    [false, 'it answers some', { on_http_request: when("req.method == 'PUT'", answer('yes')) }],
    [false, 'its condition is false', { on_http_request: when('false', answer('yes')) }],
    [
      false,
      'it goes on when a device is offline',
      { on_http_request: rule(forward({ on_error: 'continue' })) },
    ],
    [
      false,
      'it redirects what looks like something',
      { on_http_request: rule(redirect({ from: '/a' })) },
    ],
    [false, 'it has only a say in responses', { on_http_response: rule(answer('yes')) }],
  ])('%s: %s', (expected, _name, document) => {
    expect(new PolicyBench(document).policy.alwaysEnds).toBe(expected)
  })
})

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { describe, expect, it } from 'vitest'
import { listOf, mapOf, type ValueInput } from '../../../src/policy/expression/value.ts'
import { onRequest, PolicyBench, replyOf } from '../../helpers/policy-exchange.ts'

describe('set-vars', () => {
  async function varsOf(...vars: unknown[]) {
    const { outcome, exchange } = await new PolicyBench(onRequest('set-vars', { vars })).request()
    return { outcome, vars: exchange.vars }
  }

  it('keeps the type of each value', async () => {
    const { vars } = await varsOf(
      { text: 'a' },
      { whole: 7 },
      { fraction: 1.5 },
      { flag: true },
      { nothing: null },
      { list: [1, 'a', '${req.method}'] },
      { map: { a: '${req.host}', b: { c: 1 } } },
      { computed: '${1 + 1}' },
    )
    expect(Object.fromEntries(vars)).toEqual({
      text: 'a',
      whole: 7n,
      fraction: 1.5,
      flag: true,
      nothing: null,
      list: listOf([1n, 'a', 'GET']),
      map: mapOf(
        new Map<string, ValueInput>([
          ['a', 'device.example.com'],
          ['b', mapOf(new Map([['c', 1n]]))],
        ]),
      ),
      computed: 2n,
    })
  })

  it('can use what was set before in the same action', async () => {
    const { vars } = await varsOf({ a: 1 }, { b: '${vars.a + 1}' }, { a: '${vars.b * 10}' })
    expect(Object.fromEntries(vars)).toEqual({ a: 20n, b: 2n })
  })

  it('can be read in lists and maps by expressions', async () => {
    const bench = new PolicyBench({
      on_http_request: [
        { actions: [{ type: 'set-vars', config: { vars: [{ m: { a: [1, { b: 'x' }] } }] } }] },
        {
          expressions: ["vars.m.a[1].b == 'x' && vars.m['a'][0] == 1"],
          actions: [{ type: 'deny' }],
        },
      ],
    })
    expect(replyOf((await bench.request()).outcome).status).toBe(403)
  })

  it('refuses values that grow from variable to variable', async () => {
    const names = Array.from({ length: 20 }, (_, index) => `v${index}`)
    const doubled = names.map((name, index) => ({
      [name]: index === 0 ? 'x'.repeat(100) : `\${vars.v${index - 1} + vars.v${index - 1}}`,
    }))
    expect(replyOf((await varsOf(...doubled)).outcome).status).toBe(500)
  })
})

describe('log', () => {
  it('writes metadata into the log, and leaves it for the access log', async () => {
    const bench = new PolicyBench(
      onRequest('log', {
        metadata: { who: '${conn.client_ip}', deep: { n: '${1 + 1}', list: [true] } },
      }),
    )
    const { outcome, exchange } = await bench.request()
    const metadata = { who: '203.0.113.9', deep: { n: 2, list: [true] } }
    expect(outcome.kind).toBe('continue')
    expect(exchange.logged).toEqual([metadata])
    expect(bench.captured.lines).toEqual([
      expect.objectContaining({ msg: 'policy log', endpoint: 'ep_1', metadata }),
    ])
  })

  it('leaves its metadata for later rules', async () => {
    const bench = new PolicyBench({
      on_http_request: [
        { actions: [{ type: 'log', config: { metadata: { tier: 'gold' } } }] },
        { expressions: ["actions.ngrok.log.metadata.tier == 'gold'"], actions: [{ type: 'deny' }] },
      ],
    })
    expect((await bench.request()).outcome.kind).toBe('respond')
  })

  it('can stand in every phase', async () => {
    const actions = [{ type: 'log', config: { metadata: { at: '${conn.server_port}' } } }]
    const bench = new PolicyBench({
      on_tcp_connect: [{ actions }],
      on_http_request: [{ actions }],
      on_http_response: [{ actions }],
    })
    await bench.connect()
    await bench.request()
    await bench.response()
    expect(bench.captured.lines).toHaveLength(3)
  })
})

describe('forward-internal', () => {
  const bench = (config: Record<string, unknown>, online = ['https://device.internal']) =>
    new PolicyBench(onRequest('forward-internal', config), {
      hasInternal: (url) => online.includes(url.origin),
    })

  it('hands the request to an endpoint that is online', async () => {
    const { outcome } = await bench({ url: 'https://device.internal' }).request()
    expect(outcome).toEqual({ kind: 'forward', url: 'https://device.internal' })
  })

  it('computes where to', async () => {
    const config = { url: "https://${req.host.split('.')[0]}.internal" }
    const { outcome } = await bench(config).request({ url: 'https://device.example.com/' })
    expect(outcome).toEqual({ kind: 'forward', url: 'https://device.internal' })
  })

  it('answers 404 when the endpoint is offline', async () => {
    const { outcome } = await bench({ url: 'https://other.internal' }).request()
    expect(replyOf(outcome)).toMatchObject({ status: 404, errorCode: 'ERR_NGROK_3200' })
    const nowhere = new PolicyBench(onRequest('forward-internal', { url: 'https://a.internal' }))
    expect(replyOf((await nowhere.request()).outcome).status).toBe(404)
  })

  it('goes on with on_error: continue, and says why', async () => {
    const config = { url: 'https://other.internal', on_error: 'continue' }
    const { outcome, exchange } = await bench(config).request()
    expect(outcome.kind).toBe('continue')
    expect(exchange.results.get('forward_internal')).toEqual({
      url: 'https://other.internal',
      error: { code: 'ERR_NGROK_3200', message: expect.stringContaining('offline') },
    })
  })

  it('stops after five hops', async () => {
    const policy = bench({ url: 'https://device.internal' })
    expect((await policy.request({ hops: 4 })).outcome.kind).toBe('forward')
    const { outcome } = await policy.request({ hops: 5 })
    expect(replyOf(outcome)).toMatchObject({ status: 508, errorCode: 'ERR_NGROK_3501' })
  })

  it('closes a connection that it cannot forward', async () => {
    const actions = [{ type: 'forward-internal', config: { url: 'https://other.internal' } }]
    expect(await new PolicyBench({ on_tcp_connect: [{ actions }] }).connect()).toEqual({
      kind: 'close',
    })
  })

  it('answers 500 when the computed address is none', async () => {
    const { outcome } = await bench({ url: 'https://${req.host}' }).request()
    expect(replyOf(outcome).status).toBe(500)
  })
})

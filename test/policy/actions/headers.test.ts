// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { describe, expect, it } from 'vitest'
import { onRequest, onResponse, PolicyBench, replyOf } from '../../helpers/policy-exchange.ts'

describe('add-headers', () => {
  it('appends to the request and never replaces', async () => {
    const bench = new PolicyBench(
      onRequest('add-headers', { headers: { 'X-Tag': 'new', 'x-ip': '${conn.client_ip}' } }),
    )
    const { exchange } = await bench.request({ headers: ['X-Tag', 'old'] })
    expect(exchange.request?.headers.fields).toEqual([
      ...['Host', 'device.example.com', 'X-Tag', 'old', 'x-tag', 'new', 'x-ip', '203.0.113.9'],
    ])
    expect(exchange.results.get('add_headers')).toEqual({
      headers_added: new Map([
        ['x-tag', 'new'],
        ['x-ip', '203.0.113.9'],
      ]),
    })
  })

  it('replaces host alone', async () => {
    const bench = new PolicyBench(onRequest('add-headers', { headers: { host: 'inner' } }))
    const { exchange } = await bench.request()
    expect(exchange.request?.headers.fields).toEqual(['Host', 'inner'])
  })

  it('works on responses', async () => {
    const bench = new PolicyBench(
      onResponse('add-headers', { headers: { 'x-a': '${res.status_code}' } }),
    )
    const { exchange } = await bench.response({ status: 201 })
    expect(exchange.response?.headers.fields).toEqual(['x-a', '201'])
  })

  it('fails rather than writes a value that would break the head', async () => {
    const bench = new PolicyBench(
      onRequest('add-headers', { headers: { 'x-a': "${req.url.query_params['a'][0]}" } }),
    )
    const { outcome, exchange } = await bench.request({
      url: 'https://h/?a=a%0d%0aSet-Cookie:%20x',
    })
    expect(replyOf(outcome).status).toBe(500)
    expect(exchange.request?.headers.has('x-a')).toBe(false)
  })
})

describe('remove-headers', () => {
  it('removes names in any case, and says which were there', async () => {
    const bench = new PolicyBench(onRequest('remove-headers', { headers: ['X-Tag', 'x-none'] }))
    const { exchange } = await bench.request({ headers: ['x-tag', '1', 'X-TAG', '2', 'X-B', '3'] })
    expect(exchange.request?.headers.fields).toEqual(['Host', 'device.example.com', 'X-B', '3'])
    expect(exchange.results.get('remove_headers')).toEqual({ headers_removed: ['x-tag'] })
  })

  it('works on responses', async () => {
    const bench = new PolicyBench(onResponse('remove-headers', { headers: ['server'] }))
    const { exchange } = await bench.response({ responseHeaders: ['Server', 'nginx'] })
    expect(exchange.response?.headers.fields).toEqual([])
  })

  it('replaces together with add-headers', async () => {
    const bench = new PolicyBench({
      on_http_request: [
        {
          actions: [
            { type: 'remove-headers', config: { headers: ['x-a'] } },
            { type: 'add-headers', config: { headers: { 'x-a': 'new' } } },
          ],
        },
      ],
    })
    const { exchange } = await bench.request({ headers: ['X-A', 'old'] })
    expect(exchange.request?.headers.all('x-a')).toEqual(['new'])
  })
})

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { PolicyError } from '../../src/policy/document/problem.ts'
import { type ExplainedRequest, explainPolicy } from '../../src/policy/explain.ts'

const request = (changes: Partial<ExplainedRequest> = {}): ExplainedRequest => ({
  method: 'GET',
  url: new URL('https://h.example/p?q=1'),
  headers: ['k', 'v'],
  body: '',
  clientIp: '203.0.113.9',
  upstream: { status: 200, headers: [] },
  ...changes,
})

const limit = {
  type: 'rate-limit',
  config: {
    name: 'x',
    algorithm: 'sliding_window',
    capacity: 2,
    rate: '60s',
    bucket_key: ['conn.client_ip'],
  },
}

describe('explainPolicy()', () => {
  it('tells which rules matched, which actions ran, and with what result', async () => {
    const [explanation] = await explainPolicy(
      {
        on_http_request: [
          { name: 'limit', actions: [limit] },
          { expressions: ["req.method == 'PUT'"], actions: [{ type: 'deny' }] },
          {
            expressions: ["'k' in req.headers"],
            actions: [{ type: 'url-rewrite', config: { to: '/q' } }],
          },
        ],
        on_http_response: [
          { actions: [{ type: 'add-headers', config: { headers: { x: '${res.status_code}' } } }] },
        ],
      },
      request(),
    )
    expect(explanation?.rules).toMatchObject([
      {
        phase: 'on_http_request',
        index: 0,
        name: 'limit',
        matches: true,
        actions: [{ type: 'rate-limit', result: { bucket_key: '203.0.113.9', limited: false } }],
      },
      { index: 1, matches: false, actions: [] },
      {
        index: 2,
        matches: true,
        actions: [{ type: 'url-rewrite', result: { url: 'https://h.example/q' } }],
      },
      { phase: 'on_http_response', matches: true, actions: [{ type: 'add-headers' }] },
    ])
    expect(explanation).toMatchObject({
      forwarded: { target: '/q', headers: ['host', 'h.example', 'k', 'v'] },
      outcome: { kind: 'continue' },
      answer: { status: 200, headers: ['x', '200'] },
    })
  })

  it('tells what would be answered', async () => {
    const explanations = await explainPolicy(
      { on_http_request: [{ actions: [limit] }] },
      request(),
      { repeat: 4 },
    )
    expect(explanations.map(({ answer }) => answer?.status)).toEqual([200, 200, 429, 429])
    expect(explanations[2]).toMatchObject({
      forwarded: undefined,
      outcome: {
        kind: 'respond',
        reply: { headers: expect.arrayContaining(['retry-after', '60']) },
      },
    })
  })

  it('runs the response phase for an answer that the policy made', async () => {
    const [explanation] = await explainPolicy(
      {
        on_http_request: [{ actions: [{ type: 'custom-response', config: { status_code: 418 } }] }],
        on_http_response: [{ actions: [{ type: 'add-headers', config: { headers: { x: '1' } } }] }],
      },
      request(),
    )
    expect(explanation?.answer).toEqual({ status: 418, headers: ['x', '1'] })
  })

  it('tells that a connection would be closed', async () => {
    const rules = { on_tcp_connect: [{ actions: [{ type: 'deny' }] }] }
    const [explanation] = await explainPolicy(rules, request())
    expect(explanation).toMatchObject({
      outcome: { kind: 'close' },
      forwarded: undefined,
      answer: undefined,
    })
  })

  it('tells why a policy failed', async () => {
    const rules = {
      on_http_request: [
        { expressions: ["req.headers['none'][0] == 'x'"], actions: [{ type: 'deny' }] },
      ],
    }
    const [explanation] = await explainPolicy(rules, request())
    expect(explanation?.rules).toMatchObject([
      {
        matches: false,
        failure: {
          action: undefined,
          message: expect.stringContaining('the request has no header none'),
        },
      },
    ])
    expect(explanation?.answer?.status).toBe(500)
  })

  it('tells which action failed, and what ran before it', async () => {
    const bad = { type: 'add-headers', config: { headers: { x: '${req.headers["none"][0]}' } } }
    const rules = { on_http_request: [{ name: 'r', actions: [limit, bad, limit] }] }
    const [explanation] = await explainPolicy(rules, request())
    expect(explanation?.rules).toMatchObject([
      { matches: true, actions: [{ type: 'rate-limit' }], failure: { action: 'add-headers' } },
    ])
  })

  it('tells which expression is false, and what variables were set', async () => {
    const vars = [{ tier: 'gold' }, { n: '${req.url.query_params["q"].size() + 1}' }]
    const rules = {
      on_http_request: [
        { actions: [{ type: 'set-vars', config: { vars } }, limit] },
        {
          expressions: ["vars.tier == 'gold'", 'vars.n == 3', 'vars.n > 4'],
          actions: [{ type: 'deny' }],
        },
      ],
    }
    const [explanation] = await explainPolicy(rules, request())
    expect(explanation?.rules).toMatchObject([
      { unmet: undefined, actions: [{ vars: { tier: 'gold', n: 2 } }, { vars: undefined }] },
      { matches: false, unmet: 'vars.n == 3', actions: [] },
    ])
  })

  it('shows the response phase what the upstream is taken to answer', async () => {
    const rules = {
      on_http_response: [
        {
          expressions: ["res.status_code >= 500 && res.content_type == 'text/html'"],
          actions: [
            {
              type: 'custom-response',
              config: { status_code: 502, body: 'was ${res.status_code}' },
            },
          ],
        },
      ],
    }
    const upstream = { status: 503, headers: ['content-type', 'text/html'] }
    const [explanation] = await explainPolicy(rules, request({ upstream }))
    expect(explanation).toMatchObject({
      upstream,
      outcome: { reply: { body: 'was 503' } },
      answer: { status: 502 },
    })
  })

  it('counts what the upstream answers, for a circuit breaker', async () => {
    const config = { volume_threshold: 3, error_threshold: 0.5 }
    const rules = { on_http_request: [{ actions: [{ type: 'circuit-breaker', config }] }] }
    const statuses = async (status: number) => {
      const upstream = { status, headers: [] }
      const explanations = await explainPolicy(rules, request({ upstream }), { repeat: 5 })
      return explanations.map(({ answer }) => answer?.status)
    }
    expect(await statuses(500)).toEqual([500, 500, 500, 503, 503])
    expect(await statuses(200)).toEqual([200, 200, 200, 200, 200])
  })

  it('takes internal endpoints to be online', async () => {
    const config = { url: 'https://device.internal' }
    const rules = { on_http_request: [{ actions: [{ type: 'forward-internal', config }] }] }
    const [explanation] = await explainPolicy(rules, request())
    expect(explanation?.outcome).toEqual({ kind: 'forward', url: 'https://device.internal' })
  })

  it('gives actions a body to look at', async () => {
    const rules = {
      on_http_request: [
        {
          actions: [
            { type: 'request-body-find-replace', config: { replacements: [{ from: 'a+' }] } },
          ],
        },
      ],
    }
    const [explanation] = await explainPolicy(rules, request({ body: 'baab' }))
    expect(explanation?.rules[0]?.actions[0]?.result).toEqual({
      replacements: [{ replacement_index: 0, matched_content: 'aa' }],
    })
  })

  it('explains the policy that is shipped', async () => {
    const text = readFileSync(join(import.meta.dirname, '../../default-policy.json'), 'utf8')
    const explanations = await explainPolicy(text, request(), { repeat: 601 })
    expect(explanations.filter(({ answer }) => answer?.status === 429)).toHaveLength(1)
    expect(explanations[0]?.answer?.headers).toEqual(['x-served-by', 'device-agent'])
  })

  it('refuses a document that cannot be used', async () => {
    await expect(explainPolicy({ on_request: [] }, request())).rejects.toBeInstanceOf(PolicyError)
  })
})

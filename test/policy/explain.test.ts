// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { type ExplainedRequest, explainPolicy } from '../../src/policy/explain.ts'
import { PolicyError } from '../../src/policy/problem.ts'

const request = (changes: Partial<ExplainedRequest> = {}): ExplainedRequest => ({
  method: 'GET',
  url: new URL('https://h.example/p?q=1'),
  headers: ['k', 'v'],
  body: '',
  clientIp: '203.0.113.9',
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
      failure: undefined,
      forwarded: { target: '/q', headers: ['host', 'h.example', 'k', 'v'] },
      outcome: { kind: 'continue' },
      answer: { status: 200, headers: ['x', '200'] },
    })
  })

  it('tells what would be answered', async () => {
    const explanations = await explainPolicy(
      { on_http_request: [{ actions: [limit] }] },
      request(),
      4,
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
    expect(explanation?.failure).toContain('out of bounds')
    expect(explanation?.answer?.status).toBe(500)
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
    const explanations = await explainPolicy(text, request(), 601)
    expect(explanations.filter(({ answer }) => answer?.status === 429)).toHaveLength(1)
    expect(explanations[0]?.answer?.headers).toEqual(['x-served-by', 'device-agent'])
  })

  it('refuses a document that cannot be used', async () => {
    await expect(explainPolicy({ on_request: [] }, request())).rejects.toBeInstanceOf(PolicyError)
  })
})

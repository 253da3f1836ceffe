// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { PolicyError } from '../../../src/policy/document/problem.ts'
import {
  type AllowEntry,
  mayDial,
  parseAllowEntry,
} from '../../../src/policy/outbound/outbound-allow.ts'
import { compilePolicy, type PolicyOptions } from '../../../src/policy/policy.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import {
  createExchange,
  type ExchangeParts,
  onRequest,
  replyOf,
} from '../../helpers/policy-exchange.ts'

async function serve(
  listener: RequestListener,
): Promise<{ url: string; server: Server; port: number }> {
  const server = createServer(listener)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close().closeAllConnections())
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, server, port }
}

const LOOPBACK = listing('127.0.0.1', 'localhost')

/** With leave for what GATEWAY_OUTBOUND_ALLOW would list. */
function listing(...texts: string[]): Partial<PolicyOptions> {
  const entries = texts.map((text) => parseAllowEntry(text) as AllowEntry)
  return { mayDial: (target) => mayDial(entries, target) }
}

interface Result {
  readonly error: { readonly code: string; readonly message: string }
  readonly attempts: readonly { readonly response_status_code: bigint }[]
  readonly res: {
    readonly status_code: bigint
    readonly header: ReadonlyMap<string, string[]>
    readonly body: string
  }
}

async function ask(config: Record<string, unknown>, parts: ExchangeParts = {}, reach = LOOPBACK) {
  const { log } = captureLog()
  const policy = compilePolicy(onRequest('http-request', config), {
    clock: systemClock,
    log,
    ...reach,
  })
  const exchange = createExchange(parts)
  const outcome = await policy.onHttpRequest(exchange)
  return { outcome, result: exchange.results.get('http_request') as unknown as Result }
}

interface Seen {
  readonly method: string
  readonly url: string
  readonly headers: IncomingMessage['headers']
  readonly body: string
}

describe('http-request', () => {
  it('sends what was configured and leaves request and response', async () => {
    const seen: Seen[] = []
    const { url } = await serve(async (request, response) => {
      const { method = '', url = '', headers } = request
      seen.push({ method, url, headers, body: await text(request) })
      response
        .writeHead(201, { 'x-answer': 'yes', 'set-cookie': ['a=1', 'b=2'] })
        .end('{"tier":"gold"}')
    })
    const { outcome, result } = await ask(
      {
        url: `${url}/check?fixed=1`,
        method: 'POST',
        query_params: [
          { key: 'host', value: '${req.host}' },
          { key: 'q', value: 'a b&c' },
        ],
        headers: { 'X-Client': '${conn.client_ip}' },
        body: '{"path": "${req.url.path}"}',
      },
      { url: 'https://h/p' },
    )
    expect(outcome.kind).toBe('continue')
    expect(seen).toEqual([
      expect.objectContaining({
        method: 'POST',
        url: '/check?fixed=1&host=h&q=a+b%26c',
        body: '{"path": "/p"}',
        headers: expect.objectContaining({
          'x-client': '203.0.113.9',
          'x-forwarded-for': '203.0.113.9',
          'user-agent': 'device-agent-gateway',
        }),
      }),
    ])
    expect(result).toMatchObject({
      error: { code: '', message: '' },
      req: { method: 'POST', body: '{"path": "/p"}' },
      res: { status_code: 201n, body: '{"tier":"gold"}', resolved_ip: '127.0.0.1' },
    })
    expect(result.res.header.get('set-cookie')).toEqual(['a=1', 'b=2'])
    expect(result.attempts).toHaveLength(1)
  })

  it('can decide what follows', async () => {
    const { url } = await serve((_, response) => response.end('{"tier":"gold"}'))
    const { log } = captureLog()
    const policy = compilePolicy(
      {
        on_http_request: [
          { actions: [{ type: 'http-request', config: { url } }] },
          {
            expressions: [
              'actions.ngrok.http_request.res.status_code == 200',
              "json.decode(actions.ngrok.http_request.res.body).tier == 'gold'",
              "actions.svc.http_request.res.header['content-length'][0] == '15'",
            ],
            actions: [{ type: 'deny', config: { status_code: 418 } }],
          },
        ],
      },
      { clock: systemClock, log, ...LOOPBACK },
    )
    expect(replyOf(await policy.onHttpRequest(createExchange())).status).toBe(418)
  })

  it('retries while the condition holds, three times at most', async () => {
    let requests = 0
    const { url } = await serve((_, response) => {
      requests += 1
      response.writeHead(requests < 3 ? 503 : 200).end(String(requests))
    })
    const config = { url, retry_condition: 'last_attempt.res.status_code >= 500 && attempts < 5' }
    const { result } = await ask(config)
    expect(result.attempts.map(({ response_status_code: status }) => status)).toEqual([
      503n,
      503n,
      200n,
    ])
    expect(result.res.body).toBe('3')
    const endless = await ask({ url, retry_condition: 'true' })
    expect(endless.result.attempts).toHaveLength(4)
  })

  it('retries after an error that is none of the server', async () => {
    let requests = 0
    const { url } = await serve((request, response) => {
      requests += 1
      if (requests === 1) request.socket.destroy()
      else response.end('ok')
    })
    const { result } = await ask({ url, retry_condition: "last_attempt.error.code != ''" })
    expect([result.attempts.length, result.res.body]).toEqual([2, 'ok'])
  })

  describe('redirects', () => {
    const redirecting: RequestListener = (request, response) => {
      const left = Number(request.url?.slice(1))
      if (left === 0) return void response.end(`${request.method} ${request.headers.authorization}`)
      response.writeHead(302, { location: `/${left - 1}` }).end()
    }

    it('are answers by default', async () => {
      const { url } = await serve(redirecting)
      expect((await ask({ url: `${url}/1` })).result.res.status_code).toBe(302n)
    })

    it('are followed as often as allowed', async () => {
      const { url } = await serve(redirecting)
      const headers = { authorization: 'secret' }
      const { result } = await ask({ url: `${url}/2`, max_redirects: 2, method: 'POST', headers })
      expect(result.res.body).toBe('GET secret')
      const tooMany = await ask({ url: `${url}/3`, max_redirects: 2 })
      expect(tooMany.result.error.code).toBe('ERR_NGROK_3214')
    })

    it('keep the method with 307', async () => {
      const { url } = await serve((request, response) => {
        if (request.url === '/') response.writeHead(307, { location: '/end' }).end()
        else void text(request).then((body) => response.end(`${request.method} ${body}`))
      })
      const { result } = await ask({ url, max_redirects: 1, method: 'PUT', body: 'kept' })
      expect(result.res.body).toBe('PUT kept')
    })

    it('take no credentials to another server', async () => {
      const other = await serve((request, response) =>
        response.end(`${request.headers.authorization}`),
      )
      const { url } = await serve((_, response) =>
        response.writeHead(302, { location: other.url }).end(),
      )
      const { result } = await ask({ url, max_redirects: 1, headers: { authorization: 'secret' } })
      expect(result.res.body).toBe('undefined')
    })
  })

  describe('that fails', () => {
    it('goes on by default and says why', async () => {
      const { server, url } = await serve(() => {})
      await new Promise((resolve) => server.close(resolve))
      const { outcome, result } = await ask({ url })
      expect(outcome.kind).toBe('continue')
      expect(result.error).toEqual({
        code: 'ERR_NGROK_3600',
        message: expect.stringContaining('ECONNREFUSED'),
      })
      expect(result).not.toHaveProperty('res')
    })

    it('answers 502 with on_error: halt', async () => {
      const { outcome } = await ask({ url: 'http://192.0.2.1/', on_error: 'halt' })
      expect(replyOf(outcome)).toMatchObject({ status: 502, errorCode: 'ERR_NGROK_3600' })
    })

    it('answers 504 when time is up', async () => {
      const { url } = await serve(() => {})
      const { outcome } = await ask({ url, timeout: '1s', on_error: 'halt' })
      expect(replyOf(outcome)).toMatchObject({ status: 504, errorCode: 'ERR_NGROK_3602' })
    })

    it('does not read more than 256 KiB', async () => {
      const { url } = await serve((_, response) => response.end(Buffer.alloc(262_145)))
      expect((await ask({ url })).result.error.code).toBe('ERR_NGROK_3601')
    })

    it('answers 500 when the computed URL is none', async () => {
      expect(replyOf((await ask({ url: '${req.method}' })).outcome).status).toBe(500)
      const { outcome } = await ask({ url: '${req.url.scheme == "" ? "" : "file"}:///etc' })
      expect(replyOf(outcome).status).toBe(500)
    })

    it('ends a request that policies lead in a circle, whatever on_error says', async () => {
      let requests = 0
      const { url } = await serve((_, response) => {
        requests += 1
        response.end()
      })
      for (const onError of ['continue', 'halt']) {
        const { outcome } = await ask({ url, on_error: onError }, { askDepth: 3 })
        expect(replyOf(outcome)).toMatchObject({ status: 508, errorCode: 'ERR_NGROK_3603' })
      }
      expect(requests).toBe(0)
      expect((await ask({ url }, { askDepth: 2 })).result.error.code).toBe('')
    })

    it('believes no header of a visitor, and says how deep it is in one of its own', async () => {
      const seen: (string | string[] | undefined)[] = []
      const { url } = await serve((request, response) => {
        seen.push(request.headers['x-policy-hops'])
        response.end()
      })
      const parts = { headers: ['X-Policy-Hops', '4'], askDepth: 1 }
      const reach = { ...LOOPBACK, sealDepth: (depth: number) => `sealed ${depth}` }
      const headers = { 'x-policy-hops': '0' }
      expect((await ask({ url, headers }, parts, reach)).result.error.code).toBe('')
      expect(seen).toEqual(['sealed 2'])
    })

    describe('with a condition to retry', () => {
      const OFFLINE = 'https://camera.internal/'

      it.each([
        ['last_attempt.res.status_code >= 500', 1],
        ['last_attempt.res.status_code == 0 && attempts < 3', 3],
        ["last_attempt.res.header['x'][0] == 'a'", 1],
        ["last_attempt.error.code == 'ERR_NGROK_3200' && attempts < 2", 2],
        ["last_attempt.res.body == '' && last_attempt.res.resolved_ip != ''", 1],
        ['json.decode(last_attempt.res.body).again', 1],
      ])('goes on without an answer: %s', async (condition, attempts) => {
        const config = { url: OFFLINE, retry_condition: condition }
        const { outcome, result } = await ask(config)
        expect(outcome.kind).toBe('continue')
        expect(result.error.code).toBe('ERR_NGROK_3200')
        expect(result.attempts).toHaveLength(attempts)
        expect(result).not.toHaveProperty('res')
      })

      it.each(['continue', 'halt'])(
        'ends a request that it costs too much: %s',
        async (onError) => {
          const condition = 'lists.range(attempts * 4000).all(x, x * x * x >= 0)'
          const { outcome } = await ask({
            url: OFFLINE,
            retry_condition: condition,
            on_error: onError,
          })
          expect(replyOf(outcome)).toMatchObject({
            status: 500,
            body: expect.stringContaining('takes too long for one request'),
          })
        },
      )

      it('keeps the answer that the condition could not judge, and halts where it is told to', async () => {
        const { url } = await serve((_, response) => response.writeHead(403).end('no'))
        const config = { url, retry_condition: 'json.decode(last_attempt.res.body).again' }
        const { outcome, result } = await ask(config)
        expect(outcome.kind).toBe('continue')
        expect(result).toMatchObject({
          error: { code: '' },
          res: { status_code: 403n, body: 'no' },
        })
        const halted = await ask({ ...config, on_error: 'halt' })
        expect(replyOf(halted.outcome)).toMatchObject({ status: 500 })
      })

      it.each([
        ['last_attempt.res.statusCode >= 500', 'did you mean status_code?'],
        ['last_attempt.response.status_code >= 500', 'has no field response'],
        ["last_attempt.error == ''", '== cannot compare'],
        ["last_attempt.res.status_code == '500'", 'write last_attempt.res.status_code == 500'],
        [
          "last_attempt.res.header['x'] == 'a'",
          "write ('x' in last_attempt.res.header && 'a' in last_attempt.res.header['x'])",
        ],
        ["attempts == '2'", 'write attempts == 2'],
        ['last_attempt.req.methd == "GET"', 'did you mean method?'],
        ['actions.ngrok.http_request.attempts[0].status > 1', 'comes before this'],
        ["'yes'", 'must be true or false, not a string'],
      ])('is refused: %s', (condition, message) => {
        const { log } = captureLog()
        const document = onRequest('http-request', { url: OFFLINE, retry_condition: condition })
        const compile = () => compilePolicy(document, { clock: systemClock, log })
        expect(compile).toThrow(PolicyError)
        expect(compile).toThrow(message)
      })
    })
  })

  describe('without leave', () => {
    it.each([
      'http://127.0.0.1:9/',
      'http://[::1]:9/',
      'http://169.254.169.254/',
      'http://0.0.0.0:9/',
      'http://8.8.8.8/',
      'http://10.0.0.1/',
      'http://[fd00::1]/',
      'http://0x7f.1:9/',
      'http://2130706433:9/',
      'http://[::ffff:127.0.0.1]:9/',
      'http://[64:ff9b::a00:1]/',
    ])('does not reach %s', async (url) => {
      const { result } = await ask({ url }, {}, {})
      expect(result.error).toEqual({
        code: 'ERR_NGROK_3600',
        message: expect.stringMatching(
          /does not allow connections to \S+:\d+\. Add \S+:\d+ to this setting/,
        ),
      })
    })

    it('does not follow a name or a redirect there', async () => {
      const { result } = await ask({ url: 'http://localhost:9/' }, {}, {})
      expect(result.error.message).toContain('does not allow connections to localhost:9.')
      const { url } = await serve((_, response) =>
        response.writeHead(302, { location: 'http://127.0.0.2:9/' }).end(),
      )
      const redirected = await ask({ url, max_redirects: 1 })
      expect(redirected.result.error.message).toContain('127.0.0.2')
    })

    it('reaches what is listed on its port, and nothing beside it', async () => {
      const { url, port } = await serve((_, response) => response.end('here'))
      const other = await serve((_, response) => response.end('there'))
      const reach = listing(`localhost:${port}`)
      const { result } = await ask({ url: url.replace('127.0.0.1', 'localhost') }, {}, reach)
      expect(result.res.body).toBe('here')
      for (const refused of [url, other.url.replace('127.0.0.1', 'localhost')]) {
        expect((await ask({ url: refused }, {}, reach)).result.error.code).toBe('ERR_NGROK_3600')
      }
    })

    it('dials the address that was judged, whatever the name leads to next', async () => {
      const { port } = await serve((_, response) => response.end('here'))
      const judged: string[] = []
      const reach: Partial<PolicyOptions> = {
        mayDial: ({ host, address }) => {
          judged.push(`${host} ${address}`)
          return address === '127.0.0.1'
        },
      }
      const { result } = await ask({ url: `http://localhost:${port}/` }, {}, reach)
      expect(result.res).toMatchObject({ body: 'here', resolved_ip: '127.0.0.1' })
      expect(judged).toContain('localhost 127.0.0.1')
      expect(new Set(judged).size).toBe(judged.length)
    })
  })

  describe('to an internal endpoint', () => {
    it('goes through the gateway itself', async () => {
      const { port } = await serve((request, response) =>
        response.end(`${request.headers.host} ${request.url}`),
      )
      const reach = { connectInternal: () => connect(port, '127.0.0.1') }
      const { result } = await ask({ url: 'https://accounts.internal/tier?x=1' }, {}, reach)
      expect(result.res.body).toBe('accounts.internal /tier?x=1')
    })

    it('fails when the endpoint is offline', async () => {
      const { result } = await ask({ url: 'https://accounts.internal/' }, {}, {})
      expect(result.error.code).toBe('ERR_NGROK_3200')
    })
  })
})

import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { edgeError } from '../../../../src/gateway/ingress/common/edge-error.ts'
import { policyError } from '../../../../src/gateway/ingress/common/error-reply.ts'
import { compilePolicy } from '../../../../src/policy/policy.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { fieldsOf, RawClient, startScriptedService } from '../../../helpers/raw-http.ts'

const NOTHING_LISTENS = 1
const BROWSER = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'

async function ask(accept: string, host = 'no.test', method = 'GET') {
  const site = await startIngressSite({ service: NOTHING_LISTENS })
  const client = RawClient.connect(site.addresses.http.port)
  const line = accept === '' ? '' : `Accept: ${accept}\r\n`
  client.send(`${method} / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n${line}\r\n`)
  await client.end()
  const [head = '', body = ''] = client.text.split('\r\n\r\n')
  return { site, head, body, fields: fieldsOf(head) }
}

describe('the form of an error', () => {
  it.each([
    ['html', BROWSER],
    ['html', 'text/HTML;q=0.9, application/json;q=0.8'],
    ['html', 'text/plain;q=0.5, text/html;level=1'],
    ['problem', 'application/json'],
    ['problem', 'application/problem+json'],
    ['problem', 'application/json, text/plain, */*'],
    ['problem', 'text/html;q=0.1, application/json'],
    ['plain', 'text/plain, application/json'],
    ['plain', 'text/html;q=0'],
    ['plain', 'image/avif,image/webp,*/*;q=0.8'],
    ['plain', 'text/*'],
    ['plain', '*/*'],
    ['plain', ''],
  ])('is %s for %s', async (form, accept) => {
    const { fields } = await ask(accept)
    expect(fields['content-type']).toContain(form)
    expect(fields).toMatchObject({
      vary: 'accept',
      'cache-control': 'no-store',
      'ngrok-error-code': 'ERR_NGROK_3200',
      'x-content-type-options': 'nosniff',
    })
  })

  it('is decided by all Accept lines', async () => {
    const { fields } = await ask('image/png\r\nAccept: text/html')
    expect(fields['content-type']).toBe('text/html; charset=utf-8')
  })

  it('has the length of its body, and no body for HEAD', async () => {
    for (const accept of [BROWSER, 'application/json']) {
      const get = await ask(accept)
      expect(get.body.length).toBe(Number(get.fields['content-length']))
      const head = await ask(accept, 'no.test', 'HEAD')
      expect([head.body, head.fields['content-length']]).toEqual(['', `${get.body.length}`])
    }
  })

  it('stays a text with the same words for others', async () => {
    const { body } = await ask('*/*')
    expect(body).toBe('No endpoint is online at this address. (ERR_NGROK_3200)\n')
  })
})

describe('the kind of an error', () => {
  it.each([
    ['unknown', ['ERR_NGROK_3200']],
    ['offline', ['ERR_GATEWAY_AWAY']],
    ['busy', ['ERR_GATEWAY_BUSY', 'ERR_GATEWAY_SATURATED', 'ERR_GATEWAY_LINK_FULL']],
    ['upstream_failed', ['ERR_NGROK_8012', 'ERR_NGROK_3005', 'ERR_NGROK_3004', 'ERR_NGROK_3210']],
    ['default', ['ERR_GATEWAY_BAD_REQUEST', 'ERR_NGROK_2254']],
  ] as const)('is %s for %j', (kind, codes) => {
    expect(codes.map((code) => edgeError(code).kind)).toEqual(codes.map(() => kind))
  })
})

describe('problem details', () => {
  it('have the code, and the request id of the log', async () => {
    const { body, fields, site } = await ask('application/json', 'a.test')
    expect(JSON.parse(body)).toEqual({
      type: 'about:blank',
      title: 'Service not available',
      status: 502,
      detail: expect.stringContaining('its local service cannot be reached'),
      code: 'ERR_NGROK_8012',
      request_id: fields['x-request-id'],
    })
    expect(site.captured.lines).toContainEqual(
      expect.objectContaining({
        msg: 'a visitor got an error',
        requestId: fields['x-request-id'],
        host: 'a.test',
        code: 'ERR_NGROK_8012',
      }),
    )
  })
})

describe('the page of the gateway', () => {
  it('says what happened and shows the request id', async () => {
    const { body, head, fields } = await ask(BROWSER)
    expect(head).toMatch(/^HTTP\/1\.1 404 /)
    expect(body).toContain('<h1>Address not found</h1>')
    expect(body).toContain(`<dd>${fields['x-request-id']}</dd>`)
  })

  it('allows its own style alone: no script, no other resource', async () => {
    const { body, fields } = await ask(BROWSER)
    const style = /<style>(.*)<\/style>/s.exec(body)?.[1] ?? ''
    const hash = createHash('sha256').update(style).digest('base64')
    expect(fields['content-security-policy']).toBe(
      `default-src 'none'; style-src 'sha256-${hash}'; base-uri 'none'; form-action 'none'`,
    )
    expect(body).not.toMatch(/<script|https?:|url\(/)
  })

  it('says nothing about the device or its service', async () => {
    const { body } = await ask(BROWSER, 'a.test')
    expect(body).toContain('<h1>Service not available</h1>')
    expect(body).not.toMatch(/local service|127\.0\.0\.1|localhost/)
  })
})

/** A real policy with one action for requests. */
function policyOf(type: string, config: Readonly<Record<string, unknown>>) {
  const rules = { on_http_request: [{ actions: [{ type, config }] }] }
  return compilePolicy(rules, { clock: systemClock, log: captureLog().log })
}

const ONE_A_MINUTE = {
  name: 'x',
  algorithm: 'sliding_window',
  capacity: 1,
  rate: '60s',
  bucket_key: ['conn.client_ip'],
}

describe('the answer of a policy', () => {
  it.each([
    ['text/html', 'text/html; charset=utf-8', '<h1>Too many requests</h1>'],
    ['application/json', 'application/problem+json', '"retry_after":'],
    ['*/*', 'text/plain; charset=utf-8', 'Too many requests. Try again in '],
  ])('keeps status and retry-after of a rate limit for %s', async (accept, type, part) => {
    const service = await startScriptedService('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    const site = await startIngressSite({
      service: service.port,
      policy: policyOf('rate-limit', ONE_A_MINUTE),
    })
    const client = RawClient.connect(site.addresses.http.port)
    client.send('GET / HTTP/1.1\r\nHost: a.test\r\n\r\n')
    await client.receive('ok')
    client.send(`GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nAccept: ${accept}\r\n\r\n`)
    await client.end()
    const answer = client.text.slice(client.text.indexOf('HTTP/1.1 429'))
    const fields = fieldsOf(answer)
    expect(fields).toMatchObject({ 'content-type': type, vary: 'accept' })
    expect(Number(fields['retry-after'])).toBeGreaterThan(0)
    expect(answer).toContain(part)
  })

  it.each([
    ['custom-response', { status_code: 503, body: 'Back soon.' }, 'Back soon.'],
    ['deny', { status_code: 403 }, ''],
  ])('of %s is left alone', async (type, config, body) => {
    const policy = policyOf(type, config)
    const site = await startIngressSite({ service: NOTHING_LISTENS, policy })
    const client = RawClient.connect(site.addresses.http.port)
    client.send('GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nAccept: text/html\r\n\r\n')
    await client.end()
    expect(client.text.split('\r\n\r\n')[1]).toBe(body)
    expect(fieldsOf(client.text).vary).toBeUndefined()
  })

  it('that says why the gateway failed stays in the log', () => {
    const reply = { status: 502, headers: [], body: 'x', sentence: 'connect to 10.0.0.5 failed' }
    expect(policyError(reply)?.sentence).toBe('The gateway could not process the request.')
  })

  it('of a blocked address becomes a page', async () => {
    const policy = policyOf('restrict-ips', { allow: ['10.0.0.0/8'] })
    const site = await startIngressSite({ service: NOTHING_LISTENS, policy })
    const client = RawClient.connect(site.addresses.http.port)
    client.send('GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nAccept: text/html\r\n\r\n')
    await client.end()
    expect(client.text).toMatch(/^HTTP\/1\.1 403 /)
    expect(fieldsOf(client.text)['ngrok-error-code']).toBe('ERR_NGROK_3205')
    expect(client.text).toContain('<p>Your IP address is not allowed at this endpoint.</p>')
  })
})

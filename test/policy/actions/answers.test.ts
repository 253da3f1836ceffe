// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { describe, expect, it } from 'vitest'
import { onRequest, onResponse, PolicyBench, replyOf } from '../../helpers/policy-exchange.ts'

describe('deny', () => {
  it.each([
    [undefined, 403],
    [{ status_code: 404 }, 404],
    [{ status_code: 599 }, 599],
  ])('with %j answers %d without a body', async (config, status) => {
    const reply = replyOf((await new PolicyBench(onRequest('deny', config)).request()).outcome)
    expect([reply.status, reply.body]).toEqual([status, ''])
  })

  it('closes a connection', async () => {
    const bench = new PolicyBench({ on_tcp_connect: [{ actions: [{ type: 'deny' }] }] })
    expect(await bench.connect()).toEqual({ kind: 'close' })
  })
})

describe('close-connection', () => {
  it('closes in both phases', async () => {
    const rules = [{ actions: [{ type: 'close-connection' }] }]
    const bench = new PolicyBench({ on_tcp_connect: rules, on_http_request: rules })
    expect(await bench.connect()).toEqual({ kind: 'close' })
    expect((await bench.request()).outcome).toEqual({ kind: 'close' })
  })
})

describe('custom-response', () => {
  it('answers 200 without a body by default', async () => {
    const reply = replyOf((await new PolicyBench(onRequest('custom-response')).request()).outcome)
    expect(reply).toMatchObject({ status: 200, body: '' })
    expect(reply.headers.fields).toEqual([])
  })

  it.each([
    ['hello', 'text/plain; charset=utf-8'],
    ['{"a": 1}', 'application/json'],
    ['[1]', 'application/json'],
    ['{not json', 'text/plain; charset=utf-8'],
    ['<!DOCTYPE html><p>', 'text/html; charset=utf-8'],
    ['<html></html>', 'text/html; charset=utf-8'],
  ])('finds the type of %j', async (body, type) => {
    const { outcome } = await new PolicyBench(onRequest('custom-response', { body })).request()
    expect(replyOf(outcome).headers.get('content-type')).toBe(type)
  })

  it('leaves a type that was given, and computes headers and body', async () => {
    const bench = new PolicyBench(
      onRequest('custom-response', {
        status_code: 418,
        headers: { 'Content-Type': 'text/csv', 'x-path': '${req.url.path}' },
        body: '${req.method},${req.host}',
      }),
    )
    const reply = replyOf((await bench.request({ url: 'https://h/p' })).outcome)
    expect(reply).toMatchObject({ status: 418, body: 'GET,h' })
    expect(reply.headers.fields).toEqual(['content-type', 'text/csv', 'x-path', '/p'])
  })

  it('takes the place of a response', async () => {
    const bench = new PolicyBench(
      onResponse('custom-response', { status_code: 503, body: 'later' }),
    )
    const { outcome } = await bench.response({ status: 500 })
    expect(replyOf(outcome)).toMatchObject({ status: 503, body: 'later' })
    expect(outcome).toMatchObject({ runsResponsePhase: false })
  })
})

describe('redirect', () => {
  async function location(config: Record<string, unknown>, url: string) {
    const { outcome, exchange } = await new PolicyBench(onRequest('redirect', config)).request({
      url,
    })
    const result = exchange.results.get('redirect')
    if (outcome.kind === 'continue') return { result }
    const reply = replyOf(outcome)
    return { result, status: reply.status, location: reply.headers.get('location'), reply }
  }

  it.each([
    [{ to: 'https://b.example/x' }, 'https://a.example/y', 'https://b.example/x'],
    [{ to: '/login' }, 'https://a.example:8443/y?z', 'https://a.example:8443/login'],
    [
      { from: '/users\\?id=([0-9]+)', to: '/users/$1/' },
      'https://h/users?id=7',
      'https://h/users/7/',
    ],
    [{ from: '^http://(.*)', to: 'https://$1' }, 'http://h/p?q=1', 'https://h/p?q=1'],
    [{ from: 'old', to: 'new' }, 'https://h/old/old', 'https://h/new/new'],
    [{ from: '/p', to: '/${req.method}' }, 'https://h/p', 'https://h/GET'],
    [
      { to: '/${req.url.query_params["city"][0]}' },
      'https://h/?city=San%20Francisco',
      'https://h/San%20Francisco',
    ],
    [
      { to: '/${req.url.query_params["x"][0]}' },
      'https://h/?x=a%0d%0aSet-Cookie:b',
      'https://h/a%0D%0ASet-Cookie:b',
    ],
  ])('%j sends %s to %s', async (config, url, expected) => {
    expect(await location(config, url)).toMatchObject({ status: 302, location: expected })
  })

  it('has the status and the headers that were asked for', async () => {
    const answer = await location(
      { to: '/x', status_code: 308, headers: { 'x-why': 'moved' } },
      'https://h/',
    )
    expect(answer.status).toBe(308)
    expect(answer.reply?.headers.get('x-why')).toBe('moved')
  })

  it('does nothing when nothing matches or the URL stays the same', async () => {
    expect(await location({ from: 'nope', to: 'x' }, 'https://h/p')).toEqual({
      result: { matches: [], url: 'https://h/p', error: { code: '', message: '' } },
    })
    expect(await location({ from: '/p', to: '/p' }, 'https://h/p')).not.toHaveProperty('status')
  })

  it('leaves what it matched and where it went', async () => {
    expect((await location({ from: 'p+', to: 'q' }, 'https://h/pp/p')).result).toMatchObject({
      matches: ['p', 'pp', 'p'],
      url: 'httqs://h/q/q',
    })
  })

  it('answers 500 when a computed pattern cannot be used', async () => {
    const { status } = await location({ from: '${req.url.query}', to: 'x' }, 'https://h/?(')
    expect(status).toBe(500)
  })
})

describe('url-rewrite', () => {
  async function rewritten(config: Record<string, unknown>, url: string) {
    const { outcome, exchange } = await new PolicyBench(onRequest('url-rewrite', config)).request({
      url,
    })
    expect(outcome.kind).toBe('continue')
    const { target, headers } = exchange.request ?? {}
    return { target, host: headers?.get('host'), result: exchange.results.get('url_rewrite') }
  }

  it.each([
    [{ from: '/v1/([0-9]+)', to: '/v2/$1' }, 'https://h/v1/7?a=1', '/v2/7?a=1'],
    [{ from: 'a', to: 'b' }, 'https://h/a/a?a', '/b/b?b'],
    [{ from: '\\?.*$', to: '' }, 'https://h/p?secret=1', '/p'],
    [{ from: 'nope', to: 'x' }, 'https://h/p', '/p'],
    [{ to: '/fixed' }, 'https://h/p?q', '/fixed'],
    [{ from: '/p', to: '/${req.method} x' }, 'https://h/p', '/GET%20x'],
    [{ from: '/p$', to: '/$$1$0' }, 'https://h/p', '/$1/p'],
    [{ from: '.*', to: 'https://h/const' }, 'https://h/p?q', '/const'],
  ])('%j of %s asks upstream for %s', async (config, url, target) => {
    expect(await rewritten(config, url)).toMatchObject({ target, host: 'h' })
  })

  it('changes the host when the new URL has another', async () => {
    const config = { from: 'https://[^/]+', to: 'https://inner:81' }
    expect(await rewritten(config, 'https://h/p')).toMatchObject({ target: '/p', host: 'inner:81' })
  })

  it('leaves an error and the URL when the new one is none', async () => {
    expect(await rewritten({ from: '^https', to: 'gopher' }, 'https://h/p')).toMatchObject({
      target: '/p',
      result: { url: 'https://h/p', error: { code: 'ERR_NGROK_2247' } },
    })
  })

  it('leaves what it matched', async () => {
    expect((await rewritten({ from: '[0-9]+', to: 'n' }, 'https://h/1/22')).result).toEqual({
      matches: ['1', '22'],
      url: 'https://h/n/n',
      error: { code: '', message: '' },
    })
  })
})

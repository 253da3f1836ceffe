// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib'
import { describe, expect, it, onTestFinished } from 'vitest'
import { MAX_BODY_BYTES } from '../../../src/agent/inspection/recorded-exchange.ts'
import type { JsonObject } from '../../../src/agent/tunnel.ts'
import { sendRequest } from '../../helpers/serve-http.ts'
import { startApi } from '../started-api.ts'

const PATH = '/tunnels/cam.site.test/inspect'
const COMPRESSIONS = [
  ['gzip', gzipSync],
  ['deflate', deflateSync],
  ['br', brotliCompressSync],
] as const

/** A tunnel to a service that repeats what it was told, and a visitor of it. */
async function startInspection(policy: JsonObject | null = null) {
  const heard: string[] = []
  const server = createServer(async (request, response) => {
    heard.push(`${request.method} ${request.url} ${request.headers.authorization ?? ''}`)
    response.setHeader('set-cookie', 'sid=canary-set-cookie')
    response.setHeader('location', '/next?token=canary-location&page=2')
    response.end(await text(request))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close().closeAllConnections())
  const { port } = server.address() as AddressInfo
  const api = await startApi()
  await api.agent.create({
    protocol: 'http',
    domain: 'cam.site.test',
    forwardsTo: `localhost:${port}`,
    policy,
  })
  const visit = (path: string, sent: Parameters<typeof sendRequest>[1] = {}) => {
    const url = api.service.connector.last.endpoints.get('cam.site.test')?.dialUrl ?? ''
    return sendRequest({ port: Number(new URL(url).port) }, { path, ...sent })
  }
  return { ...api, visit, heard }
}

describe('/tunnels/{url_part}/inspect', () => {
  it('hides secrets of the gateway that its policy puts into headers, wherever they appear', async () => {
    const read = (name: string) => `\${secrets.get('site', '${name}')}`
    const actions = [
      { type: 'set-vars', config: { vars: [{ hall: read('hall') }, { tier: 'gold' }] } },
      {
        type: 'add-headers',
        config: {
          headers: {
            'X-Site': `id ${read('site')};`,
            'x-hall': '${vars.hall}',
            'x-tier': '${vars.tier}',
            'x-short': read('short'),
            'x-odd': read('odd'),
          },
        },
      },
    ]
    const { call, visit } = await startInspection({ on_http_request: [{ actions }] })
    await call('PUT', PATH, { minutes: 1 })
    const body = 'blue door, green hall, gold; e; odd horse, blue%20door'
    await visit('/a?x=blue%20door&y=shown', {
      method: 'POST',
      headers: {
        'x-site': 'id blue door;',
        'x-hall': 'green hall',
        'x-tier': 'gold',
        'x-short': 'e',
        'x-odd': 'odd horse',
      },
      body,
    })
    const list = (await call('GET', PATH)).json.exchanges
    expect(list).toMatchObject([{ target: '/a?x=[secret]&y=shown' }])
    const shown = (await call('GET', `${PATH}/1`)).json
    const masked = '[secret], [secret], gold; e; [secret], [secret]'
    expect([shown.request.body.text, shown.response.body.text]).toEqual([masked, masked])
    expect(shown.request.fields).toEqual(
      expect.arrayContaining([
        { name: 'x-site', value: 'id [secret];' },
        { name: 'x-hall', value: '[secret]' },
        { name: 'x-tier', value: 'gold' },
        { name: 'x-odd', value: '[secret]' },
      ]),
    )
    expect(shown.state).toBe('answered')
  })

  it('is off, then on for so long, then off', async () => {
    const { call } = await startInspection()
    const off = { state: 'off', ends_at: null, exchanges: [] }
    expect((await call('GET', PATH)).json).toEqual(off)
    const { status, json } = await call('PUT', PATH, { minutes: 5 })
    expect([status, json.state]).toEqual([200, 'on'])
    const minutes = (Date.parse(json.ends_at) - Date.now()) / 60_000
    expect(minutes).toBeGreaterThan(4)
    expect(minutes).toBeLessThanOrEqual(5)
    expect((await call('DELETE', PATH)).status).toBe(204)
    expect((await call('GET', PATH)).json).toEqual(off)
  })

  it('shows requests and answers, and hides what is secret in heads and addresses', async () => {
    const { call, visit } = await startInspection()
    await call('PUT', PATH, { minutes: 1 })
    await visit('/a?x=1&access_token=canary-query&b=', {
      method: 'POST',
      headers: {
        authorization: 'Bearer canary-authorization',
        cookie: 'sid=canary-cookie',
        'x-api-key': 'canary-key',
        'x-plain': 'shown',
      },
      body: '{"hello":1}',
    })
    const list = await call('GET', PATH)
    expect(list.json.exchanges).toMatchObject([
      {
        number: 1,
        state: 'answered',
        method: 'POST',
        target: '/a?x=1&access_token=[secret]&b=',
        status: 200,
        request_bytes: 11,
        response_bytes: 11,
      },
    ])
    const one = await call('GET', `${PATH}/1`)
    expect(one.json.request).toMatchObject({
      fields: expect.arrayContaining([
        { name: 'authorization', value: '[secret]' },
        { name: 'x-plain', value: 'shown' },
      ]),
      body: { bytes: 11, is_whole: true, text: '{"hello":1}', base64: null },
    })
    expect(one.json.response.fields).toContainEqual({
      name: 'location',
      value: '/next?token=[secret]&page=2',
    })
    expect(`${list.text}${one.text}`).not.toContain('canary')
    expect((await call('GET', `${PATH}/2`)).json.code).toBe('exchange-not-found')
  })

  it('shows bytes as base64, and of a long text its beginning, at a whole character', async () => {
    const { call, visit } = await startInspection()
    await call('PUT', PATH, { minutes: 1 })
    await visit('/', { method: 'POST', body: Buffer.from([0xff, 0x00, 0x41]) })
    await visit('/', { method: 'POST', body: `x${'é'.repeat(MAX_BODY_BYTES)}` })
    const bytes = (await call('GET', `${PATH}/1`)).json.request.body
    expect(bytes).toEqual({ bytes: 3, is_whole: true, text: null, base64: '/wBB' })
    const long = (await call('GET', `${PATH}/2`)).json.request.body
    expect([long.bytes, long.is_whole]).toEqual([2 * MAX_BODY_BYTES + 1, false])
    expect(long.text).toBe(`x${'é'.repeat(MAX_BODY_BYTES / 2 - 1)}`)
  })

  it('shows what is compressed as the text that it is, and hides what is secret there', async () => {
    const { call, visit } = await startInspection()
    await call('PUT', PATH, { minutes: 1 })
    const plain = `{"user":"ann","password":"canary-body","note":"${'x'.repeat(2_000)}"}`
    for (const [encoding, compress] of COMPRESSIONS) {
      const headers = { 'content-encoding': encoding, 'content-type': 'application/json' }
      await visit('/', { method: 'POST', headers, body: compress(plain) })
    }
    for (const number of [1, 2, 3]) {
      const { json, text } = await call('GET', `${PATH}/${number}`)
      expect(json.request.body.text).toMatch(/^\{"user":"ann","password":"\[secret\]","note":"xxx/)
      expect(text).not.toContain('canary')
    }
    const form = Buffer.from([...Buffer.from('{"password":"canary","x":"'), 0xff])
    const json = { 'content-type': 'application/json' }
    const headers = { 'content-encoding': 'gzip' }
    await visit('/', { method: 'POST', headers, body: Buffer.from([0xff, 0x00]) })
    await visit('/', { method: 'POST', headers, body: gzipSync(Buffer.alloc(8_000_000)) })
    expect((await call('GET', `${PATH}/4`)).json.request.body.base64).toBe('/wA=')
    expect((await call('GET', `${PATH}/5`)).json.request.body.text).toBeNull()
    const words = randomBytes(2 * MAX_BODY_BYTES)
      .toString('hex')
      .replaceAll(/.{16}/g, '$& ')
    const cut = gzipSync(words)
    await visit('/', { method: 'POST', headers, body: cut })
    const begun = (await call('GET', `${PATH}/6`)).json.request.body
    expect([begun.is_whole, begun.text.length > 100_000]).toEqual([false, true])
    await visit('/', { method: 'POST', headers: json, body: form })
    const { base64 } = (await call('GET', `${PATH}/7`)).json.request.body
    expect(Buffer.from(base64, 'base64').toString('latin1')).toBe(
      '{"password":"[secret]","x":"\xff',
    )
  })

  it('sends a request again, as it was, and notes who did', async () => {
    const { call, visit, heard, trail } = await startInspection()
    await call('PUT', PATH, { minutes: 1 })
    const headers = { authorization: 'Bearer canary-authorization' }
    await visit('/order?n=1', { method: 'POST', headers, body: 'one' })
    const { status, json } = await call('POST', `${PATH}/1/replay`)
    expect([status, json.number, json.replay_of, json.status]).toEqual([200, 2, 1, 200])
    expect(json.response.body.text).toBe('one')
    expect(heard).toEqual(Array(2).fill('POST /order?n=1 Bearer canary-authorization'))
    expect(trail.page({ limit: 2 })).toMatchObject([
      { action: 'tunnel.replay', targetName: 'cam.site.test', result: 'ok' },
      { action: 'tunnel.inspect', targetName: 'cam.site.test', result: 'ok' },
    ])
    expect((await call('POST', `${PATH}/9/replay`)).json.code).toBe('exchange-not-found')
    await visit('/', { method: 'POST', body: 'x'.repeat(MAX_BODY_BYTES + 1) })
    expect((await call('POST', `${PATH}/3/replay`)).json.code).toBe('not-replayable')
    await call('DELETE', PATH)
    expect((await call('POST', `${PATH}/1/replay`)).json.code).toBe('exchange-not-found')
  })

  it('is for who may write, also to look', async () => {
    const { call, tokens, agent } = await startInspection()
    await call('PUT', PATH, { minutes: 1 })
    const reader = tokens.create({ name: 'viewer', scope: 'read', expiresAt: null })
    const headers = { authorization: `Bearer ${reader.secret.reveal()}` }
    for (const [method, path] of [
      ['GET', PATH],
      ['GET', `${PATH}/1`],
      ['PUT', PATH],
      ['DELETE', PATH],
      ['POST', `${PATH}/1/replay`],
    ] as const) {
      const { status, json } = await call(method, path, undefined, headers)
      expect([status, json.code], path).toEqual([403, 'insufficient-scope'])
    }
    expect(agent.inspections.status(agent.find('cam').id).state).toBe('on')
  })

  it.each([{}, { minutes: 0 }, { minutes: 61 }, { minutes: 1.5 }, { minutes: 1, body: true }])(
    'refuses %j',
    async (body) => {
      const { call } = await startInspection()
      expect((await call('PUT', PATH, body)).json.code).toBe('invalid-request')
      expect((await call('GET', PATH)).json.state).toBe('off')
    },
  )

  it('is of tunnels that there are', async () => {
    const { call } = await startInspection()
    for (const path of ['/tunnels/none/inspect', '/tunnels/none/inspect/1']) {
      expect((await call('GET', path)).json.code).toBe('tunnel-not-found')
    }
  })
})

import { once } from 'node:events'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import type { OpenApiDocument } from '../../src/http/openapi.ts'
import { startApi } from '../api/started-api.ts'
import { ConsoleBrowser } from '../helpers/console-browser.ts'
import { startManagementApi } from '../helpers/management-client.ts'
import { startGateway } from '../helpers/running-gateway.ts'

type Call = (method: string, path: string) => Promise<{ status: number; allow: unknown }>

async function openAgent(): Promise<{ document: OpenApiDocument; call: Call }> {
  const { call, document } = await startApi()
  return {
    document,
    call: async (method, path) => {
      const { status, headers } = await call(method, path)
      return { status, allow: headers.allow }
    },
  }
}

async function openManagement(): Promise<{ document: OpenApiDocument; call: Call }> {
  const { call, document, issuer } = await startManagementApi()
  return {
    document,
    call: async (method, path) => {
      // A key of its own for each: they may not ask as often as this.
      const { token: key } = await issuer.createApiKey({})
      const { status, headers } = await call(method, path, { key })
      return { status, allow: headers.get('allow') }
    },
  }
}

/** In the order of the header `Allow`. */
const METHODS = ['get', 'post', 'put', 'patch', 'delete']

describe.each([
  ['agent', openAgent],
  ['management', openManagement],
] as const)('the %s API', (_name, open) => {
  it('names the methods of each path in Allow, for OPTIONS and for a wrong method', async () => {
    const { document, call } = await open()
    for (const [template, operations] of Object.entries(document.paths)) {
      const path = template.replace(/\{\w+\}/, 'x_1')
      const served = METHODS.filter((method) => method in operations)
      const names = served.flatMap((method) => (method === 'get' ? ['get', 'head'] : [method]))
      const allow = [...names, 'options'].join(', ').toUpperCase()
      expect(await call('OPTIONS', path), `OPTIONS ${path}`).toEqual({ status: 204, allow })
      const wrong = METHODS.find((method) => !served.includes(method)) ?? ''
      const refused = await call(wrong.toUpperCase(), path)
      expect(refused, `${wrong} ${path}`).toEqual({ status: 405, allow })
    }
  })

  it('documents the Location of each creation and the limit of each body', async () => {
    const { document } = await open()
    const operations = Object.values(document.paths).flatMap((it) => Object.values(it)) as {
      requestBody?: { description?: string }
      responses: Record<string, { headers?: object }>
    }[]
    const created = operations.flatMap(({ responses }) => responses['201'] ?? [])
    expect(created.length).toBeGreaterThan(1)
    for (const { headers } of created) expect(headers).toHaveProperty('Location')
    const bodies = operations.flatMap(({ requestBody }) => requestBody ?? [])
    expect(bodies.length).toBeGreaterThan(3)
    for (const { description } of bodies) {
      expect(description).toMatch(/^JSON, at most \d+ [KM]iB\.$/)
    }
  })
})

describe('the Location of a creation', () => {
  it('leads to the resource of the management API', async () => {
    const { call } = await startManagementApi()
    const vault = await call('POST', '/vaults', { body: { name: 'site' } })
    const made = [
      vault,
      await call('POST', '/bot_users', { body: { name: 'cam01' } }),
      await call('POST', '/reserved_domains', { body: { domain: 'cam01.site.test' } }),
      await call('POST', '/api_keys', { body: {} }),
      await call('POST', '/vault_secrets', {
        body: { vault_id: vault.body.id, name: 'a', value: 'canary' },
      }),
    ]
    for (const { status, headers, body } of made) {
      expect(status, JSON.stringify(body)).toBe(201)
      const found = await call('GET', headers.get('location') ?? '')
      expect([found.status, found.body.id]).toEqual([200, body.id])
    }
  })

  it('leads to the resource within the console, too', async () => {
    const { baseUrl, key } = await startManagementApi()
    const browser = new ConsoleBrowser(baseUrl)
    await browser.signIn(key.reveal())
    const made = await browser.call('POST', '/console/api/vaults', { body: { name: 'site' } })
    const location = String(made.headers.location)
    expect(location).toMatch(/^\/console\/api\/vaults\/vault_/)
    expect((await browser.call('GET', location)).status).toBe(200)
  })

  it('leads to the resource of the agent API', async () => {
    const { call } = await startApi()
    const token = await call('POST', '/tokens', { name: 'site monitor' })
    const spec = { protocol: 'http', forwards_to: 'localhost:1', domain: 'a.site.test' }
    const tunnel = await call('PUT', '/tunnels/a.site.test', spec)
    expect([token.status, tunnel.status]).toEqual([201, 201])
    const foundToken = await call('GET', String(token.headers.location))
    expect(foundToken.json).toMatchObject({ id: token.json.id, name: 'site monitor' })
    const foundTunnel = await call('GET', String(tunnel.headers.location))
    expect(foundTunnel.json).toMatchObject({ domain: 'a.site.test' })
  })
})

describe('HEAD', () => {
  it('answers like GET, without the body', async () => {
    const { baseUrl, key } = await startManagementApi()
    const headers = { authorization: `Bearer ${key.reveal()}`, 'svc-version': '2' }
    for (const path of ['/vaults', '/nothing', '/healthz']) {
      const ask = (method: string) => fetch(`${baseUrl}${path}`, { method, headers })
      const [get, head] = [await ask('GET'), await ask('HEAD')]
      expect([head.status, await head.text()], path).toEqual([get.status, ''])
      const body = await get.text()
      expect(head.headers.get('content-length'), path).toBe(String(body.length))
    }
  })
})

describe('the fields of an error', () => {
  const FIELDS = ['details', 'error_code', 'msg', 'status_code']

  it('are the same in each answer of the management API', async () => {
    const { call } = await startManagementApi()
    const json = { 'content-type': 'application/json' }
    const large = JSON.stringify({ description: 'x'.repeat(70_000) })
    const refused = [
      await call('GET', '/nothing'),
      await call('GET', '/api_keys/ak_1'),
      await call('PUT', '/api_keys'),
      await call('GET', '/api_keys', { key: null }),
      await call('GET', '/api_keys?limt=1'),
      await call('GET', '/api_keys/ak_1?limit=1'),
      await call('POST', '/api_keys', { body: { nmae: 'a' } }),
      await call('POST', '/api_keys', { headers: json, body: large }),
      await call('GET', '/console/nothing'),
    ]
    expect(refused.map(({ status }) => status)).toEqual([
      404, 404, 405, 403, 400, 400, 400, 413, 404,
    ])
    for (const { status, body } of refused) {
      expect(Object.keys(body).sort()).toEqual(FIELDS)
      expect(body.status_code).toBe(status)
      expect(body.error_code).toMatch(/^ERR_(?:NGROK_\d+|GATEWAY_[A-Z_]+)$/)
      expect(body.details.operation_id).toMatch(/^op_/)
    }
    expect(refused[4]?.body.msg).toBe('Unknown query parameter limt. Did you mean limit?')
    expect(refused[5]?.body.msg).toBe(
      'Unknown query parameter limit. This request has no query parameters.',
    )
    expect(refused[6]?.body.msg).toBe('The body has unknown fields: nmae. Did you mean name?')
  })

  it('are the same where a request is not valid HTTP', async () => {
    const { addresses } = await startGateway()
    const socket = connect(addresses.api.port, '127.0.0.1')
    await once(socket, 'connect')
    socket.write('NONSENSE\r\n\r\n')
    const [head = '', body = ''] = (await text(socket)).split('\r\n\r\n')
    expect(head).toMatch(/^HTTP\/1\.1 400 .*\r\ncontent-type: application\/json/)
    expect(Object.keys(JSON.parse(body)).sort()).toEqual(FIELDS)
  })

  it('are those of problem details in the agent API', async () => {
    const { call } = await startApi()
    const refused = [
      await call('GET', '/nothing'),
      await call('PATCH', '/tunnels'),
      await call('GET', '/tunnels', undefined, { authorization: undefined }),
      await call('GET', '/audit?limt=1'),
      await call('POST', '/tunnels', { protocol: 'http', forwardsTo: 'a' }),
    ]
    expect(refused.map(({ status }) => status)).toEqual([404, 405, 401, 400, 400])
    for (const { headers, json } of refused) {
      expect(headers['content-type']).toBe('application/problem+json')
      expect(json).toMatchObject({
        type: `urn:device-agent:problem:${json.code}`,
        request_id: headers['x-request-id'],
      })
    }
    expect(refused[3]?.json.errors).toEqual([
      { pointer: '/limt', detail: 'is unknown. Did you mean limit?' },
    ])
    expect(refused[4]?.json.errors).toContainEqual({
      pointer: '/forwardsTo',
      detail: 'is unknown. Did you mean forwards_to?',
    })
  })
})

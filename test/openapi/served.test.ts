import { describe, expect, it } from 'vitest'
import { agentApiDocument } from '../../src/api/openapi-document.ts'
import { managementApiDocument } from '../../src/gateway/management/openapi-document.ts'
import type { OpenApiDocument } from '../../src/http/openapi.ts'
import { startApi } from '../api/started-api.ts'
import { startManagementApi } from '../helpers/management-client.ts'
import { OpenApiCheck } from '../helpers/openapi-check.ts'

describe('/openapi.json', () => {
  it('is served by the agent to who has the token', async () => {
    const { call } = await startApi()
    const { status, json } = await call('GET', '/openapi.json')
    expect([status, json]).toEqual([200, agentApiDocument()])
    const open = await call('GET', '/openapi.json', undefined, { authorization: undefined })
    expect(open.status).toBe(401)
  })

  it('is served by the management API to who has a key', async () => {
    const { call } = await startManagementApi()
    const { status, body } = await call('GET', '/openapi.json')
    expect([status, body]).toEqual([200, managementApiDocument()])
    expect((await call('GET', '/openapi.json', { key: null })).status).toBe(403)
  })
})

const METHODS = ['get', 'post', 'put', 'patch', 'delete']

/** Every path of a document with every method, and whether the document has the two together. */
function pairsOf({ paths }: OpenApiDocument) {
  return Object.entries(paths).flatMap(([path, operations]) =>
    METHODS.map((method) => ({
      method: method.toUpperCase(),
      path: path.replace(/\{\w+\}/, 'x_1'),
      isDocumented: method in operations,
    })),
  )
}

describe('what is documented', () => {
  it('is what the agent serves', async () => {
    const { call } = await startApi()
    for (const { method, path, isDocumented } of pairsOf(agentApiDocument())) {
      // It does not end.
      if (path === '/events' && method === 'GET') continue
      const { json } = await call(method, path)
      expect(json?.code !== 'method-not-allowed', `${method} ${path}`).toBe(isDocumented)
    }
  })

  it('is what the management API serves', async () => {
    const { call, issuer } = await startManagementApi()
    for (const { method, path, isDocumented } of pairsOf(managementApiDocument())) {
      // A key of its own for each: they may not ask as often as this.
      const key = (await issuer.createApiKey({})).token
      const { body } = await call(method, path, { key, body: method === 'GET' ? undefined : {} })
      expect(body?.details?.path === undefined, `${method} ${path}`).toBe(isDocumented)
    }
  })
})

describe('OpenApiCheck', () => {
  const TUNNEL = { url: 'u', protocol: 'http', forwards_to: 'f', domain: 'd', policy: null }
  const checked = (changes: object) => () =>
    new OpenApiCheck(agentApiDocument()).check({
      method: 'POST',
      path: '/tunnels',
      status: 200,
      contentType: 'application/json; charset=utf-8',
      text: JSON.stringify(TUNNEL),
      ...changes,
    })

  it('takes what the document describes', () => {
    expect(checked({})).not.toThrow()
  })

  it.each([
    ['a field that is not described', { text: JSON.stringify({ ...TUNNEL, colour: 'red' }) }],
    ['a field of another type', { text: JSON.stringify({ ...TUNNEL, url: 7 }) }],
    ['another status', { status: 201 }],
    ['another path', { path: '/nothing' }],
    ['another content-type', { contentType: 'text/plain' }],
    ['an error that is none', { status: 409 }],
    ['a body where none belongs', { method: 'DELETE', path: '/tunnels/a', status: 204 }],
  ])('refuses %s', (_what, changes) => {
    expect(checked(changes)).toThrow()
  })
})

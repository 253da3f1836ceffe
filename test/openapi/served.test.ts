import express, { type Express } from 'express'
import { describe, expect, it } from 'vitest'
import { PROBE_PATH } from '../../src/agent/probes/self-probe.ts'
import type { OpenApiDocument } from '../../src/http/openapi.ts'
import { startApi } from '../api/started-api.ts'
import { startManagementApi } from '../helpers/management-client.ts'
import { OpenApiCheck } from '../helpers/openapi-check.ts'

describe('/openapi.json', () => {
  it('is served by the agent to who has the token', async () => {
    const { call, document } = await startApi()
    const { status, json } = await call('GET', '/openapi.json')
    expect([status, json]).toEqual([200, document])
    const open = await call('GET', '/openapi.json', undefined, { authorization: undefined })
    expect(open.status).toBe(401)
  })

  it('is served by the management API to who has a key', async () => {
    const { call, document } = await startManagementApi()
    const { status, body } = await call('GET', '/openapi.json')
    expect([status, body]).toEqual([200, document])
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

describe('documented routes', () => {
  it('are served by the agent', async () => {
    const { call, document } = await startApi()
    for (const { method, path, isDocumented } of pairsOf(document)) {
      // It does not end.
      if (path === '/events' && method === 'GET') continue
      const { json } = await call(method, path)
      expect(json?.code !== 'method-not-allowed', `${method} ${path}`).toBe(isDocumented)
    }
  })

  it('are served by the management API', async () => {
    const { call, issuer, document } = await startManagementApi()
    for (const { method, path, isDocumented } of pairsOf(document)) {
      // A key of its own for each: they may not ask as often as this.
      const key = (await issuer.createApiKey({})).token
      const { status, body } = await call(method, path, {
        key,
        body: method === 'GET' ? undefined : {},
      })
      expect(body?.details?.path, `${method} ${path}`).toBeUndefined()
      expect(status !== 405, `${method} ${path}`).toBe(isDocumented)
    }
  })
})

/** The part of a layer of an Express router that the walk reads. */
interface Layer {
  readonly route?: { readonly path: string; readonly methods: Readonly<Record<string, boolean>> }
  readonly handle: { readonly stack?: readonly Layer[] }
  /** The path that it is mounted at. */
  readonly rawPath: string
}

/** Every method and path that the routers of an app serve. */
function servedBy(layers: readonly Layer[], prefix = ''): string[] {
  return layers.flatMap(({ route, handle, rawPath }) => {
    if (typeof rawPath !== 'string') throw new Error('only paths in one piece are understood')
    const path = prefix + rawPath.replace(/:(\w+)/g, '{$1}')
    const served = METHODS.filter((method) => route?.methods[method])
    return route
      ? served.map((method) => `${method} ${path}`)
      : servedBy(handle.stack ?? [], path.replace(/\/$/, ''))
  })
}

const layersOf = (app: Express) => app.router.stack as unknown as readonly Layer[]
const documentedIn = ({ paths }: OpenApiDocument, prefix = '') =>
  Object.entries(paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method) => `${method} ${prefix}${path}`),
  )

describe('served routes', () => {
  it('are documented by the agent, or internal', async () => {
    const { app, socketApp, document } = await startApi()
    const documented = documentedIn(document)
    const onPage = /\/(?:tunnels|status|services|traffic|doctor|log|storage)\b/
    const page = documentedIn(document, '/page/api').filter((route) => onPage.test(route))
    const internal = ['get /', 'get /page/session', 'post /page/session', 'delete /page/session']
    const probe = `get ${PROBE_PATH}/{nonce}`
    const ofDevice = [...documented, ...page, ...internal, probe]
    expect(servedBy(layersOf(app)).sort()).toEqual(ofDevice.sort())
    const ofSocket = [...documented, probe, 'post /page_codes']
    expect(servedBy(layersOf(socketApp)).sort()).toEqual(ofSocket.sort())
  })

  it('are documented by the management API, or internal', async () => {
    const { app, document } = await startManagementApi()
    const notInConsole = /\/(?:batch|storage|metrics|openapi\.json|healthz|readyz)\b/
    const console = documentedIn(document, '/console/api').filter((it) => !notInConsole.test(it))
    const internal = [
      'get /',
      'get /console/session',
      'post /console/session',
      'delete /console/session',
      'post /console/error_page_preview',
      'post /console/api/qr_codes',
      'get /console/api/device_rows',
      'get /console/api/device_details/{id}',
      'get /console/api/endpoint_rows',
    ]
    const declared = [...documentedIn(document), ...console, ...internal]
    expect(servedBy(layersOf(app)).sort()).toEqual(declared.sort())
  })

  it('are seen where a router has a route of its own', () => {
    const inner = express.Router().get('/secret', () => {})
    const app = express()
      .use(express.Router().use('/console', inner))
      .post('/any', () => {})
    expect(servedBy(layersOf(app))).toEqual(['get /console/secret', 'post /any'])
  })
})

describe('OpenApiCheck', () => {
  const TUNNEL = { url: 'u', protocol: 'http', forwards_to: 'f', domain: 'd', policy: null }
  const checked = async (changes: object) => {
    const { document } = await startApi()
    new OpenApiCheck(document).check({
      method: 'POST',
      path: '/tunnels',
      status: 200,
      contentType: 'application/json; charset=utf-8',
      text: JSON.stringify(TUNNEL),
      ...changes,
    })
  }

  it('takes what the document describes', async () => {
    await checked({})
  })

  it.each([
    ['a field that is not described', { text: JSON.stringify({ ...TUNNEL, colour: 'red' }) }],
    ['a field of another type', { text: JSON.stringify({ ...TUNNEL, url: 7 }) }],
    ['another status', { status: 201 }],
    ['another path', { path: '/nothing' }],
    ['another content-type', { contentType: 'text/plain' }],
    ['an error that is none', { status: 409 }],
    ['a body where none belongs', { method: 'DELETE', path: '/tunnels/a', status: 204 }],
  ])('refuses %s', async (_what, changes) => {
    await expect(checked(changes)).rejects.toThrow()
  })
})

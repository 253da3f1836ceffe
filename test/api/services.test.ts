import { describe, expect, it } from 'vitest'
import { servicesRoute } from '../../src/api/services.ts'
import { createDeferred } from '../../src/base/deferred.ts'
import { type Caller, keepCaller } from '../../src/http/caller.ts'
import { mountRoutes } from '../../src/http/routes.ts'
import { ManualClock } from '../helpers/manual-clock.ts'
import { onWebPort } from '../helpers/on-web-port.ts'
import { appWith, sendRequest, serveHttp } from '../helpers/serve-http.ts'
import { socketTable } from '../helpers/socket-table.ts'
import { startApi } from './started-api.ts'

const WRITER: Caller = { actor: { kind: 'token', id: 'tok_0', name: 'test' }, scope: 'write' }

describe('GET /services', () => {
  it('has the services of the device, and neither the API nor the relays of the agent', async () => {
    const { server } = await onWebPort((port) =>
      serveHttp((_request, response) => void response.end('<title>Camera</title>'), {
        host: '127.0.0.1',
        port,
      }),
    )
    const serviceTables: string[] = []
    const own: { host: string; port: number }[] = []
    const forward = { allow: [], ownAddresses: () => own }
    const {
      call,
      agent,
      port: apiPort,
      service,
    } = await startApi({
      agent: { serviceTables, forward },
    })
    own.push({ host: '127.0.0.1', port: apiPort })
    const forwardsTo = `localhost:${server.port}`
    const { tunnel } = await agent.create({
      protocol: 'http',
      domain: 'cam.site.test',
      forwardsTo,
      policy: null,
    })
    await agent.inspections.start(tunnel, 60_000)
    const dialled = service.connector.last.endpoints.get('cam.site.test')?.dialUrl ?? ''
    const hop = Number(new URL(dialled).port)
    expect(hop).not.toBe(server.port)
    serviceTables.push(socketTable([apiPort], [hop], [server.port]))
    const { status, json } = await call('GET', '/services')
    const camera = {
      port: server.port,
      forwards_to: forwardsTo,
      protocol: 'http',
      http_checked: true,
      title: 'Camera',
    }
    expect([status, json]).toEqual([200, { services: [camera] }])
    const unknown = await call('GET', '/services', undefined, { authorization: undefined })
    expect(unknown.status).toBe(401)
  })

  it('needs the scope write, because it contacts the services', async () => {
    const { call, tokens } = await startApi()
    const reader = tokens.create({ name: 'viewer', scope: 'read', expiresAt: null })
    const headers = { authorization: `Bearer ${reader.secret.reveal()}` }
    const { status, json } = await call('GET', '/services', undefined, headers)
    expect([status, json.code]).toEqual([403, 'insufficient-scope'])
  })

  it('searches once for all who ask at the same time and in the next 30 s', async () => {
    const clock = new ManualClock()
    let [arrived, searches] = [0, 0]
    const allAreHere = createDeferred<void>()
    const findServices = async () => {
      searches += 1
      await allAreHere.promise
      if (searches === 2) throw new Error('stopped')
      return []
    }
    const app = appWith((it) => {
      it.use((_request, response, next) => {
        keepCaller(response, WRITER, () => {})
        next()
        arrived += 1
        if (arrived === 5) allAreHere.resolve()
      })
      it.use(mountRoutes([servicesRoute({ findServices }, clock)]))
    })
    const { at } = await serveHttp(app)
    const ask = async () => (await sendRequest(at, { path: '/services' })).status
    const first = await Promise.all(Array.from({ length: 5 }, ask))
    expect([first, searches]).toEqual([[200, 200, 200, 200, 200], 1])
    await clock.advance(29_999)
    expect([await ask(), searches]).toEqual([200, 1])
    await clock.advance(1)
    // A failure is not kept.
    expect([await ask(), await ask(), searches]).toEqual([500, 200, 3])
  })
})

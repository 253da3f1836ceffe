import { describe, expect, it } from 'vitest'
import { doctorRoute } from '../../../src/api/diagnosis/doctor.ts'
import { createDeferred } from '../../../src/base/deferred.ts'
import { mountRoutes } from '../../../src/http/routes.ts'
import { appWith, sendRequest, serveHttp } from '../../helpers/serve-http.ts'
import { startApi } from '../started-api.ts'

describe('GET /doctor', () => {
  it('answers what was found, and counts what does not hold', async () => {
    const { call, doctor } = await startApi()
    const good = { check: 'disk', outcome: 'good', detail: 'fine', remedy: null } as const
    const bad = {
      check: 'dns',
      outcome: 'bad',
      detail: 'no such name',
      remedy: 'Mend it.',
    } as const
    doctor.findings = [good, bad]
    const { status, json } = await call('GET', '/doctor')
    expect([status, json]).toEqual([
      200,
      { examined_at: expect.any(String), failures: 1, findings: [good, bad] },
    ])
  })

  it('looks once for all who ask at the same time, and again for who asks later', async () => {
    let [arrived, looks] = [0, 0]
    const allAreHere = createDeferred<void>()
    const app = appWith((it) => {
      it.use((_request, _response, next) => {
        next()
        arrived += 1
        if (arrived === 5) allAreHere.resolve()
      })
      const examine = async () => {
        looks += 1
        await allAreHere.promise
        return []
      }
      it.use(mountRoutes([doctorRoute(examine, Date.now)]))
    })
    const { at } = await serveHttp(app)
    await Promise.all(Array.from({ length: 5 }, () => sendRequest(at, { path: '/doctor' })))
    expect(looks).toBe(1)
    await sendRequest(at, { path: '/doctor' })
    expect(looks).toBe(2)
  })

  it('is for who may read', async () => {
    const { call, doctor } = await startApi()
    expect((await call('GET', '/doctor', undefined, { authorization: undefined })).status).toBe(401)
    expect(doctor.looks).toBe(0)
  })
})

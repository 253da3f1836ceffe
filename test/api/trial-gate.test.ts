import { describe, expect, it } from 'vitest'
import { startApi } from './started-api.ts'

describe('the API of a version on trial', () => {
  it('refuses changes until it stays, and answers questions', async () => {
    let isOnTrial = true
    const { call } = await startApi({
      update: { isOnTrial: () => isOnTrial, report: () => undefined },
    })
    const spec = { protocol: 'http', forwards_to: 'localhost:8001', domain: 'a.site.test' }
    for (const [method, path] of [
      ['POST', '/tunnels'],
      ['PUT', '/tunnels'],
      ['DELETE', '/tunnels/a.site.test'],
      ['POST', '/tokens'],
    ] as const) {
      const { status, json, headers } = await call(
        method,
        path,
        method === 'DELETE' ? undefined : spec,
      )
      expect([status, json.code, headers['retry-after']]).toEqual([
        503,
        'storage-unavailable',
        '10',
      ])
    }
    expect((await call('GET', '/tunnels')).status).toBe(200)
    isOnTrial = false
    expect((await call('POST', '/tunnels', spec)).status).toBe(200)
  })

  it('says in /status how the update stands', async () => {
    const report = {
      state: 'rolled-back',
      from: '1.0.0',
      to: '1.1.0',
      reason: 'it had no link',
      sentence: 'Version 1.0.0 runs.',
    } as const
    const { call } = await startApi({ update: { isOnTrial: () => false, report: () => report } })
    expect((await call('GET', '/status')).json.update).toEqual(report)
    const { call: callOther } = await startApi()
    expect((await callOther('GET', '/status')).json.update).toBeNull()
  })
})

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { eventually } from '../helpers/eventually.ts'
import { startApi } from './started-api.ts'

const SPEC = { protocol: 'http', forwards_to: 'localhost:8001', domain: 'device1.site.test' }
const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/)

describe('/healthz', () => {
  it('does not mind that the service is away', async () => {
    const { call, service } = await startApi()
    service.goAway()
    expect((await call('GET', '/healthz')).status).toBe(200)
  })

  it('fails with the database', async () => {
    const { call, database } = await startApi()
    database.close()
    expect((await call('GET', '/healthz')).status).toBeGreaterThanOrEqual(500)
  })

  it('answers HEAD', async () => {
    const { call } = await startApi()
    const { status, text } = await call('HEAD', '/healthz')
    expect([status, text]).toEqual([200, ''])
  })
})

describe('/readyz', () => {
  it('is 200 while tunnels carry traffic, else 503 with the reasons', async () => {
    const { call, service } = await startApi()
    const before = await call('GET', '/readyz')
    expect([before.status, before.json]).toEqual([
      200,
      { ready: true, reasons: [], unverified: [] },
    ])
    service.goAway()
    await eventually(async () => {
      const { status, json } = await call('GET', '/readyz')
      expect([status, json]).toEqual([
        503,
        { ready: false, reasons: [expect.any(String)], unverified: [] },
      ])
    })
  })
})

describe('/status', () => {
  it('says in one object how the device is', async () => {
    const { call } = await startApi()
    await call('POST', '/tunnels', SPEC)
    const { status, json } = await call('GET', '/status')
    expect(status).toBe(200)
    expect(json).toEqual({
      verdict: expect.stringMatching(/^(Checking the|The) tunnel/),
      advice: expect.any(Array),
      healthy: true,
      ready: true,
      unverified: [],
      started_at: TIME,
      device_id: expect.stringMatching(/\S/),
      link: {
        state: 'up',
        since: TIME,
        reason: null,
        remedy: null,
        last_error: null,
        service_code: null,
        next_retry_at: null,
        // The round trip of the connect, until a heartbeat tells another.
        latency_ms: expect.any(Number),
        server_addr: expect.stringMatching(/:\d+$/),
        renewal: null,
        duplicate: null,
        standby: null,
      },
      tunnels: expect.objectContaining({ online: 1, total: 1 }),
      damaged_rows: [],
      own_endpoint: null,
      default_policy: { source: 'file', loaded_at: TIME, problem: null },
      storage: {
        fault: null,
        problem: null,
        healed: null,
        unconfirmed: [],
        last_backup_at: null,
        put_aside: [],
      },
      resources: { state: 'enough', last_error: null, remedy: null },
      versions: { agent: '0.0.0-test', node: process.version, sdk: 'fake' },
      update: null,
      clock: { now: TIME, skew_ms: null },
    })
  })

  it('names reason and remedy of a link that is down', async () => {
    const { call, service } = await startApi()
    service.goAway()
    const { json } = await call('GET', '/status')
    expect(json).toMatchObject({
      healthy: false,
      link: { reason: 'network', remedy: expect.any(String), last_error: expect.any(String) },
    })
  })

  it('tells that a copy had to take the place of the database', async () => {
    const first = await startApi()
    await first.call('POST', '/tunnels', SPEC)
    await first.agent.stop()
    first.database.close()
    writeFileSync(join(first.folder, 'agent.db'), 'noise')
    const { call } = await startApi({ folder: first.folder })
    const { json } = await call('GET', '/status')
    expect(json.storage).toEqual({
      fault: null,
      problem: null,
      healed: {
        damage: 'corrupt',
        copy: 'journal',
        restored_from: TIME,
        missing: 0,
        may_be_more: false,
      },
      unconfirmed: [],
      last_backup_at: TIME,
      put_aside: [expect.stringMatching(/^agent\.db\.corrupt-/)],
    })
    expect((await call('GET', '/tunnels')).json).toHaveLength(1)
  })
})

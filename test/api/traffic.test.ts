import { describe, expect, it } from 'vitest'
import { linkUp } from '../helpers/agent-in-folder.ts'
import { agentOnGateway } from '../helpers/agent-on-gateway.ts'
import { startApi } from './started-api.ts'

describe('GET /traffic', () => {
  it('has the counts of the service for each tunnel, asked once in some seconds', async () => {
    const { call, agent, service } = await startApi()
    const spec = { protocol: 'http', forwardsTo: 'localhost:9', policy: null } as const
    const { tunnel } = await agent.create({ ...spec, domain: 'cam.site.test' })
    await agent.create({ ...spec, domain: 'door.site.test' })
    let asked = 0
    service.connector.onTraffic = async () => {
      asked += 1
      const counts = { requests: 7, errors: 2, bytesIn: 100, bytesOut: 2_000 }
      return [
        { domain: 'cam.site.test', ...counts },
        { domain: 'other.site.test', ...counts },
      ]
    }
    const cam = { id: tunnel.id, requests: 7, errors: 2, bytes_in: 100, bytes_out: 2_000 }
    const [one, two] = [await call('GET', '/traffic'), await call('GET', '/traffic')]
    expect([one.status, one.json]).toEqual([200, { tunnels: [cam] }])
    expect(two.json).toEqual(one.json)
    expect(asked).toBe(1)
    const unknown = await call('GET', '/traffic', undefined, { authorization: undefined })
    expect(unknown.status).toBe(401)
  })

  it('is null if the service does not tell it', async () => {
    const { call } = await startApi()
    expect((await call('GET', '/traffic')).json).toEqual({ tunnels: null })
  })

  it('is counted by our gateway', async () => {
    const { agent, createTunnels, visit } = await agentOnGateway()
    await agent.start()
    await linkUp(agent)
    await createTunnels('cam', 'door')
    for (let n = 0; n < 3; n += 1) expect(await visit('cam')).toBe('hello')
    const counts = await agent.traffic()
    expect(counts?.get('cam.site.test')).toMatchObject({ requests: 3, errors: 0 })
    expect(counts?.get('cam.site.test')?.bytesOut).toBeGreaterThan(15)
    expect(counts?.get('door.site.test')?.requests).toBe(0)
    expect([...(counts?.keys() ?? [])].sort()).toEqual(['cam.site.test', 'door.site.test'])
  })
})

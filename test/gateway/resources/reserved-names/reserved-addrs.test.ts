import { describe, expect, it } from 'vitest'
import { startManagementApi } from '../../../helpers/management-client.ts'

describe('reserved addresses', () => {
  it('are made, listed, shown, changed and given up', async () => {
    const { call, baseUrl, trail } = await startManagementApi()
    const addr = 'gw.site.test:20005'
    const made = await call('POST', '/reserved_addrs', { body: { addr, description: 'press' } })
    expect(made.status).toBe(201)
    const path = `/reserved_addrs/${made.body.id}`
    expect(made.body).toEqual({
      id: expect.stringMatching(/^ra_/),
      uri: `${baseUrl}${path}`,
      created_at: '2030-01-01T00:00:00Z',
      description: 'press',
      metadata: '',
      addr,
      region: '',
    })
    const drawn = await call('POST', '/reserved_addrs', { body: {} })
    expect(drawn.body.addr).toMatch(/^gw\.site\.test:2000[0-7]$/)
    const { body } = await call('GET', '/reserved_addrs')
    expect(body.reserved_addrs).toEqual([drawn.body, made.body])
    const changed = await call('PATCH', path, { body: { metadata: '{}' } })
    expect(changed.body).toEqual({ ...made.body, metadata: '{}' })
    expect((await call('GET', path)).body).toEqual(changed.body)
    expect((await call('PATCH', path, { body: {} })).body.error_code).toBe('ERR_NGROK_422')
    expect((await call('DELETE', path)).status).toBe(204)
    expect((await call('GET', path)).status).toBe(404)
    expect(trail.page({ limit: 9 }).map(({ targetName }) => targetName)).toContain(addr)
  })

  it('are told in the service’s words when they cannot be', async () => {
    const { call } = await startManagementApi()
    const body = { addr: 'elsewhere.test:1' }
    const refused = await call('POST', '/reserved_addrs', { body })
    expect([refused.status, refused.body.error_code]).toEqual([400, 'ERR_NGROK_400'])
    expect(refused.body.msg).toContain('gw.site.test:20000 to gw.site.test:20007')
  })

  it('are each bot user’s own, with leave for them', async () => {
    const { call, issuer } = await startManagementApi()
    const { id: ownerId } = await issuer.createBotUser({ name: 'press' })
    const { token: key } = await issuer.createApiKey({ ownerId, isOwnerOnly: true })
    const own = await call('POST', '/reserved_addrs', { key, body: {} })
    expect(own.body.owner_id).toBe(ownerId)
    const { body: other } = await call('POST', '/reserved_addrs', { body: {} })
    const { body } = await call('GET', '/reserved_addrs', { key })
    expect(body.reserved_addrs).toEqual([own.body])
    expect((await call('DELETE', `/reserved_addrs/${other.id}`, { key })).status).toBe(404)
    const give = (acl: string[]) => call('POST', '/credentials', { key, body: { acl } })
    expect((await give([`bind:${own.body.addr}`])).status).toBe(201)
    expect((await give([`bind:${other.addr}`])).status).toBe(403)
    expect((await give(['bind:gw.site.test'])).status).toBe(403)
  })
})

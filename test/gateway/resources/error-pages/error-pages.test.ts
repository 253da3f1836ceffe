import { describe, expect, it } from 'vitest'
import { startManagementApi } from '../../../helpers/management-client.ts'

const HTML = '<!doctype html><title>{{title}}</title><p>{{message}}</p>'

/** Two accounts with a domain and a key each. */
async function startAccounts() {
  const api = await startManagementApi()
  const account = async (name: string) => {
    const { body: user } = await api.call('POST', '/bot_users', { body: { name } })
    const domain = { domain: `*.${name}.test`, owner_id: user.id }
    const { body: reserved } = await api.call('POST', '/reserved_domains', { body: domain })
    const { token } = await api.issuer.createApiKey({
      description: name,
      ownerId: user.id,
      isOwnerOnly: true,
    })
    return { id: String(user.id), domainId: String(reserved.id), key: token }
  }
  return { ...api, a: await account('a'), b: await account('b') }
}

describe('error pages', () => {
  it('are made, changed and deleted', async () => {
    const { call, baseUrl, a } = await startAccounts()
    const asked = { kind: 'offline', reserved_domain_id: a.domainId, html: HTML }
    const { status, body: made } = await call('POST', '/error_pages', { body: asked })
    expect(status).toBe(201)
    expect(made).toEqual({
      id: expect.stringMatching(/^epg_/),
      uri: `${baseUrl}/error_pages/${made.id}`,
      created_at: '2030-01-01T00:00:00Z',
      description: '',
      metadata: '',
      kind: 'offline',
      reserved_domain: { id: a.domainId, uri: `${baseUrl}/reserved_domains/${a.domainId}` },
      owner_id: a.id,
      in_use: true,
      size: HTML.length,
      html: HTML,
    })
    const one = `/error_pages/${made.id}`
    const changed = await call('PATCH', one, { body: { html: 'é', description: 'd' } })
    const { html: _, ...listed } = { ...made, size: 2, description: 'd' }
    expect(changed.body).toEqual({ ...listed, html: 'é' })
    expect((await call('GET', one)).body).toEqual(changed.body)
    expect((await call('GET', '/error_pages')).body.error_pages).toEqual([listed])
    expect((await call('DELETE', one)).status).toBe(204)
    expect((await call('GET', one)).status).toBe(404)
  })

  it('have one for each kind of a place', async () => {
    const { call, a } = await startAccounts()
    const make = (kind: string, reserved_domain_id?: string) =>
      call('POST', '/error_pages', { body: { kind, reserved_domain_id, html: 'x' } })
    expect((await make('offline', a.domainId)).status).toBe(201)
    expect((await make('busy', a.domainId)).status).toBe(201)
    expect((await make('offline')).status).toBe(201)
    for (const again of [await make('offline', a.domainId), await make('offline')]) {
      expect(again.status).toBe(400)
      expect(again.body.msg).toContain('is for the same kind and domain')
    }
  })

  it.each([
    [{ html: '<p>\n {{upstream}}' }, 'Line 2, column 2: {{upstream}} is unknown'],
    [{ html: '<script>"{{host}}"</script>' }, 'The element script cannot have placeholders'],
    [{ html: 'é'.repeat(32_769) }, 'The page has 65538 bytes; at most 65536 are allowed'],
    [{ html: 'a\ud800' }, 'half a surrogate pair'],
    [{ html: 'x', kind: 'teapot' }, 'The field kind is not valid'],
    [{ html: 'x', owner_id: null }, 'unknown fields: owner_id'],
    [{ html: 'x', reserved_domain_id: 'rd_0' }, 'The reserved domain rd_0 does not exist'],
  ])('are refused with the reason: %j', async (body, msg) => {
    const { call } = await startManagementApi()
    const answer = await call('POST', '/error_pages', { body: { kind: 'offline', ...body } })
    expect([answer.status, answer.body.msg]).toEqual([400, expect.stringContaining(msg)])
  })

  it('take a page of 64 KiB, and no endless body', async () => {
    const { call } = await startManagementApi()
    const html = '"'.repeat(65_536)
    const made = await call('POST', '/error_pages', { body: { kind: 'offline', html } })
    expect([made.status, made.body.html]).toEqual([201, html])
    const huge = { kind: 'busy', html: 'x'.repeat(600_000) }
    expect((await call('POST', '/error_pages', { body: huge })).status).toBe(413)
  })

  it('of an account are for its own domains', async () => {
    const { call, a, b } = await startAccounts()
    const make = (reserved_domain_id?: string) =>
      call('POST', '/error_pages', {
        key: a.key,
        body: { kind: 'offline', reserved_domain_id, html: 'x' },
      })
    expect((await make(a.domainId)).status).toBe(201)
    const foreign = await make(b.domainId)
    expect([foreign.status, foreign.body.msg]).toEqual([400, expect.stringContaining('not exist')])
    expect((await make()).status).toBe(403)
    const { body: others } = await call('POST', '/error_pages', {
      body: { kind: 'offline', reserved_domain_id: b.domainId, html: 'x' },
    })
    const one = `/error_pages/${others.id}`
    for (const [method, body] of [['GET'], ['PATCH', { html: 'y' }], ['DELETE']] as const) {
      expect((await call(method, one, { key: a.key, ...(body && { body }) })).status).toBe(404)
    }
    const listed = await call('GET', '/error_pages', { key: a.key })
    expect(listed.body.error_pages).toHaveLength(1)
  })

  it('go with their domain and with their account', async () => {
    const { call, a, b } = await startAccounts()
    for (const { domainId } of [a, b]) {
      const body = { kind: 'offline', reserved_domain_id: domainId, html: 'x' }
      expect((await call('POST', '/error_pages', { body })).status).toBe(201)
    }
    await call('DELETE', `/reserved_domains/${a.domainId}`)
    await call('DELETE', `/bot_users/${b.id}`)
    expect((await call('GET', '/error_pages')).body.error_pages).toEqual([])
  })

  it('are not in use when their domain belongs to another account', async () => {
    const { call, a, b } = await startAccounts()
    const body = { kind: 'offline', reserved_domain_id: a.domainId, html: 'x' }
    const { body: made } = await call('POST', '/error_pages', { body })
    await call('PATCH', `/reserved_domains/${a.domainId}`, { body: { owner_id: b.id } })
    const { body: now } = await call('GET', `/error_pages/${made.id}`)
    expect(now).toMatchObject({ owner_id: a.id, in_use: false })
    expect((await call('POST', '/error_pages', { body })).body.owner_id).toBe(b.id)
  })

  it('are limited for each account', async () => {
    const { call, a, errorPageStore, database } = await startAccounts()
    const page = { ownerId: a.id, html: 'x', description: '', metadata: '', createdAt: 0 }
    await database.change(() => {
      for (let at = 0; at < 100; at += 1) {
        const id = `epg_${String(at).padStart(27, '0')}`
        errorPageStore.insert({ ...page, id, domainId: a.domainId, kind: `k${at}` as 'busy' })
      }
    })
    const body = { kind: 'offline', reserved_domain_id: a.domainId, html: 'x' }
    const refused = await call('POST', '/error_pages', { body })
    expect([refused.status, refused.body.error_code]).toEqual([409, 'ERR_NGROK_18021'])
  })
})

import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { listBackups } from '../../../../src/store/backup.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'
import type { ManualClock } from '../../../helpers/manual-clock.ts'
import { sendRequest } from '../../../helpers/serve-http.ts'

const DAY_MS = 24 * 60 * 60_000
const DENY = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] })

const isoIn = (ms: number, clock: ManualClock) => new Date(clock.now() + ms).toISOString()

async function startWithKeys() {
  const site = await startManagementApi()
  const make = async (settings: object) => {
    const { status, body } = await site.call('POST', '/api_keys', { body: settings })
    expect(status).toBe(201)
    return { id: String(body.id), token: String(body.token), body }
  }
  return { ...site, make }
}

describe('an API key', () => {
  it('has a name, a scope, an end and a time of last use, and shows them', async () => {
    const { call, make, clock } = await startWithKeys()
    const expires_at = isoIn(DAY_MS, clock)
    const { id, token, body } = await make({ name: ' robot ', scope: 'read', expires_at })
    const settings = { name: 'robot', scope: 'read', owner_only: false, last_used_at: null }
    expect(body).toMatchObject({ ...settings, expires_at: `${expires_at.slice(0, 19)}Z` })
    await call('GET', '/endpoints', { key: token })
    const { body: shown } = await call('GET', `/api_keys/${id}`)
    expect(shown).toMatchObject({ ...settings, token: null, last_used_at: expect.any(String) })
    const change = { name: 'arm', scope: 'write', expires_at: null }
    const { body: changed } = await call('PATCH', `/api_keys/${id}`, { body: change })
    expect(changed).toMatchObject(change)
    const filter = encodeURIComponent('obj.scope == "write" && obj.name == "arm"')
    const { body: list } = await call('GET', `/api_keys?filter=${filter}`)
    expect(list.keys.map((key: { id: string }) => key.id)).toEqual([id])
  })

  it('is called after its description, or its id, by clients that know no names', async () => {
    const { make } = await startWithKeys()
    expect((await make({ description: 'terraform' })).body.name).toBe('terraform')
    const nameless = await make({})
    expect(nameless.body).toMatchObject({ name: nameless.id, scope: 'write', owner_only: false })
  })

  it.each([
    { name: ' ' },
    { name: 'x'.repeat(256) },
    { scope: 'admin' },
    { expires_at: 'tomorrow' },
    { expires_at: '2030-01-01' },
    { expires_at: '2000-01-01T00:00:00Z' },
    { owner_only: 'yes' },
  ])('is refused with %j, and stays as it was', async (settings) => {
    const { call, make } = await startWithKeys()
    const refused = await call('POST', '/api_keys', { body: settings })
    expect([refused.status, refused.body.error_code]).toEqual([400, 'ERR_NGROK_215'])
    const { id, body } = await make({ description: 'd' })
    expect((await call('PATCH', `/api_keys/${id}`, { body: settings })).status).toBe(400)
    expect((await call('GET', `/api_keys/${id}`)).body).toEqual({ ...body, token: null })
  })

  it.each([
    ['POST', '/reserved_domains', { domain: '*.site.test' }],
    ['POST', '/bot_users', { name: 'b' }],
    ['POST', '/credentials', {}],
    ['POST', '/api_keys', {}],
    ['POST', '/endpoints', { url: 'https://a.internal', traffic_policy: DENY }],
    ['POST', '/ip_policies', {}],
    ['PATCH', '/api_keys/SELF', { scope: 'write' }],
    ['DELETE', '/api_keys/SELF', undefined],
    ['POST', '/tunnel_sessions/ts_000000000000000000000000000/stop', undefined],
  ])('with the scope read is refused %s %s', async (method, path, body) => {
    const { call, make, apiKeys } = await startWithKeys()
    const { id, token } = await make({ name: 'viewer', scope: 'read' })
    const before = apiKeys.get(id)
    const target = path.replace('SELF', id)
    const answer = await call(method, target, { key: token, body })
    expect([answer.status, answer.body.error_code]).toEqual([403, 'ERR_GATEWAY_KEY_SCOPE'])
    expect(answer.body.msg).toBe('The API key "viewer" lacks the scope "write".')
    expect({ ...apiKeys.get(id), lastUsedAt: null }).toEqual({ ...before, lastUsedAt: null })
    expect((await call('GET', '/credentials', { key: token })).body.credentials).toEqual([])
    expect((await call('GET', '/bot_users', { key: token })).body.bot_users).toEqual([])
    expect((await call('GET', '/openapi.json', { key: token })).status).toBe(200)
  })

  it('is over when it ends, and said to be so', async () => {
    const { call, make, clock } = await startWithKeys()
    const { id, token } = await make({ name: 'guest', expires_at: isoIn(DAY_MS, clock) })
    await clock.advance(DAY_MS - 1)
    expect((await call('GET', '/endpoints', { key: token })).status).toBe(200)
    await clock.advance(1)
    const { status, body, headers } = await call('GET', '/endpoints', { key: token })
    expect([status, body.error_code]).toEqual([401, 'ERR_GATEWAY_KEY_EXPIRED'])
    expect(body.msg).toMatch(/^The API key "guest" expired on \d{4}-.*Z\. Use another key\.$/)
    expect(headers.get('www-authenticate')).toContain('invalid_token')
    await call('PATCH', `/api_keys/${id}`, { body: { expires_at: isoIn(DAY_MS, clock) } })
    expect((await call('GET', '/endpoints', { key: token })).status).toBe(200)
  })

  it.each<[string, object | undefined, number]>([
    ['deleted', undefined, 403],
    ['for reading alone', { scope: 'read' }, 403],
    ['to resources of its owner', { owner_only: true }, 403],
  ])('carries out nothing whose body comes when it is %s', async (_, change, status) => {
    const { call, make, baseUrl, apiKeys } = await startWithKeys()
    const { id, token } = await make({ name: 'robot' })
    const answer = await sendRequest(
      { port: Number(new URL(baseUrl).port) },
      {
        method: 'POST',
        path: '/api_keys',
        headers: {
          authorization: `Bearer ${token}`,
          'svc-version': '2',
          'content-type': 'application/json',
        },
        body: '{"name":"spare"}',
        beforeBody: () => call(change ? 'PATCH' : 'DELETE', `/api_keys/${id}`, { body: change }),
      },
    )
    expect(answer.status).toBe(status)
    expect(apiKeys.page({ limit: 9 }).map(({ name }) => name)).not.toContain('spare')
  })

  it('notes its use once a minute, and keeps that over a restart', async () => {
    const { make, call, clock, apiKeys, folder, database } = await startWithKeys()
    const { id, token } = await make({ name: 'robot' })
    const use = async () => {
      await call('GET', '/endpoints', { key: token })
      return apiKeys.get(id)?.lastUsedAt
    }
    const first = clock.now()
    expect(await use()).toBe(first)
    await clock.advance(59_999)
    expect(await use()).toBe(first)
    await clock.advance(1)
    expect(await use()).toBe(first + 60_000)
    await clock.advance(120_000)
    database.close()
    expect(openGatewayStores(folder).apiKeys.get(id)?.lastUsedAt).toBe(first + 60_000)
  })

  it('pushes no backup out by its use', async () => {
    const { make, call, clock, folder } = await startWithKeys()
    const { token } = await make({ name: 'robot' })
    await clock.advance(60_000)
    const backups = () => listBackups(join(folder, 'gateway.db')).map(({ number }) => number)
    const before = backups()
    for (let minute = 0; minute < 5; minute += 1) {
      await call('GET', '/endpoints', { key: token })
      await clock.advance(60_000)
    }
    expect(backups()).toEqual(before)
  })

  it('is good for reading while its use cannot be noted', async () => {
    const { call, make, database } = await startWithKeys()
    const { token } = await make({ name: 'robot' })
    database.prepare('PRAGMA query_only = 1').run()
    expect((await call('GET', '/endpoints', { key: token })).status).toBe(200)
    expect((await call('POST', '/bot_users', { body: { name: 'b' } })).status).toBe(503)
  })
})

describe('an API key that is good for its owner alone', () => {
  async function startWithOwners() {
    const site = await startWithKeys()
    const { call, make, registrar, issuer } = site
    const { id: a } = await issuer.createBotUser({ name: 'a' })
    const { id: b } = await issuer.createBotUser({ name: 'b' })
    await registrar.reserve({ domain: '*.free.test' })
    await registrar.reserve({ domain: '*.a.test', ownerId: a })
    await registrar.reserve({ domain: '*.b.test', ownerId: b })
    const credentials: string[] = []
    for (const ownerId of [a, b, null]) {
      credentials.push((await issuer.createCredential({ ownerId })).credential.id)
    }
    const { id, token } = await make({ name: 'site a', owner_id: a })
    const asA = (method: string, path: string, body?: object) =>
      call(method, path, { key: token, body })
    return { ...site, a, b, credentials, keyId: id, asA }
  }
  const idsOf = (items: { id: string }[]) => items.map(({ id }) => id)

  it('is what a bot user gets unless somebody says else', async () => {
    const { make, a } = await startWithOwners()
    expect((await make({ owner_id: a })).body.owner_only).toBe(true)
    expect((await make({ owner_id: a, owner_only: false })).body.owner_only).toBe(false)
  })

  it('lists and shows what belongs to the owner, page by page, and nothing else', async () => {
    const { asA, a, b, credentials, keyId, cloudEndpoints, issuer } = await startWithOwners()
    const [own, foreign, free] = credentials
    expect(idsOf((await asA('GET', '/credentials')).body.credentials)).toEqual([own])
    expect(idsOf((await asA('GET', '/api_keys')).body.keys)).toEqual([keyId])
    expect(idsOf((await asA('GET', '/bot_users')).body.bot_users)).toEqual([a])
    const { body } = await asA('GET', '/service_users')
    expect(idsOf(body.service_users)).toEqual([a.replace('bot_', 'service_')])
    const domains = (await asA('GET', '/reserved_domains')).body.reserved_domains
    expect(domains).toMatchObject([{ domain: '*.a.test', owner_id: a }])
    const policy = { trafficPolicy: DENY }
    for (const name of ['a', 'b', 'free']) {
      await cloudEndpoints.create({ ...policy, url: `https://x.${name}.test` }, { isGranted: true })
    }
    expect((await asA('GET', '/endpoints')).body.endpoints).toMatchObject([
      { host: 'x.a.test', owner_id: a, shared: false },
    ])
    for (const id of [foreign, free]) {
      expect((await asA('GET', `/credentials/${id}`)).status).toBe(404)
      expect((await asA('DELETE', `/credentials/${id}`)).status).toBe(404)
      expect((await asA('PATCH', `/credentials/${id}`, { description: 'x' })).status).toBe(404)
    }
    expect((await asA('GET', `/bot_users/${b}`)).status).toBe(404)
    expect((await asA('GET', '/ip_policies')).body.ip_policies).toEqual([])
    const filter = encodeURIComponent('obj.description == ""')
    expect(idsOf((await asA('GET', `/credentials?filter=${filter}`)).body.credentials)).toEqual([
      own,
    ])
    const more: string[] = []
    for (let n = 0; n < 3; n += 1) {
      more.push((await issuer.createCredential({ ownerId: a })).credential.id)
    }
    const first = (await asA('GET', '/credentials?limit=3')).body
    expect(idsOf(first.credentials)).toEqual(more.toReversed())
    const { pathname, search } = new URL(first.next_page_uri)
    const second = (await asA('GET', `${pathname}${search}`)).body
    expect([idsOf(second.credentials), second.next_page_uri]).toEqual([[own], null])
  })

  it('makes things of its owner, and of nobody else', async () => {
    const { asA, a, b, keyId } = await startWithOwners()
    const credential = await asA('POST', '/credentials', { acl: ['bind:x.a.test'] })
    expect([credential.status, credential.body.owner_id]).toEqual([201, a])
    const domain = await asA('POST', '/reserved_domains', { domain: '*.more.test' })
    expect([domain.status, domain.body.owner_id]).toEqual([201, a])
    const front = { url: 'https://x.a.test', traffic_policy: DENY }
    expect((await asA('POST', '/endpoints', front)).body.owner_id).toBe(a)
    const inner = { url: 'https://x.internal', traffic_policy: DENY }
    const { body: endpoint } = await asA('POST', '/endpoints', inner)
    expect(endpoint.owner_id).toBe(a)
    const key = await asA('POST', '/api_keys', { name: 'second' })
    expect(key.body).toMatchObject({ owner_id: a, owner_only: true })
    const forbidden: [method: string, path: string, body?: object][] = [
      ['POST', '/credentials', { owner_id: b }],
      ['POST', '/credentials', { owner_id: null }],
      ['POST', '/credentials', { acl: ['*'] }],
      ['POST', '/credentials', { acl: ['bind:*'] }],
      ['POST', '/credentials', { acl: ['bind:*.free.test'] }],
      ['POST', '/credentials', { acl: ['bind:x.a.test', 'bind:x.b.test'] }],
      ['POST', '/credentials', { acl: ['share:cam.internal'] }],
      ['PATCH', `/credentials/${credential.body.id}`, { acl: ['bind:*.free.test'] }],
      ['POST', '/reserved_domains', { domain: '*.other.test', owner_id: b }],
      ['PATCH', `/reserved_domains/${domain.body.id}`, { owner_id: null }],
      ['POST', '/endpoints', { ...inner, url: 'https://y.internal', shared: true }],
      ['POST', '/endpoints', { ...inner, url: 'https://y.internal', owner_id: b }],
      ['PATCH', `/endpoints/${endpoint.id}`, { shared: true }],
      ['POST', '/api_keys', { owner_id: b }],
      ['POST', '/api_keys', { owner_id: null }],
      ['POST', '/api_keys', { owner_only: false }],
      ['PATCH', `/api_keys/${keyId}`, { owner_only: false }],
      ['POST', '/bot_users', { name: 'c' }],
      ['PATCH', `/bot_users/${a}`, { active: false }],
      ['DELETE', `/bot_users/${a}`],
      ['POST', '/ip_policies', {}],
      ['POST', '/ip_policy_rules', { ip_policy_id: 'ipp_x', cidr: '10.0.0.0/8' }],
    ]
    for (const [method, path, body] of forbidden) {
      const answer = await asA(method, path, body)
      expect([method, path, body, answer.status, answer.body.error_code]).toEqual([
        method,
        path,
        body,
        403,
        'ERR_GATEWAY_KEY_OWNER',
      ])
    }
    const elsewhere = { ...front, url: 'https://z.free.test' }
    expect((await asA('POST', '/endpoints', elsewhere)).body.error_code).toBe('ERR_NGROK_319')
  })

  it('lets rules stay that others have given', async () => {
    const { asA, a, issuer } = await startWithOwners()
    const { credential } = await issuer.createCredential({
      ownerId: a,
      acl: ['bind:*.free.test', 'share:cam.internal'],
    })
    const acl = ['bind:*.free.test', 'bind:x.a.test']
    const kept = await asA('PATCH', `/credentials/${credential.id}`, { acl })
    expect([kept.status, kept.body.acl]).toEqual([200, acl])
    const back = { acl: ['share:cam.internal'] }
    expect((await asA('PATCH', `/credentials/${credential.id}`, back)).status).toBe(403)
  })

  it('gives no key more than it may do itself, also one of its owner', async () => {
    const { asA, call, make, a, clock } = await startWithOwners()
    const wide = { owner_id: a, owner_only: false, expires_at: isoIn(DAY_MS, clock) }
    const viewer = await make({ ...wide, name: 'sees everything', scope: 'read' })
    const changes = [{ scope: 'write' }, { expires_at: null }]
    for (const change of changes) {
      const refused = await asA('PATCH', `/api_keys/${viewer.id}`, change)
      expect([refused.status, refused.body.error_code]).toEqual([403, 'ERR_GATEWAY_KEY_OWNER'])
    }
    const less = { name: 'sees less', owner_only: true }
    expect((await asA('PATCH', `/api_keys/${viewer.id}`, less)).status).toBe(200)
    const { id } = await make({ name: 'sees for ever', scope: 'read' })
    const guest = await make({ name: 'guest', expires_at: isoIn(DAY_MS, clock) })
    const asGuest = { key: guest.token, body: { scope: 'write' } }
    const refused = await call('PATCH', `/api_keys/${id}`, asGuest)
    expect([refused.status, refused.body.error_code]).toEqual([403, 'ERR_GATEWAY_KEY_SCOPE'])
    const shorter = { scope: 'write', expires_at: isoIn(DAY_MS, clock) }
    const both = await call('PATCH', `/api_keys/${id}`, { key: guest.token, body: shorter })
    expect(both.status).toBe(200)
  })

  it('learns no ids of others from where its next page begins', async () => {
    const { asA, a, issuer } = await startWithOwners()
    const own = (await issuer.createCredential({ ownerId: a })).credential.id
    await issuer.createCredential({})
    const newest = (await issuer.createCredential({ ownerId: a })).credential.id
    for (const filter of ['', `&filter=${encodeURIComponent('obj.description == ""')}`]) {
      const { credentials, next_page_uri } = (await asA('GET', `/credentials?limit=1${filter}`))
        .body
      expect(idsOf(credentials)).toEqual([newest])
      expect(new URL(next_page_uri).searchParams.get('before_id')).toBe(newest)
      const { pathname, search } = new URL(next_page_uri)
      expect(idsOf((await asA('GET', `${pathname}${search}`)).body.credentials)).toEqual([own])
    }
  })

  it('that ends makes and leaves no key that ends later', async () => {
    const { call, make, clock } = await startWithOwners()
    const { id, token } = await make({ name: 'guest', expires_at: isoIn(DAY_MS, clock) })
    const asGuest = (method: string, path: string, body: object) =>
      call(method, path, { key: token, body })
    for (const settings of [{}, { expires_at: isoIn(DAY_MS + 1_000, clock) }]) {
      expect((await asGuest('POST', '/api_keys', settings)).status).toBe(403)
    }
    const within = { expires_at: isoIn(DAY_MS - 1_000, clock) }
    expect((await asGuest('POST', '/api_keys', within)).status).toBe(201)
    for (const expires_at of [null, isoIn(2 * DAY_MS, clock)]) {
      expect((await asGuest('PATCH', `/api_keys/${id}`, { expires_at })).status).toBe(403)
    }
    expect((await asGuest('PATCH', `/api_keys/${id}`, { name: 'visitor' })).status).toBe(200)
  })
})

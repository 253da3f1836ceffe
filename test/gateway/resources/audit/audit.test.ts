import { describe, expect, it } from 'vitest'
import { agentWithEndpoint } from '../../../helpers/connected-agent.ts'
import { ConsoleBrowser } from '../../../helpers/console-browser.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'

async function startAudited() {
  const api = await startManagementApi()
  const entries = async (query = '') => (await api.call('GET', `/audit${query}`)).body.entries
  const told = async (query = '') =>
    (await entries(query)).map(
      ({ action, target, result }: Record<string, never> & { target: { name: string } }) =>
        `${action} ${target.name} ${result}`,
    )
  const filtered = (filter: string) => told(`?filter=${encodeURIComponent(filter)}`)
  return { ...api, entries, told, filtered }
}

describe('the audit trail of the gateway', () => {
  it('tells each change with who, from where, what and its result', async () => {
    const { call, entries, baseUrl, apiKeys } = await startAudited()
    const created = await call('POST', '/bot_users', { body: { name: 'press-1' } })
    const { id } = created.body
    await call('PATCH', `/bot_users/${id}`, { body: { active: false } })
    const deleted = await call('DELETE', `/bot_users/${id}`)
    const [ownKey] = apiKeys.page({ limit: 1 })
    const who = { kind: 'api-key', id: ownKey?.id, name: 'test' }
    const same = { who, client: '127.0.0.1', target: { id, name: 'press-1' }, result: 'ok' }
    const [first, second, third] = await entries()
    expect(first).toEqual({
      ...same,
      id: `au_${'3'.padStart(27, '0')}`,
      uri: `${baseUrl}/audit/au_${'3'.padStart(27, '0')}`,
      created_at: '2030-01-01T00:00:00Z',
      action: 'bot_user.delete',
      changes: { name: ['press-1', null], active: [false, null] },
      request_id: deleted.headers.get('x-request-id'),
    })
    expect(second).toMatchObject({
      ...same,
      action: 'bot_user.update',
      changes: { active: [true, false] },
    })
    expect(third).toMatchObject({ ...same, action: 'bot_user.create' })
    expect((await call('GET', `/audit/${second.id}`)).body).toEqual(second)
  })

  it('shows URLs of webhooks by scheme and host alone', async () => {
    const { call, entries, logText } = await startAudited()
    const url = (key: string) => `https://hooks.example/services/T0/${key}?k=${key}`
    const { body } = await call('POST', '/webhook_endpoints', { body: { url: url('canary-1') } })
    expect(body.url).toBe(url('canary-1'))
    const path = `/webhook_endpoints/${body.id}`
    await call('PATCH', path, { body: { url: url('canary-2') } })
    await call('PATCH', path, { body: { url: 'https://b.example' } })
    await call('DELETE', path)
    const told = await entries()
    const masked = 'https://hooks.example/[secret]'
    expect(told.map(({ changes }: { changes: { url: unknown } }) => changes.url)).toEqual([
      ['https://b.example', null],
      [masked, 'https://b.example'],
      'changed',
      [null, masked],
    ])
    expect(told.at(-1).target.name).toBe(masked)
    expect(JSON.stringify(told) + logText()).not.toContain('canary')
  })

  it('says that of a secret alone that it changed', async () => {
    const { call, entries, logText } = await startAudited()
    const { body } = await call('POST', '/credentials', {
      body: { description: 'crane', metadata: 'canary-1', acl: ['bind:*.site.test'] },
    })
    await call('PATCH', `/credentials/${body.id}`, { body: { metadata: 'canary-2' } })
    const [update, create] = await entries()
    expect(create.changes).toEqual({
      description: [null, 'crane'],
      acl: [null, ['bind:*.site.test']],
      metadata: 'changed',
    })
    expect(update.changes).toEqual({ metadata: 'changed' })
    const seen = JSON.stringify([update, create]) + logText()
    expect(seen).not.toContain('canary')
    expect(seen).not.toContain(body.token)
  })

  it('tells of an endpoint that it was shared', async () => {
    const { call, entries } = await startAudited()
    const traffic_policy = '{"on_http_request":[{"actions":[{"type":"deny"}]}]}'
    const { body } = await call('POST', '/endpoints', {
      body: { url: 'https://cam.internal', traffic_policy },
    })
    await call('PATCH', `/endpoints/${body.id}`, { body: { shared: true } })
    const [update] = await entries()
    expect(update).toMatchObject({ action: 'endpoint.update', target: { id: body.id } })
    expect(update.changes).toEqual({ shared: [false, true] })
  })

  it('tells what was refused, by its code', async () => {
    const { call, told } = await startAudited()
    await call('POST', '/bot_users', { body: { name: 'press-1' } })
    await call('POST', '/bot_users', { body: { name: 'press-1' } })
    await call('POST', '/bot_users', { body: '{"broken' })
    await call('DELETE', `/bot_users/bot_${'0'.repeat(27)}`)
    await call('POST', '/bot_users', { body: { name: 'x' }, headers: { 'svc-version': '1' } })
    expect(await told()).toEqual([
      'bot_user.create null ERR_NGROK_217',
      'bot_user.delete null not-found',
      'bot_user.create null invalid-json',
      'bot_user.create press-1 ERR_NGROK_4112',
      'bot_user.create press-1 ok',
    ])
  })

  it('names what a refused request wanted to create, but no secret and no id of its choice', async () => {
    const { call, entries, logText } = await startAudited()
    const hook = 'hooks.example/services/T0/canary'
    for (const [path, body] of [
      ['reserved_domains', { domain: 'x', id: 'rd_1' }],
      ['reserved_addrs', { addr: 'x.test:99999' }],
      ['webhook_endpoints', { url: `https://${hook}`, event_types: ['no.such'] }],
      ['webhook_endpoints', { url: hook }],
      ['error_pages', { kind: 'offline', html: 1 }],
      ['bot_users', { name: 'n'.repeat(1_000) }],
      ['bot_users', { name: ['cam'] }],
      ['bot_users', ['cam']],
    ] as const) {
      const { status } = await call('POST', `/${path}`, { body })
      expect(status, path).toBe(400)
    }
    const told: { target: { id: string | null; name: string | null } }[] = await entries()
    expect(told.map(({ target }) => target.name).reverse()).toEqual([
      ...['x', 'x.test:99999', 'https://hooks.example/[secret]', null, 'offline'],
      ...['n'.repeat(255), null, null],
    ])
    expect(told.map(({ target }) => target.id)).toEqual(told.map(() => null))
    expect(JSON.stringify(told) + logText()).not.toContain('canary')
  })

  it('has no row of strangers: a flood of them would push the trail out', async () => {
    const { call, told } = await startAudited()
    const body = { name: 'x' }
    for (const key of [null, 'wrong']) await call('POST', '/bot_users', { key, body })
    expect(await told()).toEqual([])
  })

  it('has a row for every operation that is not there to read', async () => {
    const { call, issuer, trail, document } = await startAudited()
    const writes = Object.entries(document.paths).flatMap(([path, operations]) =>
      Object.keys(operations)
        .filter((method) => method !== 'get')
        .map((method) => [method.toUpperCase(), path.replace(/\{\w+\}/, 'x_1')] as const),
    )
    expect(writes.length).toBeGreaterThan(20)
    for (const [method, path] of writes) {
      const key = (await issuer.createApiKey({})).token
      const { headers } = await call(method, path, {
        key,
        ...(method !== 'DELETE' && { body: {} }),
      })
      const [newest] = trail.page({ limit: 1 })
      expect(newest?.requestId, `${method} ${path}`).toBe(headers.get('x-request-id'))
    }
  })

  it('is chosen from by who, action and time, in pages', async () => {
    const { call, filtered, issuer, clock } = await startAudited()
    await call('POST', '/bot_users', { body: { name: 'one' } })
    await clock.advance(10_000)
    const key = (await issuer.createApiKey({ description: 'robot' })).token
    await call('POST', '/bot_users', { body: { name: 'two' }, key })
    const { body } = await call('POST', '/credentials', { body: {}, key })
    expect(await filtered('obj.who.name == "robot" && obj.action.startsWith("bot_")')).toEqual([
      'bot_user.create two ok',
    ])
    expect(await filtered('obj.created_at < timestamp("2030-01-01T00:00:10Z")')).toEqual([
      'bot_user.create one ok',
    ])
    expect(await filtered(`obj.target.id == "${body.id}"`)).toEqual(['credential.create null ok'])
    const page = await call('GET', '/audit?limit=2')
    expect(page.body.entries).toHaveLength(2)
    const next = new URL(page.body.next_page_uri)
    expect((await call('GET', next.pathname + next.search)).body.entries).toHaveLength(1)
    const none = await call('GET', `/audit?before_id=au_${'x'.repeat(27)}`)
    expect(none.body.entries).toEqual([])
  })

  it.each(['POST', 'PATCH', 'DELETE'])('is not there to %s', async (method) => {
    const { call } = await startAudited()
    const path = method === 'POST' ? '/audit' : `/audit/au_${'1'.padStart(27, '0')}`
    const { status } = await call(method, path, { ...(method !== 'DELETE' && { body: {} }) })
    expect(status).toBe(405)
  })

  it('names the console, and who signs in and out there', async () => {
    const { baseUrl, key, entries, apiKeys, agents } = await startAudited()
    const browser = new ConsoleBrowser(baseUrl)
    await browser.signIn(key.reveal())
    await browser.call('POST', '/console/api/bot_users', { body: { name: 'press-1' } })
    await browser.call('POST', '/console/api/bot_users', { body: { name: '' } })
    await browser.call('POST', '/console/api/qr_codes', { body: { text: '' } })
    const { agent } = agentWithEndpoint('2')
    agents.push(agent)
    const stopped = await browser.call('POST', `/console/api/tunnel_sessions/${agent.id}/stop`)
    expect(stopped.status).toBe(204)
    await browser.call('DELETE', '/console/session')
    await browser.call('DELETE', '/console/session')
    const [ownKey] = apiKeys.page({ limit: 1 })
    const who = { kind: 'console', id: ownKey?.id, name: 'test' }
    expect(await entries()).toMatchObject([
      { action: 'session.delete', who, result: 'ok' },
      { action: 'tunnel_session.stop', who, target: { id: agent.id }, result: 'ok' },
      { action: 'bot_user.create', who, result: 'ERR_NGROK_4109' },
      { action: 'bot_user.create', who, target: { name: 'press-1' }, result: 'ok' },
      { action: 'session.create', who, client: '127.0.0.1', result: 'ok' },
    ])
  })
})

import { describe, expect, it } from 'vitest'
import type { UpstreamOptions } from '../../src/agent/upstreams/upstream-options.ts'
import type { TunnelSpecView } from '../../src/api/tunnel-view.ts'
import type { Answer } from '../helpers/serve-http.ts'
import { startApi } from './started-api.ts'

const A = { protocol: 'http', forwards_to: 'localhost:8001', domain: 'a.site.test' }
const B = { ...A, domain: 'b.site.test' }
const C = { ...A, domain: 'c.site.test' }
const POLICY = { on_http_request: [{ actions: [{ type: 'deny' }] }] }

/** `create a.site.test online`, `delete b.site.test null`, … */
function told({ json }: Answer): string[] {
  return json.tunnels.map(
    ({ action, domain, state }: { action: string; domain: string; state: string }) =>
      `${action} ${domain} ${state}`,
  )
}

async function started() {
  const api = await startApi()
  const put = (body: unknown, headers = {}) => api.call('PUT', '/tunnels', body, headers)
  const etag = async () => String((await api.call('GET', '/tunnels')).headers.etag)
  const domains = () => api.agent.list().map(({ spec }) => spec.domain)
  return { ...api, put, etag, domains }
}
/** With each option of an upstream that there is. */
const SECURE = {
  protocol: 'http',
  forwards_to: 'https://localhost:8443',
  domain: 's.site.test',
  policy: null,
  upstream: {
    timeout: 5,
    health: 'off',
    http2: true,
    proxy_protocol: 1,
    verify_tls: false,
    tls_min_version: '1.0',
    max_connections: 6,
  },
} satisfies TunnelSpecView & {
  upstream: { [Name in keyof UpstreamOptions]-?: NonNullable<UpstreamOptions[Name]> }
}

describe('PUT /tunnels', () => {
  it('makes the list all tunnels of the device, and says of each what it did', async () => {
    const { call, put, service, etag } = await started()
    await call('POST', '/tunnels', A)
    await call('POST', '/tunnels', B)
    const moved = { ...B, forwards_to: 'localhost:8002', policy: POLICY }
    const answer = await put([moved, C])
    expect([answer.status, told(answer)]).toEqual([
      200,
      ['replace b.site.test online', 'create c.site.test online', 'delete a.site.test null'],
    ])
    expect(answer.json.tunnels[0]).toMatchObject({
      url: 'https://b.site.test:8443',
      changes: { forwards_to: ['localhost:8001', 'localhost:8002'], policy: 'changed' },
    })
    expect(answer.json).toMatchObject({ dry_run: false, etag: await etag() })
    expect(service.online.sort()).toEqual(['b.site.test', 'c.site.test'])
  })

  it('changes nothing, and writes nothing of a tunnel, when it says the same again', async () => {
    const { put, etag, agent } = await started()
    await put([A, { ...B, policy: POLICY }])
    const before = [await etag(), agent.list().map(({ updatedAt }) => updatedAt)]
    const answer = await put([{ ...B, policy: JSON.stringify(POLICY) }, A])
    expect([answer.status, told(answer)]).toEqual([
      200,
      ['keep b.site.test online', 'keep a.site.test online'],
    ])
    expect([await etag(), agent.list().map(({ updatedAt }) => updatedAt)]).toEqual(before)
  })

  it('takes back what a list shows, in each view that has all of it', async () => {
    const { call, put, agent } = await started()
    await put([
      { ...A, pooling_enabled: true },
      { ...B, policy: POLICY, upstream: { timeout: 9, health: '/healthz' } },
      SECURE,
    ])
    const before = agent.list().map(({ spec }) => spec)
    const specs = (await call('GET', '/tunnels?view=spec')).json
    expect(specs).toEqual([
      { ...A, policy: null, pooling_enabled: true },
      { ...B, policy: POLICY, upstream: { timeout: 9, health: '/healthz' } },
      SECURE,
    ])
    expect(told(await put(specs))).toEqual([
      'keep a.site.test online',
      'keep b.site.test online',
      'keep s.site.test online',
    ])
    const list = (await call('GET', '/tunnels')).json
    expect((await put(list)).status).toBe(200)
    // The policy in force is its own now, as is that nothing is said of the upstream and of pooling.
    expect(agent.list().map(({ spec }) => spec)).not.toEqual(before)
    expect((await call('GET', '/tunnels')).json).toEqual(list)
  })

  it('says with dry_run what it would do, changes nothing, and tells the trail nothing', async () => {
    const { call, put, etag, domains } = await started()
    await put([A, B])
    const trail = (await call('GET', '/audit')).json
    const before = await etag()
    const wanted = [{ ...A, forwards_to: 'localhost:8002' }, C]
    const answer = await call('PUT', '/tunnels?dry_run=true', wanted)
    expect([answer.status, answer.json.dry_run, answer.json.etag, told(answer)]).toEqual([
      200,
      true,
      before,
      ['replace a.site.test online', 'create c.site.test null', 'delete b.site.test online'],
    ])
    const bad = { ...A, policy: { on_the_moon: [] } }
    expect((await call('PUT', '/tunnels?dry_run=true', [bad])).status).toBe(422)
    expect([await etag(), domains()]).toEqual([before, ['a.site.test', 'b.site.test']])
    expect((await call('GET', '/audit')).json).toEqual(trail)
    expect((await call('PUT', '/tunnels?dry_run=false', wanted)).json.dry_run).toBe(false)
    for (const query of ['?dry_run=1', '?dry_run', '?dryrun=true']) {
      expect((await call('PUT', `/tunnels${query}`, wanted)).status, query).toBe(400)
    }
  })

  it('answers 202 while the service is away, and when it refuses one; that one stays', async () => {
    const { call, put, service, domains } = await started()
    service.refuse('b.site.test', 320)
    const refused = await put([A, B])
    expect([refused.status, told(refused)]).toEqual([
      202,
      ['create a.site.test online', 'create b.site.test refused'],
    ])
    expect(refused.json.tunnels[1]).toMatchObject({
      service_code: 'ERR_NGROK_320',
      remedy: expect.any(String),
    })
    expect(domains()).toEqual(['a.site.test', 'b.site.test'])
    service.goAway()
    const away = await put([A, C])
    expect([away.status, told(away)]).toEqual([
      202,
      ['keep a.site.test waiting', 'create c.site.test waiting', 'delete b.site.test null'],
    ])
    expect((await call('GET', '/tunnels')).json).toHaveLength(2)
  })

  it('is one row of the audit trail for each tunnel that changes, with its values', async () => {
    const { call, put } = await started()
    await put([A, B])
    const answer = await put([{ ...A, forwards_to: 'localhost:8002', policy: POLICY }, C])
    const { entries } = (await call('GET', '/audit?limit=3')).json
    const who = { kind: 'token', id: 'owner', name: 'owner' }
    const request_id = answer.headers['x-request-id']
    const id = expect.stringMatching(/^tun_/)
    expect(entries).toMatchObject([
      { action: 'tunnel.delete', target: { id, name: B.domain }, who, request_id, result: 'ok' },
      { action: 'tunnel.create', target: { id, name: C.domain }, who, request_id },
      {
        action: 'tunnel.replace',
        target: { id, name: A.domain },
        changes: { forwards_to: ['localhost:8001', 'localhost:8002'], policy: 'changed' },
        request_id,
      },
    ])
    await put([A, A])
    const [refused] = (await call('GET', '/audit?limit=1')).json.entries
    expect(refused).toMatchObject({ action: 'tunnel_set.replace', result: 'invalid-request' })
  })

  it.each([
    [{}, ''],
    [[A, 7], '/1'],
    [[A, { ...B, domain: 'nothing' }], '/1/domain'],
    [[A, { ...B, colour: 'red' }], '/1/colour'],
    [[A, { ...B, url: 7 }], '/1/url'],
    [[A, B, A], '/2/domain'],
  ])('refuses %j and names %j', async (body, pointer) => {
    const { put, domains } = await started()
    const { status, json } = await put(body)
    expect([status, json.errors[0].pointer, domains()]).toEqual([400, pointer, []])
  })

  it('looks into no list that is longer than any device has', async () => {
    const { status, json } = await (await started()).put(Array(10_001).fill(0))
    expect([status, json.errors]).toEqual([400, [expect.objectContaining({ pointer: '' })]])
  })

  it('takes more than one tunnel may say, up to a limit', async () => {
    const { put, domains } = await started()
    const policy = { ...POLICY, on_http_response: [] as object[] }
    for (let n = 0; n < 130; n += 1) {
      policy.on_http_response.push({
        actions: [{ type: 'add-headers', config: { headers: { [`x-${n}`]: 'v'.repeat(200) } } }],
      })
    }
    const both = [A, B].map((tunnel) => ({ ...tunnel, policy }))
    expect(JSON.stringify(both).length).toBeGreaterThan(64 * 1024)
    expect((await put(both)).status).toBe(200)
    expect(domains()).toEqual([A.domain, B.domain])
    const { status, json } = await put(`[${' '.repeat(4 * 1024 * 1024)}]`)
    expect([status, json.code]).toEqual([413, 'body-too-large'])
  })

  it('refuses more tunnels than the device may hold', async () => {
    const { put, domains } = await started()
    const many = Array.from({ length: 11 }, (_, n) => ({ ...A, domain: `d${n}.site.test` }))
    const { status, json } = await put(many)
    expect([status, json.code, domains()]).toEqual([409, 'too-many-tunnels', []])
  })

  it('needs a token that may write, for a dry run too', async () => {
    const { call } = await started()
    const { json: made } = await call('POST', '/tokens', { name: 'reader', scope: 'read' })
    const headers = { authorization: `Bearer ${made.token}` }
    expect((await call('PUT', '/tunnels?dry_run=true', [A], headers)).status).toBe(403)
  })
})

describe('entity tags', () => {
  it('stand for what is wanted, of all tunnels and of one, in each view', async () => {
    const { call, put, etag, service } = await started()
    const empty = await etag()
    await put([A, B])
    const both = await etag()
    expect(both).toMatch(/^"[0-9a-f]{32}"$/)
    expect(both).not.toBe(empty)
    for (const view of ['spec', 'status']) {
      expect((await call('GET', `/tunnels?view=${view}`)).headers.etag).toBe(both)
    }
    const one = async (name: string) => (await call('GET', `/tunnels/${name}`)).headers.etag
    const ofA = await one('a')
    expect(ofA).not.toBe(await one('b'))
    service.goAway()
    expect([await etag(), await one('a')]).toEqual([both, ofA])
    await call('PUT', '/tunnels/b.site.test', { ...B, policy: POLICY })
    expect(await etag()).not.toBe(both)
    expect(await one('a')).toBe(ofA)
    await put([A, { ...B, pooling_enabled: true }])
    expect(await etag()).not.toBe(both)
    expect(await one('a')).toBe(ofA)
    await put([A, B])
    expect(await etag()).toBe(both)
  })

  it('keep two managers from overwriting each other', async () => {
    const { put, etag, domains } = await started()
    await put([A])
    const seen = { 'if-match': await etag() }
    const answers = await Promise.all([put([A, B], seen), put([A, C], seen)])
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 412])
    expect(domains()).toHaveLength(2)
    const [refused] = answers.filter(({ status }) => status === 412)
    expect(refused?.json).toMatchObject({ code: 'precondition-failed' })
    expect(refused?.json.detail).toContain(await etag())
  })

  it('are obeyed by each write', async () => {
    const { call, put, etag, domains } = await started()
    await put([A])
    const stale = { 'if-match': '"0123"' }
    const status = async (method: string, path: string, body?: unknown, headers = stale) =>
      (await call(method, path, body, headers)).status
    expect(await status('PUT', '/tunnels', [])).toBe(412)
    expect(await status('PUT', '/tunnels?dry_run=true', [])).toBe(412)
    expect(await status('POST', '/tunnels', B)).toBe(412)
    expect(await status('PUT', `/tunnels/${A.domain}`, A)).toBe(412)
    expect(await status('PUT', `/tunnels/${B.domain}`, B)).toBe(412)
    expect(await status('DELETE', `/tunnels/${A.domain}`)).toBe(412)
    expect(domains()).toEqual([A.domain])
    expect(await status('POST', '/tunnels', B, { 'if-match': await etag() })).toBe(200)
    const { etag: ofA } = (await call('GET', '/tunnels/a')).headers
    const fresh = { 'if-match': String(ofA) }
    const moved = { ...A, forwards_to: 'localhost:8002' }
    expect(await status('PUT', `/tunnels/${A.domain}`, moved, fresh)).toBe(200)
    expect(await status('DELETE', '/tunnels/a', undefined, fresh)).toBe(412)
    expect(await status('DELETE', '/tunnels/a', undefined, { 'if-match': '*' })).toBe(204)
  })

  it('let a PUT create and not replace, or replace and not create', async () => {
    const { call, domains } = await started()
    const create = { 'if-none-match': '*' }
    const replace = { 'if-match': '*' }
    const path = `/tunnels/${A.domain}`
    expect((await call('PUT', path, A, replace)).status).toBe(412)
    expect(domains()).toEqual([])
    expect((await call('PUT', path, A, create)).status).toBe(201)
    expect((await call('PUT', path, A, create)).status).toBe(412)
    expect((await call('PUT', path, A, replace)).status).toBe(200)
  })
})

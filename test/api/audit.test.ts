import { describe, expect, it } from 'vitest'
import type { Answer } from '../helpers/serve-http.ts'
import { startApi } from './started-api.ts'

const DOMAIN = 'device1.site.test'
const SPEC = { protocol: 'http', forwards_to: 'localhost:8001', domain: DOMAIN }
const SECRET_POLICY = {
  on_http_request: [
    { actions: [{ type: 'basic-auth', config: { credentials: ['me:canary-password'] } }] },
  ],
}

async function startAudited() {
  const api = await startApi()
  const page = async (query = '') => (await api.call('GET', `/audit${query}`)).json
  const told = async (query = '') => {
    const { entries } = await page(query)
    return entries.map(
      ({ action, target, result }: { action: string; target: { name: string }; result: string }) =>
        `${action} ${target.name} ${result}`,
    )
  }
  return { ...api, page, told }
}

/** The first answer with another status; all of them are a few more than the trail takes at once. */
async function untilOther(status: number, ask: () => Promise<Answer>): Promise<Answer> {
  for (let n = 0; n < 90; n += 1) {
    const answer = await ask()
    if (answer.status !== status) return answer
  }
  throw new Error(`every answer was ${status}`)
}

describe('the audit trail of the agent', () => {
  it('tells each change with who, from where, what and its result', async () => {
    const { call, callPublic, page, tokens } = await startAudited()
    await call('POST', '/tunnels', SPEC)
    const { json: made } = await call('POST', '/tokens', { name: 'fleet', scope: 'write' })
    const headers = { authorization: `Bearer ${made.token}`, 'x-forwarded-for': '203.0.113.9' }
    const change = { ...SPEC, forwards_to: 'localhost:8002', policy: SECRET_POLICY }
    await callPublic('PUT', `/tunnels/${DOMAIN}`, change, headers)
    const answer = await callPublic('DELETE', '/tunnels/device1', undefined, headers)
    const { entries, next } = await page()
    expect(next).toBeNull()
    const owner = { kind: 'token', id: 'owner', name: 'owner' }
    const fleet = { kind: 'token', id: tokens.find('fleet').id, name: 'fleet' }
    const id = expect.stringMatching(/^tun_/)
    expect(entries).toMatchObject([
      {
        id: 4,
        action: 'tunnel.delete',
        who: fleet,
        client: '203.0.113.9',
        target: { id, name: DOMAIN },
        result: 'ok',
        request_id: answer.headers['x-request-id'],
      },
      {
        action: 'tunnel.replace',
        who: fleet,
        changes: { forwards_to: ['localhost:8001', 'localhost:8002'], policy: 'changed' },
      },
      { action: 'token.create', who: owner, target: { id: fleet.id, name: 'fleet' } },
      {
        id: 1,
        action: 'tunnel.create',
        who: owner,
        client: '127.0.0.1',
        target: { id, name: DOMAIN },
        changes: { protocol: [null, 'http'], forwards_to: [null, 'localhost:8001'] },
        result: 'ok',
      },
    ])
  })

  it('tells of a rotation what it changed, and of a token by the name that was asked for', async () => {
    const { call, page } = await startAudited()
    const { json: made } = await call('POST', '/tokens', { name: 'site fleet' })
    const first = (await call('POST', '/tokens/site%20fleet/rotate')).json
    const expires_at = '2999-01-31T09:00:00.000Z'
    await call('POST', '/tokens/site%20fleet/rotate', { overlap_s: 0, expires_at })
    await call('DELETE', '/tokens/no%20body')
    await call('DELETE', '/tokens/%2e%0a%E0%A4')
    const { entries } = await page()
    const target = { id: made.id, name: 'site fleet' }
    expect(entries).toMatchObject([
      { action: 'token.delete', target: { id: '%2e%0a%E0%A4' } },
      { action: 'token.delete', target: { id: 'no body' }, result: 'token-not-found' },
      {
        action: 'token.rotate',
        target,
        changes: { expires_at: [null, expires_at], overlap_ends_at: [expect.any(String), null] },
      },
      {
        action: 'token.rotate',
        target,
        changes: { overlap_ends_at: [null, first.overlap_ends_at] },
      },
      { action: 'token.create', target, changes: { scope: [null, 'read'] } },
    ])
    expect(Object.keys(entries[3].changes)).toEqual(['overlap_ends_at'])
    expect(Object.keys(entries[4].changes)).toEqual(['scope'])
  })

  it('writes only so many refusals of one caller: the rest wait', async () => {
    const { call, page } = await startAudited()
    const { json: reader } = await call('POST', '/tokens', { name: 'reader' })
    const as = { authorization: `Bearer ${reader.token}` }
    let refused = 0
    const last = await untilOther(403, async () => {
      refused += 1
      return call('POST', '/tunnels', SPEC, as)
    })
    expect([last.status, last.json.code]).toEqual([429, 'too-many-requests'])
    expect(Number(last.headers['retry-after'])).toBeGreaterThan(0)
    const { entries } = await page('?who=reader')
    expect(entries).toHaveLength(refused - 1)
    expect((await call('GET', '/tunnels', undefined, as)).status).toBe(200)
    expect((await call('POST', '/tunnels', SPEC)).status).toBe(200)
    expect((await call('POST', '/tunnels', '{"broken')).status).toBe(400)
  })

  it('holds no secret', async () => {
    const { call, page, text } = await startAudited()
    await call('POST', '/tunnels', { ...SPEC, policy: SECRET_POLICY })
    await call('PUT', `/tunnels/${DOMAIN}`, { ...SPEC, policy: {} })
    const { json } = await call('POST', '/tokens', { name: 'fleet' })
    const seen = JSON.stringify(await page()) + text()
    expect(seen).not.toContain('canary')
    expect(seen).not.toContain(json.token)
  })

  it('tells what was refused, by its code', async () => {
    const { call, service, told } = await startAudited()
    service.refuse('refused.site.test', 320)
    const { json: reader } = await call('POST', '/tokens', { name: 'reader' })
    await call('POST', '/tunnels', { ...SPEC, domain: 'refused.site.test' })
    await call('POST', '/tunnels', '{"broken')
    await call('POST', '/tunnels', { ...SPEC, forwards_to: '169.254.169.254:80' })
    await call('DELETE', '/tunnels/nobody')
    await call('POST', '/tunnels', SPEC, { authorization: `Bearer ${reader.token}` })
    expect(await told()).toEqual([
      'tunnel.create null insufficient-scope',
      'tunnel.delete null tunnel-not-found',
      'tunnel.create device1.site.test forwards-to-not-allowed',
      'tunnel.create null invalid-json',
      'tunnel.create refused.site.test service-refused',
      'token.create reader ok',
    ])
    expect((await told('?who=reader')).length).toBe(1)
  })

  it('has no row of strangers: a flood of them would push the trail out', async () => {
    const { call, told, lines } = await startAudited()
    for (const authorization of [undefined, 'Bearer wrong']) {
      await call('POST', '/tunnels', SPEC, { authorization })
    }
    await call('POST', '/nothing', {})
    await call('PATCH', '/tunnels', {})
    expect(await told()).toEqual([])
    expect(lines).toContainEqual(
      expect.objectContaining({ msg: 'request with a wrong token refused' }),
    )
  })

  it('has a row for every operation that is not there to read', async () => {
    const { call, page, document } = await startAudited()
    const writes = Object.entries(document.paths).flatMap(([path, operations]) =>
      Object.keys(operations)
        .filter((method) => method !== 'get')
        .map((method) => [method.toUpperCase(), path.replace(/\{\w+\}/, 'x')] as const),
    )
    expect(writes.length).toBeGreaterThan(5)
    for (const [method, path] of writes) {
      const { headers } = await call(method, path, method === 'DELETE' ? undefined : {})
      const { entries } = await page('?limit=1')
      expect(entries[0]?.request_id, `${method} ${path}`).toBe(headers['x-request-id'])
    }
  })

  it('is read in pages that keep the question', async () => {
    const { call, page } = await startAudited()
    for (let n = 0; n < 5; n += 1) await call('POST', '/tokens', { name: `token ${n}` })
    await call('DELETE', '/tokens/token%200')
    const seen: number[] = []
    let path: string | null = '/audit?limit=2&action=token.create'
    while (path !== null) {
      const { json }: { json: Awaited<ReturnType<typeof page>> } = await call('GET', path)
      seen.push(...json.entries.map(({ id }: { id: number }) => id))
      path = json.next
    }
    expect(seen).toEqual([5, 4, 3, 2, 1])
  })

  it('is chosen from by time', async () => {
    const { call, page } = await startAudited()
    await call('POST', '/tokens', { name: 'a' })
    const [{ at }] = (await page()).entries
    expect((await page(`?since=${at}`)).entries).toHaveLength(1)
    expect((await page(`?until=${at}`)).entries).toHaveLength(0)
    expect((await page('?since=2999-01-01T00:00:00Z')).entries).toHaveLength(0)
  })

  it.each([
    ['limit=0', '/limit'],
    ['limit=101', '/limit'],
    ['before_id=x', '/before_id'],
    ['since=yesterday', '/since'],
    ['colour=red', '/colour'],
  ])('refuses ?%s', async (query, pointer) => {
    const { call } = await startAudited()
    const { status, json } = await call('GET', `/audit?${query}`)
    expect([status, json.errors[0].pointer]).toEqual([400, pointer])
  })
})

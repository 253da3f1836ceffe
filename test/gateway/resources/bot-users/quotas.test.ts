import { describe, expect, it } from 'vitest'
import { startManagementApi } from '../../../helpers/management-client.ts'

const POLICY = JSON.stringify({
  on_http_request: [{ actions: [{ type: 'deny', config: { status_code: 403 } }] }],
})

async function startWithQuotas(quotas: object) {
  const api = await startManagementApi()
  const created = await api.call('POST', '/bot_users', { body: { name: 'press' } })
  const { id } = created.body
  const change = (body: object) => api.call('PATCH', `/bot_users/${id}`, { body: { quotas: body } })
  await change(quotas)
  const make = async (path: string, body: object) =>
    await api.call('POST', path, { body: { ...body, owner_id: id } })
  const account = async () => (await api.call('GET', `/bot_users/${id}`)).body
  return { ...api, id, change, make, account }
}

describe('quotas of an account', () => {
  it.each([
    ['domains', '/reserved_domains', (n: number) => ({ domain: `d${n}.quota.test` })],
    ['credentials', '/credentials', (n: number) => ({ description: `t${n}` })],
    ['keys', '/api_keys', (n: number) => ({ description: `k${n}` })],
    ['webhooks', '/webhook_endpoints', (n: number) => ({ url: `https://h${n}.test` })],
    [
      'cloud_endpoints',
      '/endpoints',
      (n: number) => ({ url: `https://e${n}.internal`, traffic_policy: POLICY }),
    ],
  ])('refuse one more of %s, also of many at once, and are raised', async (name, path, body) => {
    const { id, make, change, account } = await startWithQuotas({ [name]: 2 })
    const answers = await Promise.all([0, 1, 2, 3, 4].map((n) => make(path, body(n))))
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 201, 409, 409, 409])
    expect(answers.find(({ status }) => status === 409)?.body).toMatchObject({
      error_code: 'ERR_NGROK_18021',
      msg: expect.stringMatching(
        new RegExp(`^The account ${id} .*\\(${name}\\): 2 of 2 used, 1 more needed\\. Delete some`),
      ),
    })
    expect((await account()).usage[name]).toBe(2)
    await change({ [name]: 1 })
    // What exists stays.
    const warning = { msg: expect.stringContaining(`${name} (2 of 1). All it has keeps working`) }
    expect(await account()).toMatchObject({
      ...{ usage: { [name]: 2 }, quotas: { [name]: 1 }, warning },
    })
    expect((await make(path, body(5))).status).toBe(409)
    await change({ [name]: null })
    expect((await make(path, body(5))).status).toBe(201)
    expect(await account()).not.toHaveProperty('warning')
  })

  it('count the bytes of cloud policies, and of what a policy grows by', async () => {
    const bytes = Buffer.byteLength(POLICY)
    const { make, call, account } = await startWithQuotas({ policy_bytes: 2 * bytes + 1 })
    const endpoint = (n: number) => ({ url: `https://e${n}.internal`, traffic_policy: POLICY })
    const { body: made } = await make('/endpoints', endpoint(0))
    expect((await make('/endpoints', endpoint(1))).status).toBe(201)
    expect((await make('/endpoints', endpoint(2))).body.error_code).toBe('ERR_NGROK_18021')
    const grow = (spaces: string) =>
      call('PATCH', `/endpoints/${made.id}`, { body: { traffic_policy: POLICY + spaces } })
    expect((await grow('  ')).body.error_code).toBe('ERR_NGROK_18021')
    expect((await grow(' ')).status).toBe(200)
    expect((await account()).usage.policy_bytes).toBe(2 * bytes + 1)
  })

  it('hold for a domain that changes hands, and not for the gateway owner', async () => {
    const { id, call, make } = await startWithQuotas({ domains: 0 })
    const { status, body } = await call('POST', '/reserved_domains', {
      body: { domain: 'a.quota.test' },
    })
    expect(status).toBe(201)
    const given = { body: { owner_id: id } }
    const moved = await call('PATCH', `/reserved_domains/${body.id}`, given)
    expect(moved.body.error_code).toBe('ERR_NGROK_18021')
    expect((await make('/reserved_domains', { domain: 'b.quota.test' })).status).toBe(409)
  })

  it('are for the gateway owner to change, and in the audit trail', async () => {
    const { id, call, make, account } = await startWithQuotas({ domains: 7 })
    expect((await account()).quotas).toMatchObject({ domains: 7, credentials: 5_000, webhooks: 10 })
    const [entry] = (await call('GET', '/audit')).body.entries
    expect(entry.changes.quotas[1]).toMatchObject({ domains: 7 })
    const { body } = await make('/api_keys', { description: 'own' })
    const raise = { key: body.token, body: { quotas: { domains: 9 } } }
    expect((await call('PATCH', `/bot_users/${id}`, raise)).status).toBe(403)
    for (const wrong of [{ domains: -1 }, { domains: 1.5 }, { doors: 1 }]) {
      const answer = await call('PATCH', `/bot_users/${id}`, { body: { quotas: wrong } })
      expect(answer.status).toBe(400)
    }
  })
})

import { describe, expect, it } from 'vitest'
import { parseJoinString } from '../../../../src/join/join-string.ts'
import { makeCertificate } from '../../../helpers/made-certificate.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'

type Api = Awaited<ReturnType<typeof startManagementApi>>
type Step = readonly [method: string, path: string, body?: object]

const POLICY = '{"on_http_request":[{"actions":[{"type":"deny"}]}]}'
const OTHER_POLICY = '{"on_http_request":[{"expressions":["true"],"actions":[{"type":"deny"}]}]}'
const { certPem: caPem } = await makeCertificate({ isCa: true, notAfter: Date.UTC(2040, 0) })

/** What the management API can do to one thing after the other; `id` stands for what the first made. */
const WALKS: readonly (readonly [name: string, steps: readonly Step[]])[] = [
  ['bot users', walk('bot_users', { name: 'press' }, { active: false })],
  ['service users', walk('service_users', { name: 'press' }, { active: false })],
  ['authtokens', walk('credentials', { description: 'a' }, { description: 'b' })],
  ['api keys', walk('api_keys', { description: 'a' }, { description: 'b' })],
  [
    'domains',
    walk('reserved_domains', { domain: 'cam.example' }, { description: 'b' }, [
      ['DELETE', '/reserved_domains/id/certificate_management_policy'],
    ]),
  ],
  ['addresses', walk('reserved_addrs', {}, { description: 'b' })],
  ['error pages', walk('error_pages', { kind: 'offline', html: 'a' }, { html: 'b' })],
  [
    'certificate authorities',
    walk('certificate_authorities', { ca_pem: caPem }, { description: 'b' }),
  ],
  ['ip policies', walk('ip_policies', { description: 'a' }, { description: 'b' })],
  [
    'cloud endpoints',
    walk(
      'endpoints',
      { url: 'https://cam.internal', traffic_policy: POLICY },
      { shared: true, traffic_policy: OTHER_POLICY },
    ),
  ],
  [
    'webhooks',
    walk('webhook_endpoints', { url: 'https://hooks.example' }, { description: 'b' }, [
      ['POST', '/webhook_endpoints/id/rotate', {}],
      ['POST', '/webhook_endpoints/id/replay', { since: '2030-01-01T00:00:00Z' }],
    ]),
  ],
  [
    'notification channels',
    walk(
      'notification_channels',
      { name: 'ops', kind: 'slack', url: 'https://chat.example/x' },
      { tags: ['roof'] },
    ),
  ],
  [
    'invitations',
    [
      ['POST', '/invites', { name: 'cam', domain: '*.site.example' }],
      ['DELETE', '/invites/id'],
    ],
  ],
]

function walk(path: string, made: object, change: object, more: readonly Step[] = []): Step[] {
  return [
    ['POST', `/${path}`, made],
    ['PATCH', `/${path}/id`, change],
    ...more,
    ['DELETE', `/${path}/id`],
  ]
}

/** The API, and how many transactions its database has seen. */
async function start() {
  const api = await startManagementApi()
  const { database } = api
  const commits = () =>
    (database.prepare('PRAGMA user_version').get() as { user_version: number }).user_version
  const intents = () => database.prepare('SELECT * FROM audit_intents').all()
  // The use of the key is noted once a minute.
  await api.call('GET', '/bot_users')
  return { ...api, commits, intents }
}

/** Each step has to be one transaction with its row. */
async function take(
  { call, commits, intents, trail }: Api & Awaited<ReturnType<typeof start>>,
  steps: readonly Step[],
): Promise<void> {
  let id = ''
  for (const [method, path, body] of steps) {
    const before = commits()
    const name = `${method} ${path}`
    const answer = await call(method, path.replace('/id', `/${id}`), body ? { body } : {})
    expect(answer.status, name).toBeLessThan(300)
    if (id === '') id = answer.body.id
    // Of what a power cut leaves, the first transaction may be all.
    expect(commits() - before, name).toBeLessThanOrEqual(1)
    expect(intents(), name).toEqual([])
    const [row] = trail.page({ limit: 1 })
    expect(row, name).toMatchObject({ result: 'ok', targetId: id })
    expect(row?.requestId, name).toBe(answer.headers.get('x-request-id'))
    const changed = Object.keys(row?.changes ?? {}).sort()
    if (method === 'PATCH') expect(changed, name).toEqual(Object.keys(body ?? {}).sort())
  }
}

describe('a change through the management API', () => {
  it.each(WALKS)('and its row in the audit trail are one transaction: %s', async (_name, steps) => {
    await take(await start(), steps)
  })

  it('and its row in the audit trail are one transaction: rules and devices', async () => {
    const api = await start()
    const { body: policy } = await api.call('POST', '/ip_policies', { body: {} })
    const rule = { ip_policy_id: policy.id, action: 'allow', cidr: '192.0.2.0/24' }
    await take(api, walk('ip_policy_rules', rule, { cidr: '198.51.100.0/24' }))
    const { body: credential } = await api.call('POST', '/credentials', { body: {} })
    const device = { credential_id: credential.id, name: 'a' }
    await take(api, walk('devices', device, { name: 'b', tags: ['hall'] }))
  })

  it('and all that a device gets that joins are one transaction', async () => {
    const { call, commits, intents, invites, trail, domains, deviceStore } = await start()
    const { body } = await call('POST', '/invites', { body: { domain: '*.{name}.site.example' } })
    const joinString = parseJoinString(body.join_string)
    if ('problem' in joinString) throw new Error(joinString.problem)
    const { id, secret } = joinString
    const claim = { v: 1 as const, id, secret: secret.reveal(), claim: 'c'.repeat(22) }
    const before = commits()
    const { signal } = new AbortController()
    const welcome = await invites.join({ ...claim, hostname: 'cam' }, '192.0.2.7', signal)
    expect(commits() - before).toBe(1)
    expect(intents()).toEqual([])
    const rows = trail.page({ limit: 5 })
    expect(rows.map(({ action }) => action)).toEqual([
      'credential.create',
      'bot_user.create',
      'reserved_domain.create',
      'invite.use',
      'invite.create',
    ])
    expect(rows[3]).toMatchObject({ targetId: body.id, client: '192.0.2.7', result: 'ok' })
    expect(domains.find('*.cam.site.example')).toBeDefined()
    expect(deviceStore.page({ limit: 2 })).toMatchObject([{ name: 'cam', isProvisioned: true }])
    expect(JSON.stringify(rows)).not.toContain(welcome.authtoken)
  })

  it('is undone when its row cannot be written', async () => {
    const { call, database, botUsers } = await start()
    const { body: bot } = await call('POST', '/bot_users', { body: { name: 'press' } })
    database.write(() => database.prepare('DROP TABLE audit').run())
    const path = `/bot_users/${bot.id}`
    expect((await call('PATCH', path, { body: { active: false } })).status).toBe(500)
    expect(botUsers.get(bot.id)?.active).toBe(true)
    expect((await call('DELETE', path)).status).toBe(500)
    expect(botUsers.get(bot.id)).toBeDefined()
    expect((await call('POST', '/bot_users', { body: { name: 'hall' } })).status).toBe(500)
    expect(botUsers.findByName('hall')).toBeUndefined()
  })
})

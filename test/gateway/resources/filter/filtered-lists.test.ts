import type { Request } from 'express'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { systemClock } from '../../../../src/base/clock.ts'
import type { Credential } from '../../../../src/gateway/records/credential-store.ts'
import type { Caller } from '../../../../src/gateway/resources/common/caller.ts'
import {
  type ListedResource,
  ResourceLists,
} from '../../../../src/gateway/resources/common/resource-lists.ts'
import { agentWithEndpoint } from '../../../helpers/connected-agent.ts'
import { makeCertificate } from '../../../helpers/made-certificate.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'

type Api = Awaited<ReturnType<typeof startManagementApi>>

const listOf = (path: string, filter: string, more = '') =>
  `${path}?filter=${encodeURIComponent(filter)}${more}`

/** The answers to a list and to each page after it, by the link that the API gives. */
async function pagesOf({ call, baseUrl }: Api, path: string) {
  // biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever was answered.
  const pages: any[] = []
  for (let next: string | null = path; next; next = pages.at(-1).next_page_uri) {
    const { status, body } = await call('GET', next.replace(baseUrl, ''))
    expect([status, body.msg]).toEqual([200, undefined])
    pages.push(body)
  }
  return pages
}

/** Two or three of everything that can be listed. */
async function startFilledApi() {
  const api = await startManagementApi()
  const { call, issuer, clock, agents, registry } = api
  const make = async (path: string, body: object) => (await call('POST', path, { body })).body
  const owner = await make('/bot_users', { name: 'press' })
  await make('/bot_users', { name: 'idle', active: false })
  await make('/credentials', { description: 'open' })
  await make('/credentials', { description: 'bound', acl: ['bind:a.test'], owner_id: owner.id })
  const policy = await make('/ip_policies', { description: 'office' })
  await make('/ip_policies', { metadata: '{"floor":2}' })
  const ca = { isCa: true, commonName: 'Press CA', notAfter: Date.UTC(2040, 0) }
  await make('/certificate_authorities', { ca_pem: (await makeCertificate(ca)).certPem })
  await make('/error_pages', { kind: 'offline', html: 'a' })
  await make('/error_pages', { kind: 'busy', html: 'bb' })
  await make('/ip_policy_rules', { ip_policy_id: policy.id, cidr: '10.0.0.0/8', action: 'deny' })
  await make('/ip_policy_rules', { ip_policy_id: policy.id, cidr: '10.1.0.0/16' })
  await make('/invites', { name: 'cam', domain: '*.site.test', tags: ['hall'] })
  await make('/invites', { domain: '*.{name}.site.test', description: 'open' })
  await make('/reserved_domains', { domain: '*.a.test', description: 'site a' })
  await clock.advance(3_600_000)
  await make('/reserved_domains', { domain: 'b.test' })
  api.status.current = { renewsAt: clock.now() + 1_000, job: undefined }
  await issuer.createApiKey({ description: 'ci', metadata: owner.id })
  for (const suffix of ['1', '2']) {
    const { agent } = agentWithEndpoint(suffix)
    agents.push(agent)
    for (const endpoint of agent.endpoints()) registry.add(endpoint)
  }
  return { ...api, owner, policy }
}

/** By list: the field that is looked at, and its values in the items that each filter lists. */
const CASES: readonly (readonly [path: string, field: string, Record<string, unknown[]>])[] = [
  [
    'reserved_domains',
    'domain',
    {
      'obj.domain == "b.test"': ['b.test'],
      'obj.domain.startsWith("*.")': ['*.a.test'],
      'obj.description == ""': ['b.test'],
      'has(obj.description)': ['*.a.test'],
      'obj.created_at > timestamp("2030-01-01T00:30:00Z")': ['b.test'],
      'obj.created_at <= timestamp(time.now).subtract("1h")': ['*.a.test'],
      'obj.certificate_management_policy.authority == "letsencrypt"': [],
      'obj.certificate_management_status.renews_at > time.now': ['b.test', '*.a.test'],
      'obj.certificate_management_status.renews_at == null': [],
      'obj.certificate_management_status.provisioning_job == null': ['b.test', '*.a.test'],
      'obj.certificate_management_status.provisioning_job.msg.contains("progress")': [],
      'obj.certificate == null && obj.id != ""': ['b.test', '*.a.test'],
    },
  ],
  ['bot_users', 'name', { '!obj.active': ['idle'], 'obj.active': ['press'] }],
  [
    'service_users',
    'name',
    {
      'obj.name in ["press", "x"]': ['press'],
      'obj.id.startsWith("service_")': ['idle', 'press'],
      'obj.id.startsWith("bot_")': [],
    },
  ],
  [
    'credentials',
    'description',
    {
      'obj.acl == null || obj.acl == ""': ['open'],
      'obj.acl.size() > 0': ['bound'],
      '"bind:a.test" in obj.acl': ['bound'],
      'obj.owner_id == "OWNER"': ['bound'],
      'obj.owner_id != "OWNER"': ['open'],
      'obj.owner_id == null': ['open'],
      'obj.token != null': [],
    },
  ],
  [
    'invites',
    'description',
    {
      'obj.name == "cam" && "hall" in obj.tags': [''],
      'obj.state == "expired" && obj.uses == 0': ['open', ''],
      'obj.max_uses > 1': [],
      'obj.join_string != null': [],
    },
  ],
  ['api_keys', 'description', { 'obj.description == "ci" && obj.metadata != ""': ['ci'] }],
  [
    'certificate_authorities',
    'subject_common_name',
    {
      'obj.subject_common_name == "Press CA" && "key-cert-sign" in obj.key_usages': ['Press CA'],
      'obj.not_after < timestamp("2031-01-01T00:00:00Z")': [],
    },
  ],
  ['error_pages', 'kind', { 'obj.size > 1 && obj.in_use': ['busy'] }],
  ['ip_policies', 'metadata', { 'obj.metadata.contains("floor")': ['{"floor":2}'] }],
  [
    'ip_policy_rules',
    'cidr',
    {
      'obj.cidr == "10.0.0.0/8" && obj.action == "deny"': ['10.0.0.0/8'],
      'obj.ip_policy.id == "POLICY"': ['10.1.0.0/16', '10.0.0.0/8'],
    },
  ],
  [
    'endpoints',
    'host',
    {
      'obj.port == 443 && obj.host.contains("1")': ['press-1.site.test'],
      '"public" in obj.bindings && obj.traffic.requests > 0': [],
      'obj.domain == null && !obj.pooling_enabled': ['press-2.site.test', 'press-1.site.test'],
    },
  ],
  [
    'tunnel_sessions',
    'hostname',
    {
      'obj.hostname == "press-1"': ['press-1'],
      'obj.latency_ms < 12.5 && obj.endpoints.size() == 1': ['press-2', 'press-1'],
      'obj.credential.id == "cr_0"': [],
    },
  ],
]

describe('every list is filtered', () => {
  it.each(CASES)('%s', async (path, field, expected) => {
    const { call, owner, policy } = await startFilledApi()
    const listed: Record<string, unknown[]> = {}
    for (const filter of Object.keys(expected)) {
      const known = filter.replace('OWNER', owner.id).replace('POLICY', policy.id)
      const { body } = await call('GET', listOf(`/${path}`, known))
      const items: Record<string, unknown>[] = body[path === 'api_keys' ? 'keys' : path] ?? []
      listed[filter] = body.next_page_uri === null ? items.map((item) => item[field]) : [body]
    }
    expect(listed).toEqual(expected)
  })
})

describe('pages of a filtered list', () => {
  const FILTER = 'obj.description in ["even", "a + b & c?"] && obj.metadata == ""'
  const describeNth = (n: number) => (n % 2 === 0 ? 'even' : n === 1 ? 'a + b & c?' : 'odd')

  async function startCounted(
    count: number,
    options: Parameters<typeof startManagementApi>[0] = {},
  ) {
    const api = await startManagementApi(options)
    const made: Credential[] = []
    for (let n = 0; n < count; n += 1) {
      made.push((await api.issuer.createCredential({ description: describeNth(n) })).credential)
    }
    const wanted = made.filter(({ description }) => description !== 'odd').map(({ id }) => id)
    return { ...api, made, wanted: wanted.toReversed() }
  }
  const idsIn = (page: { credentials: { id: string }[] }) => page.credentials.map(({ id }) => id)

  it('hold as many matching items as asked for, and lead to the next with the filter', async () => {
    const api = await startCounted(11)
    const pages = await pagesOf(api, listOf('/credentials', FILTER, '&limit=3'))
    expect(pages.map((page) => page.credentials.length)).toEqual([3, 3, 1])
    expect(pages.flatMap(idsIn)).toEqual(api.wanted)
    const next = new URL(pages[0].next_page_uri)
    expect(Object.fromEntries(next.searchParams)).toEqual({
      before_id: expect.stringMatching(/^cr_/),
      limit: '3',
      filter: FILTER,
    })
    expect(pages[0].uri).toBe(`${api.baseUrl}/credentials`)
  })

  it('end with the last match, however many other items come after it', async () => {
    const api = await startCounted(11)
    const oldest = api.wanted.slice(-2)
    const filter = oldest.map((id) => `obj.id == "${id}"`).join(' || ')
    for (const limit of [2, 3]) {
      const pages = await pagesOf(api, listOf('/credentials', filter, `&limit=${limit}`))
      expect(pages.map(idsIn)).toEqual([oldest])
    }
    const newest = api.wanted.slice(0, 2).map((id) => `obj.id == "${id}"`)
    const pages = await pagesOf(api, listOf('/credentials', newest.join(' || '), '&limit=2'))
    expect(pages.map(idsIn)).toEqual([api.wanted.slice(0, 2)])
  })

  it('begin before an id, whether that matches or not', async () => {
    const api = await startCounted(6)
    for (const [n, expected] of [
      [5, api.wanted],
      [4, api.wanted.slice(1)],
      [0, []],
    ] as const) {
      for (const name of ['before_id', 'beforeId']) {
        const path = listOf('/credentials', FILTER, `&${name}=${api.made[n]?.id}`)
        expect((await pagesOf(api, path)).flatMap(idsIn)).toEqual(expected)
      }
    }
  })

  it('lose nothing and repeat nothing when items come and go between them', async () => {
    const api = await startCounted(12)
    const { body } = await api.call('GET', listOf('/credentials', FILTER, '&limit=2'))
    const last = api.credentials.get(idsIn(body)[1] ?? '')
    if (last) await api.issuer.deleteCredential(last)
    await api.issuer.createCredential({ description: 'even' })
    const rest = await pagesOf(api, body.next_page_uri.replace(api.baseUrl, ''))
    expect([...idsIn(body), ...rest.flatMap(idsIn)]).toEqual(api.wanted)
  })

  it('hold less where filtering takes too long, and still lead to every item', async () => {
    class SlowClock extends ManualClock {
      #passedMs = 0

      override monotonic(): number {
        this.#passedMs += 50
        return super.monotonic() + this.#passedMs
      }
    }
    const api = await startCounted(16, { clock: new SlowClock() })
    const pages = await pagesOf(api, listOf('/credentials', FILTER))
    expect(pages.length).toBeGreaterThan(2)
    expect(pages.flatMap(idsIn)).toEqual(api.wanted)
    const nothing = await pagesOf(api, listOf('/credentials', 'obj.description == "none"'))
    expect(nothing.map(idsIn)).toEqual(nothing.map(() => []))
    expect(nothing.length).toBeGreaterThan(2)
  })
})

describe('a filter that cannot be used', () => {
  it.each([
    [
      '/bot_users',
      'obj.owner == "x"',
      'The filter is not valid at character 1: unknown field obj.owner; the fields are obj.id, obj.uri, obj.name, obj.active, obj.quotas, obj.usage, obj.warning, obj.created_at.',
    ],
    [
      '/credentials',
      'obj.owner_id == 7',
      'The filter is not valid at character 14: obj.owner_id (a string) and a number cannot be compared with ==.',
    ],
    [
      '/credentials',
      'obj.created_at > "2030-01-01T00:00:00Z"',
      'The filter is not valid at character 16: obj.created_at (a time) and a string cannot be compared with >: write the time as timestamp("2030-01-31T09:00:00Z").',
    ],
    [
      '/credentials',
      'obj.acl[0] == "bind:*"',
      'The filter is not valid at character 8: an index is not supported; filters support ==, !=, <, <=, >, >=, in, &&, ||, !, size(), contains(), startsWith(), endsWith(), has() and timestamp().',
    ],
    ['/credentials', '', 'The filter is not valid: it is empty.'],
    ['/endpoints', 'x'.repeat(4_097), 'The filter is not valid: more than 4096 characters.'],
  ])('on %s: %.40s', async (path, filter, msg) => {
    const { call } = await startManagementApi()
    const { status, body } = await call('GET', listOf(path, filter))
    expect([status, body.error_code, body.msg]).toEqual([400, 'ERR_NGROK_250', msg])
  })

  it('because it is given twice, or was not encoded, is told so', async () => {
    const { call } = await startManagementApi()
    const codeOf = async (query: string) => {
      const { body } = await call('GET', `/credentials?${query}`)
      return [body.error_code, body.msg]
    }
    expect(await codeOf('filter=true&filter=true')).toEqual([
      'ERR_NGROK_232',
      'The query parameter filter is given more than once.',
    ])
    expect(await codeOf('filter=true&&obj.id')).toEqual([
      'ERR_NGROK_231',
      'Unknown query parameter obj.id. Inside a filter, write & as %26.',
    ])
  })

  it('is refused where there is no list', async () => {
    const { call, issuer } = await startManagementApi()
    const { credential } = await issuer.createCredential({})
    const { body } = await call('GET', listOf(`/credentials/${credential.id}`, 'true'))
    expect(body.error_code).toBe('ERR_NGROK_231')
  })

  it('because an item is too much for it is refused, not answered in part', async () => {
    const { call, registry } = await startManagementApi()
    const [endpoint] = agentWithEndpoint('1').agent.endpoints()
    if (endpoint) registry.add({ ...endpoint, trafficPolicy: 'a'.repeat(400_000) })
    const filter = Array(40).fill('obj.traffic_policy.contains("x")').join('||')
    const { status, body } = await call('GET', listOf('/endpoints', filter))
    expect([status, body.error_code]).toEqual([400, 'ERR_NGROK_250'])
    expect(body.msg).toBe('The filter takes too long. Make it simpler.')
  })
})

/** What a stall may be at most, in time of the processor: tests share theirs with others. */
const LIMIT_MS = 25
const ROUNDS = 5

/** The longest that anything held the event loop meanwhile, in the best of a few runs. */
async function longestHoldMs(run: () => Promise<unknown>): Promise<number> {
  let bestMs = Number.POSITIVE_INFINITY
  for (let round = 0; round < ROUNDS; round += 1) {
    let longestMs = 0
    let isRunning = true
    let before = process.cpuUsage()
    const probe = () => {
      const { user, system } = process.cpuUsage(before)
      longestMs = Math.max(longestMs, (user + system) / 1_000)
      before = process.cpuUsage()
      if (isRunning) setImmediate(probe)
    }
    setImmediate(probe)
    await run()
    isRunning = false
    bestMs = Math.min(bestMs, longestMs)
  }
  return bestMs
}

describe('filtering a long list', () => {
  it('holds up nothing else, whatever it costs', async () => {
    const { call, database, ids } = await startManagementApi({ clock: systemClock })
    database.write(() => {
      const insert = database.prepare(
        `INSERT INTO credentials (id, description, metadata, acl, token_hash, created_at)
         VALUES (?, '', ?, '[]', '', 0)`,
      )
      for (let n = 0; n < 3_000; n += 1) insert.run(ids.next('cr'), 'a'.repeat(4_096))
    })
    const bomb = Array(59).fill('obj.metadata.contains("b")').join('||')
    const requests = () =>
      Promise.all(
        Array.from({ length: 2 }, async () => {
          const { status, body } = await call('GET', listOf('/credentials', bomb))
          expect([status, body.credentials]).toEqual([200, []])
        }),
      )
    expect(await longestHoldMs(requests)).toBeLessThan(LIMIT_MS)
  })

  it('ends when nobody waits for it any more', async () => {
    let asked = 0
    const socket = { destroyed: false }
    const query = { filter: 'obj.id == "none"' }
    const request = { query, socket, protocol: 'http', get: () => 'gateway.test' }
    const endless: ListedResource<{ id: string }> = {
      prefix: 'x',
      path: 'things',
      collection: 'things',
      schema: z.object({ id: z.string() }),
      page: () => {
        asked += 1
        socket.destroyed = asked === 3
        return [{ id: 'thing' }]
      },
      view: (thing) => thing,
      ownerOf: () => null,
    }
    const caller = { isOwnerOnly: false } as Caller
    await new ResourceLists(new ManualClock()).answer(
      endless,
      request as unknown as Request,
      caller,
    )
    expect(asked).toBe(3)
  })
})

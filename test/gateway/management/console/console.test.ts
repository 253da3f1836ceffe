import { describe, expect, it } from 'vitest'
import { CONDITIONS } from '../../../../src/agent/condition.ts'
import { IDLE_MS } from '../../../../src/http/pages/browser-sessions.ts'
import { agentWithEndpoint } from '../../../helpers/connected-agent.ts'
import { ConsoleBrowser } from '../../../helpers/console-browser.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'

async function openConsole() {
  const api = await startManagementApi()
  const browser = new ConsoleBrowser(api.baseUrl)
  return { ...api, browser, signIn: () => browser.signIn(api.key.reveal()) }
}

describe('the pages of the console', () => {
  it('run what this gateway serves and nothing else', async () => {
    const { browser } = await openConsole()
    for (const [path, type] of [
      ['/console/', 'text/html'],
      ['/console/console.js', 'text/javascript'],
      ['/console/styles/base.css', 'text/css'],
      ['/console/icon.svg', 'image/svg+xml'],
    ] as const) {
      const { status, headers } = await browser.call('GET', path)
      expect([path, status, headers['content-type']]).toEqual([
        path,
        200,
        expect.stringContaining(type),
      ])
      const policy = String(headers['content-security-policy']).split('; ')
      expect(policy).toEqual(
        expect.arrayContaining([
          "default-src 'none'",
          "script-src 'self'",
          "style-src 'self'",
          "connect-src 'self'",
          "form-action 'self'",
          "frame-src 'self'",
          "frame-ancestors 'none'",
        ]),
      )
      expect(headers['x-content-type-options']).toBe('nosniff')
      // The form of a preview has to name its origin; other sites get nothing.
      expect(headers['referrer-policy']).toBe('same-origin')
    }
  })

  it('stand on nothing inline and nothing from elsewhere', async () => {
    const { browser } = await openConsole()
    const { text } = await browser.call('GET', '/console/')
    expect(text).not.toMatch(/<style|style=|\son\w+=|<script(?![^>]*\ssrc=)|https?:/)
  })

  it('are kept by browsers while they do not change', async () => {
    const { browser } = await openConsole()
    const first = await browser.call('GET', '/console/console.js')
    expect(first.headers['cache-control']).toBe('no-cache')
    const headers = { 'if-none-match': String(first.headers.etag) }
    expect((await browser.call('GET', '/console/console.js', { headers })).status).toBe(304)
  })

  it('are where a browser comes to that asks for the root', async () => {
    const { browser, call } = await openConsole()
    const headers = { accept: 'text/html,*/*;q=0.8' }
    const root = await browser.call('GET', '/', { headers })
    expect([root.status, root.headers.location]).toEqual([302, '/console/'])
    const bare = await browser.call('GET', '/console', { headers })
    expect([bare.status, bare.headers.location]).toEqual([301, '/console/'])
    expect((await call('GET', '/')).status).toBe(404)
  })

  it('are not there for a foreign host name', async () => {
    const { browser } = await openConsole()
    const answer = await browser.call('GET', '/console/', { headers: { host: 'evil.test' } })
    expect(answer.status).toBe(421)
  })

  it.each(['/console/nothing', '/console/%2e%2e/package.json', '/console/..%2fconsole.ts'])(
    'do not include %s',
    async (path) => {
      const { browser } = await openConsole()
      const { status, body } = await browser.call('GET', path)
      expect([403, 404]).toContain(status)
      expect(body.msg).not.toBe('')
    },
  )
})

describe('a session of the console', () => {
  it('acts on the resources of the API, with the cookie alone', async () => {
    const { browser, signIn } = await openConsole()
    expect((await browser.call('GET', '/console/session')).body).toEqual({ api_key: null })
    expect((await browser.call('GET', '/console/api/bot_users')).status).toBe(401)
    const { status, body } = await signIn()
    expect([status, body.api_key.name]).toEqual([201, 'test'])
    const created = await browser.call('POST', '/console/api/bot_users', { body: { name: 'cam' } })
    expect(created.status).toBe(201)
    const listed = await browser.call('GET', '/console/api/bot_users')
    expect(listed.body.bot_users).toEqual([expect.objectContaining(created.body)])
    expect(listed.headers['cache-control']).toBe('no-store')
    expect((await browser.call('GET', '/console/session')).body).toEqual(body)
  })

  it('may do what its key may, and ends when that does', async () => {
    const { browser, issuer, apiKeys, clock } = await openConsole()
    const { apiKey, token } = await issuer.createApiKey({
      name: 'night',
      scope: 'read',
      expiresAt: clock.now() + 600_000,
    })
    const body = { api_key: token.reveal() }
    const signedIn = await browser.call('POST', '/console/session', { body })
    expect(signedIn.body.api_key).toEqual({
      id: apiKey.id,
      name: 'night',
      scope: 'read',
      owner_only: false,
    })
    expect((await browser.call('GET', '/console/api/bot_users')).status).toBe(200)
    const made = await browser.call('POST', '/console/api/bot_users', { body: { name: 'cam' } })
    expect([made.status, made.body.error_code]).toEqual([403, 'ERR_GATEWAY_KEY_SCOPE'])
    const at = clock.now()
    expect(apiKeys.get(apiKey.id)?.lastUsedAt).toBe(at)
    await clock.advance(60_000)
    const headers = { 'x-background': '1' }
    await browser.call('GET', '/console/api/device_rows', { headers })
    expect(apiKeys.get(apiKey.id)?.lastUsedAt).toBe(at)
    await browser.call('GET', '/console/api/device_rows')
    expect(apiKeys.get(apiKey.id)?.lastUsedAt).toBe(at + 60_000)
    await clock.advance(540_000)
    expect((await browser.call('GET', '/console/api/bot_users')).status).toBe(401)
    const late = await browser.call('POST', '/console/session', { body })
    expect([late.status, late.body.error_code]).toEqual([401, 'ERR_GATEWAY_KEY_EXPIRED'])
  })

  it('shows what belongs to the owner of its key', async () => {
    const { browser, issuer, agents, online, deviceStore } = await openConsole()
    const { id: a } = await issuer.createBotUser({ name: 'a' })
    const { id: b } = await issuer.createBotUser({ name: 'b' })
    for (const [at, ownerId] of [a, b, null].entries()) {
      const { agent } = agentWithEndpoint(String(at + 1))
      const endpoints = () => agent.endpoints().map((it) => ({ ...it, ownerId }))
      await online({ ...agent, endpoints, identity: { ...agent.identity, ownerId } })
    }
    const all = (await browser.call('GET', '/console/api/device_rows')).body
    expect(all.devices).toBeUndefined()
    const { token } = await issuer.createApiKey({ ownerId: a })
    await browser.call('POST', '/console/session', { body: { api_key: token.reveal() } })
    const { devices } = (await browser.call('GET', '/console/api/device_rows')).body
    expect(devices.map(({ name }: { name: string }) => name)).toEqual(['press-1'])
    const rows = (await browser.call('GET', '/console/api/endpoint_rows')).body
    expect(rows).toMatchObject({
      is_part: false,
      endpoints: [{ url: 'https://press-1.site.test', device: { name: 'press-1' } }],
    })
    expect(rows.endpoints).toHaveLength(1)
    const details = async (name: string) => {
      const { id } = deviceNamed(name)
      return (await browser.call('GET', `/console/api/device_details/${id}`)).status
    }
    const deviceNamed = (name: string) => {
      const device = deviceStore.page({ limit: 10 }).find(({ facts }) => facts.hostname === name)
      if (!device) throw new Error(`there is no ${name}`)
      return device
    }
    expect(await details('press-1')).toBe(200)
    expect(await details('press-2')).toBe(404)
    const stop = await browser.call('POST', `/console/api/tunnel_sessions/${agents[2]?.id}/stop`)
    expect(stop.status).toBe(404)
  })

  it('has a cookie that scripts, other sites and other paths do not get', async () => {
    const { signIn, key, logText } = await openConsole()
    const { headers, text } = await signIn()
    const [cookie] = headers['set-cookie'] ?? []
    expect(cookie).toMatch(/^console_session=[\w-]{43}; Path=\/console; HttpOnly; SameSite=Strict$/)
    const id = cookie?.split(/[=;]/)[1] ?? ''
    for (const secret of [id, key.reveal()]) expect(text + logText()).not.toContain(secret)
  })

  it('does not open the API itself', async () => {
    const { browser, signIn } = await openConsole()
    await signIn()
    const { status, body } = await browser.call('GET', '/bot_users')
    expect([status, body.error_code]).toEqual([403, 'ERR_NGROK_200'])
  })

  it('is over after signing out, on the side of the gateway too', async () => {
    const { browser, signIn } = await openConsole()
    await signIn()
    const { cookie } = browser
    expect((await browser.call('DELETE', '/console/session')).status).toBe(204)
    expect(browser.cookie).toBe('console_session=')
    browser.cookie = cookie
    expect((await browser.call('GET', '/console/api/bot_users')).status).toBe(401)
  })

  it('that nobody knows is ended as often as somebody wants', async () => {
    const { browser } = await openConsole()
    for (let count = 0; count < 20; count += 1) {
      browser.cookie = `console_session=${'a'.repeat(43)}`
      expect((await browser.call('DELETE', '/console/session')).status).toBe(204)
      expect(browser.cookie).toBe('console_session=')
    }
  })

  it('is renewed by signing in again, so that an id given by others is of no use', async () => {
    const { browser, signIn } = await openConsole()
    await signIn()
    const before = browser.cookie
    await signIn()
    expect(browser.cookie).not.toBe(before)
    browser.cookie = before
    expect((await browser.call('GET', '/console/api/bot_users')).status).toBe(401)
  })

  it('ends with its API key', async () => {
    const { browser, signIn, call } = await openConsole()
    const { api_key: apiKey } = (await signIn()).body
    await call('DELETE', `/api_keys/${apiKey.id}`)
    expect((await browser.call('GET', '/console/api/bot_users')).status).toBe(401)
    expect((await browser.call('GET', '/console/session')).body).toEqual({ api_key: null })
  })

  it('ends when the owner of its API key is set inactive', async () => {
    const { browser, issuer } = await openConsole()
    const owner = await issuer.createBotUser({ name: 'fleet' })
    await browser.signIn((await issuer.createApiKey({ ownerId: owner.id })).token.reveal())
    expect((await browser.call('GET', '/console/api/bot_users')).status).toBe(200)
    await issuer.updateBotUser(owner, { active: false })
    expect((await browser.call('GET', '/console/api/bot_users')).status).toBe(401)
  })

  it('ends when only its page still asks', async () => {
    const { browser, signIn, clock } = await openConsole()
    await signIn()
    const headers = { 'x-background': '1' }
    const ask = () => browser.call('GET', '/console/api/device_rows', { headers })
    await clock.advance(IDLE_MS - 1)
    expect((await ask()).status).toBe(200)
    await clock.advance(1)
    const { status, body } = await ask()
    expect([status, body.msg]).toEqual([401, 'The session has ended. Sign in again.'])
  })

  it('may ask 600 times a minute', async () => {
    const { browser, signIn } = await openConsole()
    await signIn()
    for (let n = 0; n < 600; n += 1) await browser.call('GET', '/console/api/nothing')
    const refused = await browser.call('GET', '/console/api/nothing')
    expect([refused.status, refused.headers['retry-after']]).toEqual([429, '60'])
  })
})

describe('signing in', () => {
  it('tells what is wrong with a key, without repeating it', async () => {
    const { browser, issuer, logText } = await openConsole()
    const authtoken = (await issuer.createCredential({})).authtoken.reveal()
    for (const [sent, code] of [
      ['nonsense', 'ERR_NGROK_202'],
      [authtoken, 'ERR_NGROK_206'],
    ]) {
      const { status, body, text } = await browser.signIn(sent ?? '')
      expect([status, body.error_code]).toEqual([403, code])
      expect(text + logText()).not.toContain(sent)
    }
    expect(browser.cookie).toBeUndefined()
  })

  it('slows down who tries keys, and never the holder of a good one', async () => {
    const { browser, signIn } = await openConsole()
    const statuses: number[] = []
    for (let n = 0; n < 12; n += 1) statuses.push((await browser.signIn('x')).status)
    expect(statuses).toEqual([...Array(10).fill(403), 429, 429])
    expect((await signIn()).status).toBe(201)
  })

  it('takes JSON only, with known fields', async () => {
    const { browser, key } = await openConsole()
    const body = JSON.stringify({ api_key: key.reveal() })
    const headers = { 'content-type': 'text/plain' }
    const plain = await browser.call('POST', '/console/session', { body, headers })
    expect(plain.status).toBe(415)
    const unknown = await browser.call('POST', '/console/session', { body: { key: 'x' } })
    expect(unknown.status).toBe(400)
    expect(browser.cookie).toBeUndefined()
  })
})

describe('what another web page makes a browser send', () => {
  const absent = { 'sec-fetch-site': undefined }
  it.each([
    ['from another site', { 'sec-fetch-site': 'cross-site' }, 403],
    ['from another port of this host', { 'sec-fetch-site': 'same-site' }, 403],
    ['from another origin', { ...absent, origin: 'https://evil.test' }, 403],
    ['from a page without an origin', { ...absent, origin: 'null' }, 403],
    ['with no word about where it comes from', absent, 403],
    ['as a request that needs no preflight', { 'svc-version': undefined }, 400],
    ['as a form', { 'content-type': 'text/plain' }, 415],
    ['to a foreign host name', { host: 'evil.test' }, 421],
  ])('is refused %s', async (_how, headers, status) => {
    const { browser, signIn, botUsers } = await openConsole()
    await signIn()
    const change = { body: { name: 'x' }, headers }
    expect((await browser.call('POST', '/console/api/bot_users', change)).status).toBe(status)
    expect(botUsers.page({ limit: 1 })).toEqual([])
  })

  it('is taken from a page of ours that a browser names by its origin', async () => {
    const { browser, signIn, baseUrl } = await openConsole()
    await signIn()
    const change = { body: { name: 'x' }, headers: { ...absent, origin: baseUrl } }
    expect((await browser.call('POST', '/console/api/bot_users', change)).status).toBe(201)
  })

  it('cannot sign a browser in or out either', async () => {
    const { browser, key, signIn } = await openConsole()
    await signIn()
    const { cookie } = browser
    const headers = { 'sec-fetch-site': 'cross-site' }
    const body = { api_key: key.reveal() }
    expect((await browser.call('POST', '/console/session', { body, headers })).status).toBe(403)
    expect((await browser.call('DELETE', '/console/session', { headers })).status).toBe(403)
    expect(browser.cookie).toBe(cookie)
    expect((await browser.call('GET', '/console/api/bot_users')).status).toBe(200)
  })
})

describe('what the console has beyond the API', () => {
  it('shows devices with their owner, and tells them what to do', async () => {
    const { browser, signIn, issuer, online, devices } = await openConsole()
    await signIn()
    const owner = await issuer.createBotUser({ name: 'press line' })
    const { credential } = await issuer.createCredential({
      ownerId: owner.id,
      description: 'press 8',
    })
    const commands: string[] = []
    const { agent: other, traffic } = agentWithEndpoint('8')
    const agent = await online({
      ...other,
      identity: {
        ...other.identity,
        hostname: '',
        ownerId: owner.id,
        credentialId: credential.id,
      },
      command: async (command) => void commands.push(command),
    })
    traffic.requests = 3
    traffic.bytesIn = 10
    const { body } = await browser.call('GET', '/console/api/device_rows')
    expect(body).toEqual({
      is_part: false,
      devices: [
        {
          id: devices.all()[0]?.id,
          name: 'press 8',
          tags: [],
          state: 'online',
          since: '2030-01-01T00:00:00.000Z',
          reason: null,
          ip: '192.0.2.7',
          version: '1.2.3',
          endpoints: 1,
          is_duplicate: false,
          requests: 3,
          bytes_in: 10,
          bytes_out: 0,
        },
      ],
    })
    const details = await browser.call('GET', `/console/api/device_details/${body.devices[0].id}`)
    expect(details.body).toMatchObject({
      latency_ms: 12,
      owner: 'press line',
      authtoken: 'press 8',
      endpoints: [
        {
          ...{ url: 'https://press-8.site.test', history: null },
          ...{ condition: 'working', condition_at: null },
        },
      ],
    })
    Object.assign(traffic.outcomes, { state: 'unreachable', judgedAt: Date.UTC(2030, 0, 1) })
    const { endpoints } = (
      await browser.call('GET', `/console/api/device_details/${body.devices[0].id}`)
    ).body
    expect(endpoints[0].condition).toBe('service_down')
    expect(endpoints[0].condition_at).toBe('2030-01-01T00:00:00.000Z')
    expect(CONDITIONS).toContain(endpoints[0].condition)
    for (const command of ['restart', 'stop']) {
      const path = `/console/api/tunnel_sessions/${agent.id}/${command}`
      expect((await browser.call('POST', path)).status).toBe(204)
    }
    expect(commands).toEqual(['restart', 'stop'])
  })

  it('draws QR codes', async () => {
    const { browser, signIn } = await openConsole()
    const draw = (text: string) => browser.call('POST', '/console/api/qr_codes', { body: { text } })
    expect((await draw('x')).status).toBe(401)
    await signIn()
    const { status, headers, text } = await draw('2abc_7def')
    expect([status, headers['content-type']]).toEqual([
      201,
      expect.stringContaining('image/svg+xml'),
    ])
    expect(text).toMatch(/^<svg .*<\/svg>\s*$/s)
    expect(text).not.toBe((await draw('2abc_7deg')).text)
    expect((await draw('x'.repeat(2_048))).status).toBe(201)
    expect((await draw('x'.repeat(2_049))).status).toBe(400)
    expect((await draw('')).status).toBe(400)
  })
})

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Listener } from '@ngrok/ngrok'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import type { GatewayOptions } from '../../../src/gateway/gateway.ts'
import { type AllowEntry, parseAllowEntry } from '../../../src/policy/outbound/outbound-allow.ts'
import { forward, startDeviceService } from '../../helpers/device-sdk.ts'
import { answerOf, connectHttp2, openStream } from '../../helpers/http2-visitor.ts'
import { type OpenidProviderOptions, startOpenidProvider } from '../../helpers/openid-provider.ts'
import { connectSdk, startGateway } from '../../helpers/running-gateway.ts'
import { VisitorBrowser } from '../../helpers/visitor-browser.ts'
import { WallClock } from '../../helpers/wall-clock.ts'

const LOOPBACK = [parseAllowEntry('127.0.0.1') as AllowEntry]
const CAM = 'cam.site.test'
const DOOR = 'door.site.test'
const HOUR_MS = 3_600_000
const isCallback = (url: URL) => url.pathname === '/ngrok/callback'

const USERS = {
  ann: { email: 'ann@site.test', email_verified: true, name: 'Ann', groups: ['staff', 'doors'] },
  ben: { email: 'ben@else.test', email_verified: true, name: 'Ben', groups: ['guests'] },
  eve: { email: 'ann@site.test', email_verified: false, name: 'Eve' },
}

/** What the device was asked, as it tells it. */
interface Seen {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
}

const SHOW = {
  actions: [
    {
      type: 'add-headers',
      config: {
        headers: {
          'x-email': '${actions.ngrok.oidc.identity.email}',
          'x-name': '${actions.svc.oidc.identity.name}',
          'x-groups': "${actions.ngrok.oidc.identity.claims.groups.join(' ')}",
          'x-end': '${actions.ngrok.oidc.expires_at}',
          'x-id': '${actions.ngrok.oidc.identity.id}',
          'x-session': '${actions.ngrok.oidc.identity.current_session_id}',
          'x-token': "${string(actions.ngrok.oidc.identity_token.split('.').size())}",
          'x-refreshed':
            '${string(actions.ngrok.oidc.userinfo_refreshed && actions.ngrok.oidc.user_info_refreshed)}',
        },
      },
    },
  ],
}

async function startSite(options: Partial<GatewayOptions> & Partial<OpenidProviderOptions> = {}) {
  const { authMethod, users = USERS, ...gateway } = options
  const running = await startGateway({ outboundAllow: LOOPBACK, ...gateway })
  const browser = new VisitorBrowser(running)
  const redirectUris = [CAM, DOOR].map((host) => browser.urlOf(host, '/ngrok/callback'))
  const provider = await startOpenidProvider({
    redirectUris,
    users,
    ...(authMethod && { authMethod }),
  })
  const session = await connectSdk(running)
  const service = await startDeviceService(({ url, headers }, response) => {
    response.setHeader('set-cookie', 'own=1').end(JSON.stringify({ url, headers }))
  })
  const listeners = new Map<string, Listener>()
  const bind = async (
    config: object = {},
    more: readonly object[] = [SHOW],
    { domain = CAM, expressions = [] as readonly string[] } = {},
  ) => {
    const login = {
      type: 'openid-connect',
      config: {
        issuer_url: provider.issuer,
        client_id: provider.clientId,
        client_secret: authMethod === 'none' ? '' : provider.clientSecret,
        scopes: ['groups'],
        ...config,
      },
    }
    const policy = JSON.stringify({ on_http_request: [{ expressions, actions: [login] }, ...more] })
    await listeners.get(domain)?.close()
    listeners.set(domain, await forward(session, service, { domain, policy }))
  }
  return { running, browser, provider, bind, session }
}

const seenIn = ({ text }: { readonly text: string }) => JSON.parse(text) as Seen

function signInFailures({ logText }: { logText(): string }): Record<string, unknown>[] {
  const lines = logText().split('\n')
  return lines.filter((line) => line.includes('sign-in failed')).map((line) => JSON.parse(line))
}

describe('openid-connect', () => {
  it('sends visitors to the provider, and lets in who comes back', async () => {
    const { browser, bind } = await startSite()
    await bind()
    const first = await browser.send(browser.urlOf(CAM, '/deep/page?x=1&y=%2F'))
    expect(first.status).toBe(302)
    expect(first.headers).toMatchObject({ 'cache-control': 'no-store' })
    const sent = new URL(first.headers.location ?? '')
    expect(Object.fromEntries(sent.searchParams)).toMatchObject({
      response_type: 'code',
      client_id: 'devices',
      redirect_uri: browser.urlOf(CAM, '/ngrok/callback'),
      scope: 'openid profile email groups',
      code_challenge_method: 'S256',
      code_challenge: expect.stringMatching(/^[\w-]{43}$/),
      nonce: expect.stringMatching(/^[\w-]{43}$/),
      state: expect.stringMatching(/^[0-9a-f]{12}\.[\w-]{100,}$/),
    })
    expect(sent.searchParams.has('prompt')).toBe(false)

    const page = await browser.signIn(browser.urlOf(CAM, '/deep/page?x=1&y=%2F'), 'ann')
    expect(page.status).toBe(200)
    const { url, headers } = seenIn(page)
    expect(url).toBe('/deep/page?x=1&y=%2F')
    expect(headers).toMatchObject({
      'x-email': 'ann@site.test',
      'x-name': 'Ann',
      'x-groups': 'staff doors',
      'x-token': '3',
      'x-refreshed': 'false',
      'x-id': expect.stringMatching(/^idt_[\w-]{27}$/),
      'x-session': expect.stringMatching(/^ids_[0-9a-f]{32}$/),
      'x-end': expect.stringMatching(/^20\d\d-.*Z$/),
    })
  })

  it('keeps its cookies from scripts, other hosts and the device', async () => {
    const { browser, bind } = await startSite()
    await bind()
    const page = await browser.signIn(browser.urlOf(CAM), 'ann')
    const own = browser.received.filter((field) => field.startsWith('__Host-'))
    expect(own.length).toBeGreaterThan(1)
    for (const field of own) {
      expect(field).toMatch(/; Path=\/; Max-Age=\d+; HttpOnly; Secure; SameSite=Lax$/)
      expect(field).not.toMatch(/domain/i)
      expect(field.length).toBeLessThan(4_096)
    }
    expect(seenIn(page).headers).not.toHaveProperty('cookie')
    const again = seenIn(await browser.send(browser.urlOf(CAM)))
    expect(again.headers.cookie).toBe('own=1')
    // The one of the sign-in is gone when that is over.
    const names = browser.cookieNames(CAM)
    expect(names.some((name) => name.startsWith('__Host-session.'))).toBe(true)
    expect(names.some((name) => name.includes('nonce.'))).toBe(false)
    // Nothing in them can be read.
    const kept = Array.from(browser.cookies.get(CAM)?.values() ?? []).join('')
    const bytes = Buffer.from(kept, 'base64url').toString('latin1')
    expect(`${kept} ${bytes}`).not.toMatch(/ann@site|accessToken|eyJ/)
  })

  it('tells who is no browser what is missing', async () => {
    const { browser, bind } = await startSite()
    await bind()
    for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH']) {
      const refused = await browser.send(browser.urlOf(CAM), { method })
      expect(refused.status).toBe(401)
      expect(refused.headers).toMatchObject({
        'ngrok-error-code': 'ERR_GATEWAY_SIGN_IN',
        'www-authenticate': expect.any(String),
      })
      expect(refused.text).toContain(browser.urlOf(CAM, '/ngrok/login'))
    }
    const headers = { connection: 'Upgrade', upgrade: 'websocket' }
    expect(await browser.send(browser.urlOf(CAM), { headers })).toMatchObject({ status: 401 })
    expect(await browser.send(browser.urlOf(CAM), { method: 'HEAD' })).toMatchObject({
      status: 302,
    })
    await browser.signIn(browser.urlOf(CAM), 'ann')
    const posted = await browser.send(browser.urlOf(CAM), { method: 'POST', body: 'x' })
    expect(posted.status).toBe(200)
  })

  it('leaves it to the rules that follow whom to let in', async () => {
    const { browser, bind, running } = await startSite()
    const deny = (expression: string) => ({
      expressions: [expression],
      actions: [{ type: 'custom-response', config: { status_code: 403, body: 'not you' } }],
    })
    await bind({}, [deny("!actions.ngrok.oidc.identity.email.endsWith('@site.test')")])
    await bind({}, [deny("!('doors' in actions.ngrok.oidc.identity.claims.groups)")], {
      domain: DOOR,
    })
    const people = [
      { login: 'ann', cam: 200, door: 200 },
      { login: 'ben', cam: 403, door: 403 },
      // Her address is not proved to be hers, and she is in no group.
      { login: 'eve', cam: 403, door: 500 },
    ]
    for (const { login, cam, door } of people) {
      const visitor = new VisitorBrowser(running)
      expect(await visitor.signIn(browser.urlOf(CAM), login), login).toMatchObject({ status: cam })
      const other = new VisitorBrowser(running)
      expect(await other.signIn(browser.urlOf(DOOR), login), login).toMatchObject({ status: door })
    }
  })

  it('takes nobody back whom it has not sent away', async () => {
    const { browser, bind, running } = await startSite()
    await bind()
    const back = await browser.signIn(browser.urlOf(CAM), 'ann', isCallback)
    const { url } = back
    const code = (answer: { readonly headers: Readonly<Record<string, unknown>> }) =>
      answer.headers['ngrok-error-code']

    // A visitor who is led to somebody else's sign-in, and would not notice whose account it is.
    const victim = new VisitorBrowser(running)
    const led = await victim.send(url.href)
    expect([led.status, code(led)]).toEqual([400, 'ERR_NGROK_3121'])
    await victim.send(browser.urlOf(CAM))
    const ledLater = await victim.send(url.href)
    expect([ledLater.status, code(ledLater)]).toEqual([400, 'ERR_NGROK_3121'])
    expect(victim.cookieNames(CAM).some((name) => name.includes('session'))).toBe(false)

    const state = url.searchParams.get('state') ?? ''
    const changed = new URL(url)
    changed.searchParams.set('state', `${state.slice(0, -4)}AAAA`)
    const wrong = await browser.send(changed.href)
    expect([wrong.status, code(wrong)]).toEqual([400, 'ERR_NGROK_5200'])
    const none = new URL(url)
    none.searchParams.delete('state')
    expect(code(await browser.send(none.href))).toBe('ERR_NGROK_5200')
    const empty = new URL(url)
    empty.searchParams.delete('code')
    expect(code(await browser.send(empty.href))).toBe('ERR_NGROK_5200')

    const other = new URL(url)
    other.searchParams.set('code', 'A'.repeat(43))
    const foreign = await browser.send(other.href)
    expect([foreign.status, code(foreign)]).toEqual([403, 'ERR_NGROK_5211'])

    expect(await browser.send(url.href)).toMatchObject({ status: 302 })
  })

  it('takes a code once', async () => {
    const { browser, bind } = await startSite()
    await bind()
    const { url } = await browser.signIn(browser.urlOf(CAM), 'ann', isCallback)
    const before = new Map(browser.cookies.get(CAM))
    expect(await browser.send(url.href)).toMatchObject({ status: 302 })
    // Whoever has seen it all, cookie and address, comes again.
    browser.cookies.set(CAM, before)
    const replayed = await browser.send(url.href)
    expect(replayed.status).toBe(403)
    expect(replayed.headers).toHaveProperty('ngrok-error-code', 'ERR_NGROK_5211')
    expect(browser.cookieNames(CAM).some((name) => name.includes('session'))).toBe(false)
  })

  it('takes a sign-in that is late, or has gone well in another tab, for what it is', async () => {
    const clock = new WallClock()
    const { browser, bind } = await startSite({ clock })
    await bind()
    const first = await browser.signIn(browser.urlOf(CAM, '/one'), 'ann', isCallback)
    const second = await browser.open(browser.urlOf(CAM, '/two'), isCallback)
    expect(await browser.open(first.url.href)).toMatchObject({ status: 200 })
    const tab = await browser.open(second.url.href)
    expect(seenIn(tab).url).toBe('/two')

    browser.cookies.delete(CAM)
    const late = await browser.open(browser.urlOf(CAM), isCallback)
    clock.aheadMs = 10 * 60_000
    const refused = await browser.send(late.url.href)
    expect(refused.status).toBe(400)
    expect(refused.headers).toHaveProperty('ngrok-error-code', 'ERR_NGROK_5209')
  })

  it('believes no session that it has not sealed for this very endpoint', async () => {
    const { browser, bind } = await startSite()
    await bind()
    await bind({}, [SHOW], { domain: DOOR })
    await browser.signIn(browser.urlOf(CAM), 'ann')
    const jar = browser.cookies.get(CAM) ?? new Map<string, string>()
    const name = browser.cookieNames(CAM).find((known) => known.includes('session')) ?? ''
    const value = jar.get(name) ?? ''
    const isIn = async (changed: string) => {
      jar.set(name, changed)
      return (await browser.send(browser.urlOf(CAM))).status === 200
    }
    expect(await isIn(value)).toBe(true)
    const flipped = value[60] === 'A' ? 'B' : 'A'
    expect(await isIn(`${value.slice(0, 60)}${flipped}${value.slice(61)}`)).toBe(false)
    expect(await isIn(value.slice(0, -8))).toBe(false)
    expect(await isIn('')).toBe(false)
    expect(await isIn('x')).toBe(false)
    expect(await isIn(value)).toBe(true)
    // The same policy, another endpoint.
    browser.cookies.set(DOOR, new Map(jar))
    expect(await browser.send(browser.urlOf(DOOR))).toMatchObject({ status: 302 })
    // The same endpoint, another policy.
    await bind({ scopes: [] }, [])
    expect(await browser.send(browser.urlOf(CAM))).toMatchObject({ status: 302 })
  })

  it('ends sessions that are too old, or were not used', async () => {
    const clock = new WallClock()
    const { browser, bind } = await startSite({ clock })
    await bind({ max_session_duration: '4h', idle_session_timeout: '1h' })
    await browser.signIn(browser.urlOf(CAM), 'ann')
    const status = async () => (await browser.send(browser.urlOf(CAM))).status
    for (const minutes of [0, 50, 100, 150, 200, 239]) {
      clock.aheadMs = minutes * 60_000
      expect(await status(), `${minutes} min`).toBe(200)
    }
    clock.aheadMs = 4 * HOUR_MS
    expect(await status()).toBe(302)
    await browser.signIn(browser.urlOf(CAM), 'ann')
    clock.aheadMs += HOUR_MS
    expect(await status()).toBe(302)
  })

  it('knows its visitors after a restart of the gateway', async () => {
    const { browser, bind, running, provider } = await startSite()
    await bind()
    await browser.signIn(browser.urlOf(CAM), 'ann')
    await running.gateway.stop()
    const { dataDir, authtoken } = running
    const next = await startGateway({ dataDir, authtoken, outboundAllow: LOOPBACK })
    browser.useGateway(next)
    const session = await connectSdk(next)
    const service = await startDeviceService((_request, response) => void response.end('in'))
    const config = {
      issuer_url: provider.issuer,
      client_id: provider.clientId,
      client_secret: provider.clientSecret,
      scopes: ['groups'],
    }
    const bindAgain = (change: object) => {
      const actions = [{ type: 'openid-connect', config: { ...config, ...change } }]
      return forward(session, service, {
        policy: JSON.stringify({ on_http_request: [{ actions }] }),
      })
    }
    const listener = await bindAgain({})
    expect(await browser.send(browser.urlOf(CAM))).toMatchObject({ status: 200, text: 'in' })
    await listener.close()
    await bindAgain({ client_secret: 'that of somebody else' })
    expect(await browser.send(browser.urlOf(CAM))).toMatchObject({ status: 302 })
  })

  it('says at once that the provider is not there', async () => {
    const { browser, bind, provider, running } = await startSite()
    await bind()
    const { url } = await browser.signIn(browser.urlOf(CAM), 'ann', isCallback)
    await provider.stop()
    const back = await browser.send(url.href)
    expect(back.status).toBe(502)
    expect(back.headers).toHaveProperty('ngrok-error-code', 'ERR_NGROK_5202')
    expect(back.text).toContain('Sign in at https://cam.site.test')
    // `up` shows warnings only. Visitors cannot fill the log with them.
    await browser.send(url.href)
    expect(signInFailures(running).map(({ level }) => level)).toEqual(['warn', 'info'])
    expect(running.logText()).not.toContain('something went wrong')
    await bind({ auth_id: 'new' })
    const away = await browser.send(browser.urlOf(CAM))
    expect(away.status).toBe(502)
    expect(away.headers).toHaveProperty('ngrok-error-code', 'ERR_NGROK_5208')
    expect(away.text).not.toContain('127.0.0.1')
    expect(running.logText()).toContain('ECONNREFUSED')
    expect(running.logText()).not.toContain(provider.clientSecret)
  })

  it('waits for no provider that does not answer', async () => {
    const { browser, bind, provider } = await startSite()
    await bind()
    const { url } = await browser.signIn(browser.urlOf(CAM), 'ann', isCallback)
    const inTime = AbortSignal.timeout.bind(AbortSignal)
    const timeout = vi.spyOn(AbortSignal, 'timeout').mockImplementation(() => inTime(50))
    onTestFinished(() => timeout.mockRestore())
    provider.hold = () => new Promise(() => {})
    const back = await browser.send(url.href)
    expect(back.headers).toHaveProperty('ngrok-error-code', 'ERR_NGROK_5202')
    await bind({ auth_id: 'new' })
    const away = await browser.send(browser.urlOf(CAM))
    expect(away.headers).toHaveProperty('ngrok-error-code', 'ERR_NGROK_5208')
    const times = new Set(timeout.mock.calls.map(([ms]) => ms))
    expect(times).toEqual(new Set([5_000]))
  })

  it('asks only where the gateway allows it', async () => {
    const { browser, bind, provider, running } = await startSite({ outboundAllow: [] })
    await bind()
    const refused = await browser.send(browser.urlOf(CAM))
    expect(refused.status).toBe(502)
    expect(refused.headers).toHaveProperty('ngrok-error-code', 'ERR_NGROK_5208')
    expect(provider.asked).toEqual([])
    const { host } = new URL(provider.issuer)
    expect(signInFailures(running)).toMatchObject([
      {
        level: 'warn',
        host: CAM,
        code: 'ERR_NGROK_5208',
        problem: `GATEWAY_OUTBOUND_ALLOW does not allow connections to ${host}. Add ${host} to this setting of the gateway.`,
      },
    ])
  })

  it('tells what the provider says when it refuses, and nothing that does harm', async () => {
    const { browser, bind } = await startSite()
    await bind()
    const form = await browser.open(browser.urlOf(CAM))
    const refused = await browser.submit(form, 'abort=1')
    expect(refused.status).toBe(403)
    expect(refused.headers).toMatchObject({
      'ngrok-error-code': 'ERR_NGROK_5211',
      'content-type': 'text/plain; charset=utf-8',
      'x-content-type-options': 'nosniff',
    })
    expect(refused.text).toContain('access_denied: not "today", thank you')
  })

  it('signs in anew at /ngrok/login, and leads to a path of the same host', async () => {
    const { browser, bind } = await startSite()
    await bind()
    await browser.signIn(browser.urlOf(CAM), 'ann')
    for (const [asked, path] of [
      ['/next?a=1', '/next?a=1'],
      ['//evil.test/', '/'],
      ['https://evil.test/', '/'],
      ['/ngrok/login', '/'],
    ] as const) {
      // As the provider asks again, it may be somebody else.
      browser.cookies.delete('127.0.0.1')
      const login = `/ngrok/login?redirect_path=${encodeURIComponent(asked)}`
      const sent = await browser.send(browser.urlOf(CAM, login))
      const provider = new URL(sent.headers.location ?? '')
      expect(provider.searchParams.get('prompt')).toBe('login')
      const { url } = await browser.signIn(provider.href, 'ben', isCallback)
      const back = await browser.send(url.href)
      expect(back.headers.location, asked).toBe(browser.urlOf(CAM, path))
    }
    const page = await browser.send(browser.urlOf(CAM))
    expect(seenIn(page).headers).toHaveProperty('x-email', 'ben@else.test')
  })

  it('signs out', async () => {
    const { browser, bind } = await startSite()
    await bind()
    await browser.signIn(browser.urlOf(CAM), 'ann')
    const out = await browser.send(browser.urlOf(CAM, '/ngrok/logout'))
    expect([out.status, out.text]).toEqual([200, expect.stringContaining('signed out')])
    expect(browser.cookieNames(CAM)).toEqual(['own'])
    expect(await browser.send(browser.urlOf(CAM))).toMatchObject({ status: 302 })
    const led = (path: string) =>
      browser.send(browser.urlOf(CAM, `/ngrok/logout?redirect_path=${path}`))
    expect((await led('/bye')).headers.location).toBe(browser.urlOf(CAM, '/bye'))
    expect((await led('//evil.test')).headers.location).toBe(browser.urlOf(CAM))
  })

  it('has its own paths where its rule is for other paths alone', async () => {
    const { browser, bind } = await startSite()
    const expressions = ["req.url.path.startsWith('/admin')"]
    await bind({ auth_id: 'staff' }, [], { expressions })
    expect(seenIn(await browser.send(browser.urlOf(CAM, '/open'))).url).toBe('/open')
    const page = await browser.signIn(browser.urlOf(CAM, '/admin/x'), 'ann')
    expect(seenIn(page).url).toBe('/admin/x')
    const path = '/ngrok/logout?auth_id=staff'
    expect((await browser.send(browser.urlOf(CAM, path))).text).toContain('signed out')
    // That of another log-in is a path like others.
    expect(seenIn(await browser.send(browser.urlOf(CAM, '/ngrok/logout'))).url).toBe(
      '/ngrok/logout',
    )
  })

  it('keeps log-ins of one policy apart by their auth_id', async () => {
    const { browser, bind, provider } = await startSite()
    const config = {
      issuer_url: provider.issuer,
      client_id: provider.clientId,
      client_secret: provider.clientSecret,
      auth_id: 'second',
    }
    const second = {
      expressions: ["req.url.path.startsWith('/two')"],
      actions: [{ type: 'openid-connect', config }],
    }
    await bind({ auth_id: 'first', scopes: [] }, [second], {
      expressions: ["req.url.path.startsWith('/one')"],
    })
    await browser.signIn(browser.urlOf(CAM, '/one'), 'ann')
    expect(await browser.send(browser.urlOf(CAM, '/one'))).toMatchObject({ status: 200 })
    expect(await browser.send(browser.urlOf(CAM, '/two'))).toMatchObject({ status: 302 })
    expect(await browser.open(browser.urlOf(CAM, '/two'))).toMatchObject({ status: 200 })
    await browser.send(browser.urlOf(CAM, '/ngrok/logout?auth_id=first'))
    expect(await browser.send(browser.urlOf(CAM, '/one'))).toMatchObject({ status: 302 })
  })

  it('asks the provider again when it is told to, once for many requests', async () => {
    const clock = new WallClock()
    const users = { ann: { ...USERS.ann, groups: ['staff'] } as { groups: readonly string[] } }
    const { browser, bind, provider } = await startSite({ clock, users })
    await bind({ userinfo_refresh_interval: '5m', scopes: ['groups', 'offline_access'] })
    await browser.signIn(browser.urlOf(CAM), 'ann')
    users.ann.groups = ['none']
    const groups = async () => seenIn(await browser.send(browser.urlOf(CAM))).headers['x-groups']
    clock.aheadMs = 4 * 60_000
    expect(await groups()).toBe('staff')
    clock.aheadMs = 5 * 60_000
    const before = provider.asked.length
    expect(await Promise.all([groups(), groups(), groups()])).toEqual(['none', 'none', 'none'])
    expect(provider.asked.slice(before)).toEqual(['/me'])
    expect(await groups()).toBe('none')
    expect(provider.asked.length).toBe(before + 1)
  })

  it('ends the session of somebody whom the provider does not know any more', async () => {
    const clock = new WallClock()
    const users: Record<string, object> = { ann: USERS.ann }
    const { browser, bind } = await startSite({ clock, users })
    await bind({ userinfo_refresh_interval: '5m' })
    await browser.signIn(browser.urlOf(CAM), 'ann')
    delete users.ann
    clock.aheadMs = 5 * 60_000
    expect(await browser.send(browser.urlOf(CAM))).toMatchObject({ status: 302 })
    expect(await browser.send(browser.urlOf(CAM), { method: 'POST' })).toMatchObject({
      status: 401,
    })
  })

  it('lets in nobody whom it cannot ask about when it has to', async () => {
    const clock = new WallClock()
    const { browser, bind, provider } = await startSite({ clock })
    await bind({ userinfo_refresh_interval: '5m' })
    await browser.signIn(browser.urlOf(CAM), 'ann')
    await provider.stop()
    expect(await browser.send(browser.urlOf(CAM))).toMatchObject({ status: 200 })
    clock.aheadMs = 5 * 60_000
    const refused = await browser.send(browser.urlOf(CAM))
    expect(refused.status).toBe(502)
    expect(refused.headers).toHaveProperty('ngrok-error-code', 'ERR_NGROK_5202')
  })

  it('lets preflights pass where it is told to', async () => {
    const { browser, bind } = await startSite()
    const headers = { origin: 'https://else.test', 'access-control-request-method': 'PUT' }
    const ask = (more: object = headers) =>
      browser.send(browser.urlOf(CAM), { method: 'OPTIONS', headers: { ...more } })
    await bind({}, [])
    expect(await ask()).toMatchObject({ status: 401 })
    await bind({ allow_cors_preflight: true }, [])
    expect(await ask()).toMatchObject({ status: 200 })
    expect(await ask({ origin: 'https://else.test' })).toMatchObject({ status: 401 })
    expect(await browser.send(browser.urlOf(CAM))).toMatchObject({ status: 302 })
  })

  it.each(['client_secret_post', 'none'] as const)(
    'speaks to a provider that wants %s',
    async (authMethod) => {
      const { browser, bind } = await startSite({ authMethod })
      await bind()
      expect(await browser.signIn(browser.urlOf(CAM), 'ann')).toMatchObject({ status: 200 })
    },
  )

  it('spreads a large session over cookies, and refuses one that is too large', async () => {
    const groups = (count: number) => Array.from({ length: count }, (_, index) => `group-${index}`)
    const users = {
      ann: { groups: groups(700) },
      ben: { groups: groups(3_000) },
    }
    const { browser, bind } = await startSite({ users })
    await bind({}, [])
    expect(await browser.signIn(browser.urlOf(CAM), 'ann')).toMatchObject({ status: 200 })
    const parts = () => browser.cookieNames(CAM).filter((name) => name.includes('session.'))
    expect(parts().length).toBeGreaterThan(2)
    const page = await browser.send(browser.urlOf(CAM))
    expect(seenIn(page).headers.cookie).toBe('own=1')
    await browser.send(browser.urlOf(CAM, '/ngrok/logout'))
    expect(parts()).toEqual([])
    browser.cookies.delete('127.0.0.1')
    const refused = await browser.signIn(browser.urlOf(CAM), 'ben')
    expect(refused.status).toBe(502)
    expect(refused.headers).toHaveProperty('ngrok-error-code', 'ERR_GATEWAY_SESSION_TOO_LARGE')
  })

  it('keeps its cookies from a device that changes the protocol, and renews them there', async () => {
    const clock = new WallClock()
    const { browser, running, session, provider } = await startSite({ clock })
    const seen: (string | undefined)[] = []
    const service = createServer((_request, response) => void response.end('in'))
    service.on('upgrade', ({ headers }, socket) => {
      seen.push(headers.cookie)
      const head = 'connection: upgrade\r\nupgrade: x\r\n\r\n'
      socket.end(`HTTP/1.1 101 Switching Protocols\r\n${head}hello`)
    })
    await once(service.listen(0, '127.0.0.1'), 'listening')
    onTestFinished(() => {
      service.closeAllConnections()
      service.close()
    })
    const config = {
      issuer_url: provider.issuer,
      client_id: provider.clientId,
      client_secret: provider.clientSecret,
      idle_session_timeout: '1h',
    }
    const actions = [{ type: 'openid-connect', config }]
    await forward(session, `http://127.0.0.1:${(service.address() as AddressInfo).port}`, {
      domain: DOOR,
      policy: JSON.stringify({ on_http_request: [{ actions }] }),
    })
    expect(await browser.signIn(browser.urlOf(DOOR), 'ann')).toMatchObject({ text: 'in' })
    const jar = browser.cookies.get(DOOR) ?? new Map<string, string>()
    clock.aheadMs = 30 * 60_000
    const { addresses } = running
    const asked = httpsRequest({
      host: '127.0.0.1',
      port: addresses.https.port,
      servername: DOOR,
      ca: readFileSync(addresses.caCertPath),
      headers: {
        host: `${DOOR}:${addresses.https.port}`,
        connection: 'upgrade',
        upgrade: 'x',
        cookie: Array.from(jar, ([name, value]) => `${name}=${value}`).join('; '),
      },
      agent: false,
    }).end()
    onTestFinished(() => void asked.destroy())
    const [response, socket] = await once(asked, 'upgrade')
    onTestFinished(() => void socket.destroy())
    expect(response.statusCode).toBe(101)
    expect(seen).toEqual([undefined])
    // Who has been here half an hour later is not idle: the browser is told so in the same head.
    expect(response.headers['set-cookie']).toEqual([
      expect.stringMatching(/^__Host-session\.[0-9a-f]{12}=/),
    ])
  })

  it('keeps its cookies from the device of another account that serves behind it', async () => {
    const { browser, bind, running } = await startSite()
    const { issuer } = running.gateway.parts
    const { id: ownerId } = await issuer.createBotUser({ name: 'other' })
    const { authtoken } = await issuer.createCredential({ ownerId, acl: ['share:inner.internal'] })
    const seen: (string | undefined)[] = []
    const service = await startDeviceService(({ headers }, response) => {
      seen.push(headers.cookie)
      response.setHeader('set-cookie', 'inner=1').end('inner')
    })
    await forward(await connectSdk(running, { authtoken }), service, { domain: 'inner.internal' })
    const led = { type: 'forward-internal', config: { url: 'https://inner.internal' } }
    await bind({}, [{ actions: [led] }])
    expect(await browser.signIn(browser.urlOf(CAM), 'ann')).toMatchObject({ text: 'inner' })
    expect(browser.cookieNames(CAM).join()).toContain('session.')
    await browser.send(browser.urlOf(CAM))
    expect(seen).toEqual([undefined, 'inner=1'])
  })

  it('leaves cookies to a device that has no log-in before it, whatever their names', async () => {
    const { browser, running, session } = await startSite()
    const seen: (string | undefined)[] = []
    const service = await startDeviceService(({ headers }, response) => {
      seen.push(headers.cookie)
      response.end()
    })
    await forward(session, service, { domain: DOOR })
    const cookie = '__Host-session.0123456789ab=of-the-device'
    const visitor = new VisitorBrowser(running)
    await visitor.send(browser.urlOf(DOOR), { headers: { cookie } })
    expect(seen).toEqual([cookie])
  })

  it('serves visitors over HTTP/2 alike', async () => {
    const { browser, bind, running } = await startSite()
    await bind()
    await browser.signIn(browser.urlOf(CAM), 'ann')
    const { addresses } = running
    const authority = `${CAM}:${addresses.https.port}`
    const caPem = readFileSync(addresses.caCertPath, 'utf8')
    const session = await connectHttp2({ addresses, caPem }, { servername: CAM })
    const ask = (headers: object) =>
      answerOf(openStream(session, { ':authority': authority, ':path': '/x', ...headers }))
    const sent = await ask({})
    expect(sent.status).toBe(302)
    expect(sent.headers['set-cookie']).toHaveLength(1)
    const { searchParams } = new URL(String(sent.headers.location))
    expect(searchParams.get('redirect_uri')).toBe(browser.urlOf(CAM, '/ngrok/callback'))
    expect(await ask({ ':method': 'POST' })).toMatchObject({ status: 401 })
    // Clients may send each cookie as a field of its own (RFC 9113 8.2.3).
    const jar = browser.cookies.get(CAM) ?? new Map<string, string>()
    const cookie = Array.from(jar, ([name, value]) => `${name}=${value}`)
    const page = await ask({ cookie })
    expect(page.status).toBe(200)
    expect(seenIn({ text: page.body.toString() }).headers).toMatchObject({
      'x-email': 'ann@site.test',
      cookie: 'own=1',
    })
  })
})

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { describe, expect, it } from 'vitest'
import { checkPolicy } from '../../../src/policy/check.ts'
import { OAUTH_PROVIDERS } from '../../../src/policy/login/oauth-client.ts'
import { type AllowEntry, parseAllowEntry } from '../../../src/policy/outbound/outbound-allow.ts'
import { forward, startDeviceService } from '../../helpers/device-sdk.ts'
import { startGithub } from '../../helpers/github-stand-in.ts'
import { onRequest } from '../../helpers/policy-exchange.ts'
import { connectSdk, startGateway } from '../../helpers/running-gateway.ts'
import { VisitorBrowser } from '../../helpers/visitor-browser.ts'
import { WallClock } from '../../helpers/wall-clock.ts'

const CAM = 'cam.site.test'
const EMAILS = [
  { email: 'old@else.test', primary: false, verified: true },
  { email: 'ann@site.test', primary: true, verified: true },
]

const SHOW = {
  actions: [
    {
      type: 'add-headers',
      config: {
        headers: {
          'x-email': '${actions.ngrok.oauth.identity.email}',
          'x-name': '${actions.svc.oauth.identity.name}',
          'x-user': '${actions.ngrok.oauth.identity.provider_user_id}',
          'x-token': '${actions.ngrok.oauth.access_token}',
        },
      },
    },
  ],
}

async function startSite(config: object = {}) {
  const clock = new WallClock()
  const github = await startGithub()
  const outboundAllow = [parseAllowEntry('127.0.0.1') as AllowEntry]
  const running = await startGateway({ outboundAllow, clock })
  const session = await connectSdk(running)
  const service = await startDeviceService(({ headers }, response) => {
    response.end(JSON.stringify(headers))
  })
  const action = { type: 'oauth', config: { provider: 'github', ...github.client, ...config } }
  const policy = { on_http_request: [{ actions: [action] }, SHOW] }
  await forward(session, service, { domain: CAM, policy: JSON.stringify(policy) })
  return { browser: new VisitorBrowser(running), github, clock, running }
}

describe('oauth', () => {
  it('lets in who has signed in with a known provider', async () => {
    const { browser, github } = await startSite({ scopes: ['read:org'] })
    github.user = { id: 12, login: 'ann', name: 'Ann', emails: EMAILS }
    const sent = await browser.send(browser.urlOf(CAM, '/a'))
    const query = new URL(sent.headers.location ?? '').searchParams
    expect(Object.fromEntries(query)).toMatchObject({
      client_id: 'Iv1.device',
      redirect_uri: browser.urlOf(CAM, '/ngrok/callback'),
      response_type: 'code',
      scope: 'read:user user:email read:org',
      code_challenge_method: 'S256',
    })
    const page = await browser.open(browser.urlOf(CAM, '/a'))
    expect(page.status).toBe(200)
    expect(JSON.parse(page.text)).toMatchObject({
      'x-email': 'ann@site.test',
      'x-name': 'Ann',
      'x-user': '12',
      'x-token': expect.stringMatching(/^gho_/),
    })
    const again = await browser.send(browser.urlOf(CAM, '/ngrok/login'))
    expect(new URL(again.headers.location ?? '').searchParams.get('prompt')).toBe('select_account')
  })

  it.each([
    ['not verified', [{ email: 'ann@site.test', primary: true, verified: false }]],
    ['not theirs any more', []],
    ['not told', undefined],
  ])('knows no address that is %s', async (_, emails) => {
    const { browser, github } = await startSite()
    github.user = { id: 12, login: 'ann', name: null, emails }
    const page = await browser.open(browser.urlOf(CAM))
    expect(JSON.parse(page.text)).toMatchObject({ 'x-email': '', 'x-name': 'ann' })
  })

  it('tells a code that the provider does not take', async () => {
    const { browser } = await startSite()
    const isCallback = (url: URL) => url.pathname === '/ngrok/callback'
    const { url } = await browser.open(browser.urlOf(CAM), isCallback)
    url.searchParams.set('code', 'of somebody else')
    const refused = await browser.send(url.href)
    expect(refused.status).toBe(403)
    expect(refused.headers).toHaveProperty('ngrok-error-code', 'ERR_NGROK_3164')
    expect(refused.text).toContain('bad_verification_code: The code is incorrect.')
  })

  it('asks again who somebody is, and ends the session of who is nobody any more', async () => {
    const { browser, github, clock } = await startSite({ userinfo_refresh_interval: '5m' })
    const user = { id: 12, login: 'ann', name: 'Ann', emails: EMAILS }
    github.user = user
    await browser.open(browser.urlOf(CAM))
    user.emails = [{ email: 'new@site.test', primary: true, verified: true }]
    const email = async () => JSON.parse((await browser.send(browser.urlOf(CAM))).text)['x-email']
    expect(await email()).toBe('ann@site.test')
    clock.aheadMs = 5 * 60_000
    expect(await email()).toBe('new@site.test')
    github.revoked.add('all')
    clock.aheadMs += 5 * 60_000
    expect(await browser.send(browser.urlOf(CAM), { method: 'POST' })).toMatchObject({
      status: 401,
    })
  })

  it('gets a new token where the old one is spent, for the same person alone', async () => {
    const { browser, github, clock } = await startSite({ userinfo_refresh_interval: '5m' })
    github.hasRefreshTokens = true
    github.user = { id: 12, login: 'ann', name: 'Ann', emails: EMAILS }
    await browser.open(browser.urlOf(CAM))
    const seen = async () => JSON.parse((await browser.send(browser.urlOf(CAM))).text)
    const first = (await seen())['x-token']
    github.revoked.add(first)
    clock.aheadMs = 5 * 60_000
    const second = await seen()
    expect(second).toMatchObject({ 'x-user': '12', 'x-token': expect.stringMatching(/^gho_/) })
    expect(second['x-token']).not.toBe(first)
    // The token that got this one is spent; the one that came with it is kept in its place.
    github.revoked.add(second['x-token'])
    clock.aheadMs += 5 * 60_000
    expect((await seen())['x-token']).not.toBe(second['x-token'])
    github.revoked.add('all')
    clock.aheadMs += 5 * 60_000
    expect(await browser.send(browser.urlOf(CAM), { method: 'POST' })).toMatchObject({
      status: 401,
    })
  })

  it('is of one client, and has sessions that openid-connect does not take', async () => {
    const { browser, github } = await startSite()
    github.user = { id: 12, login: 'ann', name: 'Ann', emails: EMAILS }
    await browser.open(browser.urlOf(CAM))
    const names = browser.cookieNames(CAM)
    expect(names).toEqual([expect.stringMatching(/^__Host-session\.[0-9a-f]{12}$/)])
  })

  const check = (config: object, service: 'embedded' | 'hosted' = 'embedded') =>
    checkPolicy(JSON.stringify(onRequest('oauth', config)), { service }).map(
      ({ code, severity, message }) => ({ code, severity, message }),
    )

  it("is refused without a client of one's own, which the hosted service has", () => {
    const message = expect.stringContaining('Create an application there')
    const problem = { code: 'ERR_NGROK_2256', message }
    expect(check({ provider: 'google' })).toEqual([{ ...problem, severity: 'error' }])
    expect(check({ provider: 'google' }, 'hosted')).toEqual([{ ...problem, severity: 'warning' }])
    expect(check({ provider: 'google', client_id: 'x' })).toEqual([
      { ...problem, severity: 'error' },
    ])
  })

  it('names the providers that it knows', () => {
    const [problem] = check({ provider: 'okta', client_id: 'x', client_secret: 'y' })
    expect(problem?.message).toContain(
      'amazon, facebook, github, gitlab, google, linkedin, microsoft, twitch',
    )
  })

  it('has addresses of HTTPS alone, and none of another site', () => {
    for (const [name, provider] of Object.entries(OAUTH_PROVIDERS)) {
      for (const url of [provider.issuer, provider.authorizationUrl, provider.tokenUrl]) {
        expect(new URL(url).protocol, name).toBe('https:')
      }
      expect(provider.scopes.length, name).toBeGreaterThan(0)
    }
  })
})

/** What each provider documents as its answer, and who that is. */
const ANSWERS: Readonly<Record<string, readonly [Readonly<Record<string, unknown>>, object]>> = {
  amazon: [
    { '/user/profile': { user_id: 'amzn1.account.K', name: 'Ann', email: 'ann@site.test' } },
    { sub: 'amzn1.account.K', name: 'Ann', email: 'ann@site.test' },
  ],
  facebook: [
    { '/v23.0/me': { id: '1020', name: 'Ann', email: 'ann@site.test' } },
    { sub: '1020', name: 'Ann', email: 'ann@site.test' },
  ],
  github: [
    { '/user': { id: 7, login: 'ann', name: null }, '/user/emails': EMAILS },
    { sub: '7', name: 'ann', email: 'ann@site.test' },
  ],
  gitlab: [
    { '/oauth/userinfo': { sub: '9', name: 'Ann', email: 'ann@site.test', email_verified: true } },
    { sub: '9', name: 'Ann', email: 'ann@site.test' },
  ],
  google: [
    {
      '/oauth2/v3/userinfo': {
        sub: '11',
        name: 'Ann',
        email: 'ann@site.test',
        email_verified: true,
      },
    },
    { sub: '11', name: 'Ann', email: 'ann@site.test' },
  ],
  linkedin: [
    { '/v2/userinfo': { sub: 'x1', name: 'Ann', email: 'ann@site.test', email_verified: true } },
    { sub: 'x1', name: 'Ann', email: 'ann@site.test' },
  ],
  microsoft: [
    // An administrator of any tenant writes what they like into `mail`.
    {
      '/v1.0/me': {
        id: 'u-1',
        displayName: 'Ann',
        mail: 'boss@site.test',
        userPrincipalName: 'ann@site.test',
      },
    },
    { sub: 'u-1', name: 'Ann', email: 'ann@site.test' },
  ],
  twitch: [
    { '/helix/users': { data: [{ id: '44', display_name: 'Ann', email: 'ann@site.test' }] } },
    { sub: '44', name: 'Ann', email: 'ann@site.test' },
  ],
}

describe('the table of providers', () => {
  it.each(Object.keys(OAUTH_PROVIDERS))('reads who somebody is at %s', async (name) => {
    const [answers = {}, claims] = ANSWERS[name] ?? []
    const read = async (url: string) => answers[new URL(url).pathname]
    expect(await OAUTH_PROVIDERS[name]?.claims(read, 'id')).toMatchObject(claims ?? {})
  })

  it.each(Object.keys(OAUTH_PROVIDERS))('reads nobody where %s says nothing', async (name) => {
    const claims = await OAUTH_PROVIDERS[name]?.claims(async () => undefined, 'id')
    expect(claims?.sub ?? '').toBe('')
  })
})

import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { challengeTarget, cnameTarget } from '../../src/gateway/records/dns-target.ts'
import { hasChromium, launchChromium, openPage } from '../helpers/chromium.ts'
import { agentWithEndpoint } from '../helpers/connected-agent.ts'
import {
  button,
  dialogButton,
  expectGoodView,
  field,
  goTo,
  heading,
  signIn,
  WIDTHS,
} from '../helpers/console-page.ts'
import { startDnsServer } from '../helpers/dns-server.ts'
import { startManagementApi } from '../helpers/management-client.ts'

const VIEWS_WITH_CHANGES = [
  ['Devices', 'Latency'],
  ['Domains', '*.site.test'],
  ['Bot users', 'Press 7'],
  ['Authtokens', 'Hall 3'],
  ['API keys', 'viewer'],
] as const
const CHANGES = /^(Create|Reserve|Delete|Deactivate|Restart|Stop|Check status)/

describe.runIf(hasChromium)('the console in Chromium', { timeout: 60_000 }, () => {
  let browser: Browser

  beforeAll(async () => {
    browser = await launchChromium()
  })
  afterAll(() => browser.close())

  it.each(WIDTHS)('says in empty views what to do next at %i px', async (width) => {
    const { baseUrl, key } = await startManagementApi()
    const { page, complaints } = await openPage(browser, width, baseUrl)
    await signIn(page, key)
    await page.getByText('Four steps bring one here.').waitFor()
    for (const [view, title] of [
      ['Domains', 'No domain is reserved'],
      ['Bot users', 'There is no bot user'],
      ['Authtokens', 'There is no authtoken'],
    ] as const) {
      await goTo(page, view)
      await page.getByText(title).waitFor()
      await expectGoodView(page, `empty-${view.replace(' ', '-').toLowerCase()}`)
    }
    expect(complaints).toEqual([])
  })

  it('is used by keyboard alone', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page } = await openPage(browser, 1280, baseUrl)
    const { keyboard } = page
    const focused = () => page.evaluate<string>('document.activeElement.innerText')
    const tabTo = async (name: string) => {
      for (let n = 0; n < 30; n += 1) {
        await keyboard.press('Tab')
        if ((await focused()) === name) return
      }
      throw new Error(`Tab does not lead to ${name}`)
    }
    await page.goto('/')
    await page.getByLabel('API key').waitFor()
    await keyboard.type(key.reveal())
    await keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Devices', level: 1 }).waitFor()
    await tabTo('Skip to content')
    await keyboard.press('Enter')
    expect(await page.evaluate('document.activeElement.id')).toBe('main')
    await tabTo('Bot users')
    expect(await page.evaluate('getComputedStyle(document.activeElement).outlineStyle')).toBe(
      'solid',
    )
    await keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Bot users', level: 1 }).waitFor()
    expect(await focused()).toBe('Bot users')
    await tabTo('Create a bot user')
    await keyboard.press('Enter')
    await page.getByRole('dialog').waitFor()
    await keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(await focused()).toBe('Create a bot user')
    await keyboard.press('Enter')
    await keyboard.type('Lathe 2')
    await keyboard.press('Enter')
    await heading(page, 'Lathe 2').waitFor()
    await tabTo('Delete')
    await keyboard.press('Enter')
    await tabTo('Delete bot user')
    await keyboard.press('Enter')
    await page.getByText('There is no bot user').waitFor()
    expect(await focused()).toBe('Bot users')
  })

  it('updates figures in place and leaves alone what somebody looks at', async () => {
    const { baseUrl, key, agents } = await startManagementApi()
    const { page } = await openPage(browser, 1280, baseUrl)
    await page.clock.install()
    const { agent, traffic } = agentWithEndpoint('2')
    agents.push(agent)
    await signIn(page, key)
    await page.getByText('Traffic policy').click()
    const policy = page.getByText('"on_http_request": []').last()
    await policy.waitFor()
    agents.push(agentWithEndpoint('3').agent)
    traffic.requests = 7
    traffic.refused = 2
    await page.clock.runFor(2_000)
    await heading(page, 'press-3').waitFor()
    await page.locator('.figures').filter({ hasText: 'Requests7Errors2' }).waitFor()
    expect(await policy.isVisible()).toBe(true)
    expect(await page.evaluate('document.activeElement.tagName')).toBe('SUMMARY')
    await button(page, 'Pause').click()
    traffic.requests = 8
    await page.clock.runFor(10_000)
    expect(await page.getByText('Requests8').count()).toBe(0)
    await button(page, 'Pause').click()
    await page.locator('.figures').filter({ hasText: 'Requests8' }).waitFor()
    agents.pop()
    await heading(page, 'press-3').waitFor({ state: 'detached' })
  })

  it.each(WIDTHS)(
    'shows who changed what, and what is asked for of it, at %i px',
    async (width) => {
      const { baseUrl, key, call } = await startManagementApi()
      const { page, complaints } = await openPage(browser, width, baseUrl)
      await signIn(page, key)
      const { body } = await call('POST', '/bot_users', { body: { name: 'press-1' } })
      await call('PATCH', `/bot_users/${body.id}`, { body: { active: false } })
      await call('POST', '/bot_users', { body: { name: 'press-1' } })
      await goTo(page, 'Audit')
      await heading(page, 'session.create').waitFor()
      expect(await page.getByRole('listitem').count()).toBe(4)
      await page.getByText('ERR_NGROK_4112').waitFor()
      await page.getByText('active: true → false').waitFor()
      await page.getByText('test (API key, in this console)').waitFor()
      await expectGoodView(page, 'audit')
      await page.getByLabel('Action').fill('bot_user')
      await page.getByLabel('Result').selectOption('Changed')
      await button(page, 'Show').click()
      await heading(page, 'session.create').waitFor({ state: 'detached' })
      expect(await page.getByRole('listitem').count()).toBe(2)
      await page.getByLabel('Who').fill('nobody "quoted"')
      await button(page, 'Show').click()
      await page.getByText('There is nothing to show').waitFor()
      await page.getByLabel('Since').fill('soon')
      await button(page, 'Show').click()
      await page.getByRole('alert').getByText('ERR_NGROK_250').waitFor()
      await expectGoodView(page, 'audit-choice')
      // The browser itself complains of an answer with 400.
      expect(complaints.filter((text) => !text.includes('400'))).toEqual([])
    },
  )

  it.each(WIDTHS)('shows cloud endpoints below the devices at %i px', async (width) => {
    const { baseUrl, key, cloudEndpoints, registrar } = await startManagementApi()
    const { page, complaints } = await openPage(browser, width, baseUrl)
    await page.clock.install()
    await signIn(page, key)
    await page.getByText('No device is online').waitFor()
    expect(await page.getByRole('heading', { name: 'Cloud endpoints' }).count()).toBe(0)
    registrar.reserve({ domain: '*.site.test' })
    const front = await cloudEndpoints.create(
      {
        url: 'https://front.site.test',
        trafficPolicy: JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] }),
        description: 'front door of the hall',
      },
      { isGranted: true },
    )
    front.traffic.requests = 7
    front.traffic.countRefusal(undefined)
    await page.clock.runFor(2_000)
    const card = page.getByRole('region', { name: 'Cloud endpoints' })
    await card.getByRole('link', { name: 'https://front.site.test:8443' }).waitFor()
    await card.getByText('front door of the hall').waitFor()
    await card.locator('.figures').filter({ hasText: 'Requests7Errors1' }).waitFor()
    await card.getByText('Traffic policy').click()
    await card.getByText('"type": "deny"').waitFor()
    await expectGoodView(page, 'cloud-endpoints')
    const changed = await cloudEndpoints.update(
      front.id,
      { url: 'https://door.site.test' },
      { isGranted: true },
    )
    await page.clock.runFor(2_000)
    await card.getByRole('link', { name: 'https://door.site.test:8443' }).waitFor()
    expect(await card.getByRole('link').count()).toBe(1)
    if (changed) cloudEndpoints.delete(changed)
    await page.clock.runFor(2_000)
    await card.waitFor({ state: 'hidden' })
    expect(complaints).toEqual([])
  })

  it('shows a hundred devices at a time', async () => {
    const { baseUrl, key, agents } = await startManagementApi()
    const { page } = await openPage(browser, 1280, baseUrl)
    for (let n = 100; n <= 200; n += 1) agents.push(agentWithEndpoint(String(n)).agent)
    await signIn(page, key)
    await heading(page, 'press-101').waitFor()
    expect(await heading(page, 'press-100').count()).toBe(0)
    await button(page, 'Older devices').click()
    await heading(page, 'press-100').waitFor()
    expect(await heading(page, 'press-101').count()).toBe(0)
    await button(page, 'Newest devices').click()
    await heading(page, 'press-101').waitFor()
  })

  it('shows long lists page by page, and what went wrong above them', async () => {
    const { baseUrl, key, issuer } = await startManagementApi()
    const { page } = await openPage(browser, 1280, baseUrl)
    for (let n = 0; n <= 100; n += 1) issuer.createBotUser({ name: `door ${n}` })
    await signIn(page, key)
    await goTo(page, 'Bot users')
    await heading(page, 'door 100').waitFor()
    expect(await heading(page, 'door 0').count()).toBe(0)
    await page.route('**/console/api/**', (route) => route.abort())
    await button(page, 'Show more').click()
    await page.getByRole('alert').getByText('The gateway does not answer.').waitFor()
    await page.unroute('**/console/api/**')
    await button(page, 'Show more').click()
    await heading(page, 'door 0').waitFor()
    expect(await page.getByRole('alert').count()).toBe(0)
    expect(await button(page, 'Show more').count()).toBe(0)
  })

  it('shows a page once, however often somebody asks for more', async () => {
    const { baseUrl, key, issuer } = await startManagementApi()
    const { page } = await openPage(browser, 1280, baseUrl)
    for (let n = 0; n <= 100; n += 1) issuer.createBotUser({ name: `door ${n}` })
    await signIn(page, key)
    await goTo(page, 'Bot users')
    const released = createDeferred()
    let asked = 0
    await page.route('**/console/api/bot_users?before_id=*', async (route) => {
      asked += 1
      await released.promise
      await route.continue()
    })
    await button(page, 'Show more').click()
    await button(page, 'Show more').click()
    await expect.poll(() => asked).toBe(2)
    released.resolve()
    await heading(page, 'door 0').first().waitFor()
    await button(page, 'Show more').waitFor({ state: 'detached' })
    await page.waitForLoadState('networkidle')
    expect(await heading(page, 'door 0').count()).toBe(1)
  })

  it('offers no change to a key that may only read, and says why', async () => {
    const { baseUrl, issuer, registrar, agents } = await startManagementApi()
    registrar.reserve({ domain: '*.site.test' })
    issuer.createBotUser({ name: 'Press 7' })
    issuer.createCredential({ description: 'Hall 3' })
    agents.push(agentWithEndpoint('2').agent)
    const { page, complaints } = await openPage(browser, 1280, baseUrl)
    await signIn(page, issuer.createApiKey({ name: 'viewer', scope: 'read' }).token)
    for (const [view, shown] of VIEWS_WITH_CHANGES) {
      await goTo(page, view)
      await page.getByText(shown).first().waitFor()
      const main = page.getByRole('main')
      await main.getByText('This API key may only read.').waitFor()
      expect(await main.getByRole('button', { name: CHANGES }).count(), view).toBe(0)
    }
    await expectGoodView(page, 'read-only')
    await button(page, 'Sign out').click()
    await signIn(page, issuer.createApiKey({ name: 'editor' }).token)
    for (const [view] of VIEWS_WITH_CHANGES) {
      await goTo(page, view)
      await page.getByRole('main').getByRole('button', { name: CHANGES }).first().waitFor()
      expect(await page.getByText('This API key may only read.').count()).toBe(0)
    }
    expect(complaints).toEqual([])
  })

  it('offers bot users to be looked at alone to a key of one of them', async () => {
    const { baseUrl, issuer } = await startManagementApi()
    const { id: ownerId } = issuer.createBotUser({ name: 'Press 7' })
    const { page } = await openPage(browser, 1280, baseUrl)
    await signIn(page, issuer.createApiKey({ name: 'press', ownerId }).token)
    await goTo(page, 'Bot users')
    await heading(page, 'Press 7').waitFor()
    expect(await page.getByRole('main').getByRole('button').count()).toBe(0)
    await goTo(page, 'Authtokens')
    await button(page, 'Create an authtoken').waitFor()
  })

  it('shows the devices for an address that leads nowhere', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page, complaints } = await openPage(browser, 1280, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Domains')
    await page.goto('/console/#/constructor')
    await page.getByRole('heading', { name: 'Devices', level: 1 }).waitFor()
    expect(complaints).toEqual([])
  })

  it('says so when the gateway takes the question and never answers', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page } = await openPage(browser, 1280, baseUrl)
    await page.clock.install()
    await signIn(page, key)
    const arrived = createDeferred()
    await page.route('**/console/api/device_sessions', () => arrived.resolve())
    await page.clock.runFor(2_000)
    await arrived.promise
    await page.clock.runFor(10_000)
    await page.getByRole('alert').getByText('The gateway does not answer.').waitFor()
    await page.unroute('**/console/api/device_sessions')
    await page.clock.runFor(2_000)
    await page.getByRole('alert').waitFor({ state: 'detached' })
  })

  it('leaves the form for signing in alone when a late answer says that the session is over', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page } = await openPage(browser, 1280, baseUrl)
    const arrived = createDeferred()
    const released = createDeferred()
    await page.route('**/console/api/device_sessions', async (route) => {
      arrived.resolve()
      await released.promise
      await route.continue()
    })
    await signIn(page, key)
    await arrived.promise
    await button(page, 'Sign out').click()
    await page.getByLabel('API key').fill('half a key')
    const late = page.waitForResponse('**/console/api/device_sessions')
    released.resolve()
    expect((await late).status()).toBe(401)
    await page.waitForLoadState('networkidle')
    expect(await page.getByLabel('API key').inputValue()).toBe('half a key')
    expect(await page.getByText('You are signed out.').count()).toBe(1)
  })

  it('waits for the outcome of what is under way', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page } = await openPage(browser, 1280, baseUrl)
    const arrived = createDeferred()
    const released = createDeferred()
    await page.route('**/console/api/credentials', async (route) => {
      if (route.request().method() === 'POST') {
        arrived.resolve()
        await released.promise
      }
      await route.continue()
    })
    await signIn(page, key)
    await goTo(page, 'Authtokens')
    await button(page, 'Create an authtoken').click()
    await field(page, 'ACL rule').selectOption('')
    await dialogButton(page, 'Create').click()
    await arrived.promise
    for (let n = 0; n < 3; n += 1) await page.keyboard.press('Escape')
    expect(await dialogButton(page, 'Cancel').isDisabled()).toBe(true)
    released.resolve()
    await page.getByRole('dialog', { name: 'Your new authtoken' }).waitFor()
  })

  it('asks for a key again when the session is over, and forgets what it showed', async () => {
    const { baseUrl, key, issuer, apiKeys } = await startManagementApi()
    const { page } = await openPage(browser, 1280, baseUrl)
    await signIn(page, key)
    await goTo(page, 'API keys')
    const [apiKey] = apiKeys.page({ limit: 1 })
    await button(page, 'Create an API key').click()
    await dialogButton(page, 'Create').waitFor()
    if (apiKey) issuer.deleteApiKey(apiKey)
    await dialogButton(page, 'Create').click()
    await page.getByText('Your session is over: sign in again to go on.').waitFor()
    expect(await page.getByRole('dialog').count()).toBe(0)
    expect(await page.getByRole('navigation').count()).toBe(0)
  })

  it('follows the certificate after the records were put right, and forgets them when it cannot ask', async () => {
    const records: Record<string, string> = {}
    const { baseUrl, key, registrar, status, clock } = await startManagementApi({
      dnsServers: [await startDnsServer(records)],
    })
    const { page } = await openPage(browser, 1280, baseUrl)
    const domain = registrar.reserve({ domain: '*.site.test' })
    records['dns-check.site.test'] = cnameTarget(domain, 'gateway.test')
    records['_acme-challenge.site.test'] = challengeTarget(domain, 'gateway.test')
    const job = { startedAt: clock.now(), error: 'No record.', retriesAt: clock.now() }
    status.current = { renewsAt: undefined, job }
    await signIn(page, key)
    await goTo(page, 'Domains')
    await page.getByText('Certificate failed').waitFor()
    status.current = { renewsAt: clock.now(), job: undefined }
    await button(page, 'Check status of *.site.test').click()
    await page.getByText('Certificate ready').waitFor()
    expect(await page.getByText('Found', { exact: true }).count()).toBe(2)
    await page.route('**/check', (route) => route.abort())
    await button(page, 'Check status of *.site.test').click()
    await page.getByRole('alert').waitFor()
    expect(await page.getByText('Found', { exact: true }).count()).toBe(0)
  })

  it.each(WIDTHS)('has room for the longest names at %i px', async (width) => {
    const { baseUrl, key, issuer, registrar, agents } = await startManagementApi()
    const { page } = await openPage(browser, width, baseUrl)
    const name = 'w'.repeat(255)
    const { id } = issuer.createBotUser({ name })
    issuer.createCredential({
      ownerId: id,
      description: name,
      acl: [`bind:${'w.'.repeat(120)}test`],
    })
    issuer.createApiKey({ name, description: `${name.slice(1)}.`, ownerId: id })
    registrar.reserve({
      domain: `*.${'w'.repeat(63)}.${'w'.repeat(63)}.test`,
      description: name,
      ownerId: id,
    })
    const { agent } = agentWithEndpoint('2')
    agents.push({ ...agent, identity: { ...agent.identity, hostname: name } })
    await signIn(page, key)
    for (const view of ['Devices', 'Domains', 'Bot users', 'Authtokens', 'API keys']) {
      await goTo(page, view)
      await page
        .getByRole('button', { name: /^(Delete|Stop)/ })
        .first()
        .waitFor()
      await expectGoodView(page, `long-${view}`)
    }
    await goTo(page, 'Authtokens')
    await button(page, 'Create an authtoken').click()
    await page.getByRole('dialog').waitFor()
    await expectGoodView(page, 'long-dialog')
  })

  it('moves nothing for people who asked for less motion', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page } = await openPage(browser, 1280, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Bot users')
    const animations = async (reducedMotion: 'reduce' | 'no-preference') => {
      await page.emulateMedia({ reducedMotion })
      await button(page, 'Create a bot user').first().click()
      const name = await page.evaluate<string>(
        'getComputedStyle(document.querySelector("dialog")).animationName',
      )
      await page.keyboard.press('Escape')
      return name
    }
    expect(await animations('no-preference')).toBe('appear')
    expect(await animations('reduce')).toBe('none')
  })

  it('shows what devices call themselves as text', async () => {
    const { baseUrl, key, issuer } = await startManagementApi()
    const { page, complaints } = await openPage(browser, 1280, baseUrl)
    const name = '<img src=x onerror=alert(1)>'
    issuer.createBotUser({ name })
    await signIn(page, key)
    await goTo(page, 'Bot users')
    await heading(page, name).waitFor()
    expect(complaints).toEqual([])
  })
})

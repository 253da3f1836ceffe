import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { challengeTarget, cnameTarget } from '../../src/gateway/records/domain-name.ts'
import { hasChromium, openPage } from '../helpers/chromium.ts'
import { agentWithEndpoint } from '../helpers/connected-agent.ts'
import {
  button,
  DESK,
  dialogButton,
  expectGoodView,
  field,
  focusedText,
  goTo,
  line,
  openLine,
  PHONE,
  signIn,
  tabTo,
} from '../helpers/console-page.ts'
import { startDnsServer } from '../helpers/dns-server.ts'
import { makeCertificate } from '../helpers/made-certificate.ts'
import { startManagementApi } from '../helpers/management-client.ts'
import { startReceiver } from '../helpers/webhook-receiver.ts'

const VIEWS_WITH_CHANGES = [
  ['Devices', 'press-2'],
  ['Domains', '*.site.test'],
  ['Bot users', 'Press 7'],
  ['Authtokens', 'Hall 3'],
  ['API keys', 'viewer'],
] as const
const CHANGES = /^(Add|Withdraw|Create|Reserve|Delete|Deactivate|Edit|Restart|Stop|Check status)/

/** Shows the details of the first item. */
async function openFirst(page: Page) {
  await page.locator('.item-line').first().click()
  await page.locator('.item-below .facts').waitFor()
}

describe.runIf(hasChromium)('the console in Chromium', () => {
  it('says in empty views what to do next', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page, complaints } = await openPage(PHONE, baseUrl)
    await signIn(page, key)
    await page.getByText('No devices yet').waitFor()
    await button(page, 'Add a device').waitFor()
    for (const [view, title] of [
      ['Invitations', 'No invitations'],
      ['Domains', 'No reserved domains'],
      ['Bot users', 'No bot users'],
      ['Authtokens', 'No authtokens'],
    ] as const) {
      await goTo(page, view)
      await page.getByText(title).waitFor()
      await expectGoodView(page, `empty-${view.replace(' ', '-').toLowerCase()}`)
    }
    expect(complaints).toEqual([])
  })

  it('is used by keyboard alone', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page } = await openPage(DESK, baseUrl)
    const { keyboard } = page
    await page.goto('/')
    await page.getByLabel('API key').waitFor()
    await keyboard.type(key.reveal())
    await keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Devices', level: 1 }).waitFor()
    await tabTo(page, 'Skip to content')
    await keyboard.press('Enter')
    expect(await page.evaluate('document.activeElement.id')).toBe('main')
    await tabTo(page, 'Bot users')
    expect(await page.evaluate('getComputedStyle(document.activeElement).outlineStyle')).toBe(
      'solid',
    )
    await keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Bot users', level: 1 }).waitFor()
    expect(await focusedText(page)).toBe('Bot users')
    await tabTo(page, 'Create a bot user')
    await keyboard.press('Enter')
    await page.getByRole('dialog').waitFor()
    await keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(await focusedText(page)).toBe('Create a bot user')
    await keyboard.press('Enter')
    await keyboard.type('Lathe 2')
    await keyboard.press('Enter')
    await line(page, 'Lathe 2').waitFor()
    await tabTo(page, /^Lathe 2/)
    await keyboard.press('Enter')
    await tabTo(page, 'Delete')
    await keyboard.press('Enter')
    await tabTo(page, 'Delete bot user')
    await keyboard.press('Enter')
    await page.getByText('No bot users').waitFor()
    expect(await focusedText(page)).toBe('Bot users')
  })

  it('updates figures in place and leaves alone what somebody looks at', async () => {
    const { baseUrl, key, online, offline } = await startManagementApi()
    const { page } = await openPage(DESK, baseUrl)
    await page.clock.install()
    const { agent, traffic } = agentWithEndpoint('2')
    await online(agent)
    await signIn(page, key)
    await line(page, 'press-2').click()
    await page.getByText('Traffic policy').click()
    const policy = page.getByText('"on_http_request": []').last()
    await policy.waitFor()
    const third = await online(agentWithEndpoint('3').agent)
    traffic.requests = 7
    traffic.refused = 2
    await page.clock.runFor(2_000)
    await line(page, 'press-3').getByText('Online').waitFor()
    await page.locator('.figures').filter({ hasText: 'Requests7Errors2' }).waitFor()
    await page.getByText('working', { exact: true }).waitFor()
    const judgedAt = (await page.evaluate<number>('Date.now()')) - 180_000
    Object.assign(traffic.outcomes, { state: 'unreachable', judgedAt })
    await page.clock.runFor(2_000)
    await page.getByText('service down', { exact: true }).waitFor()
    await page.getByText('for its last visitors, 3 minutes ago').waitFor()
    expect(await policy.isVisible()).toBe(true)
    expect(await page.evaluate('document.activeElement.tagName')).toBe('SUMMARY')
    await button(page, 'Pause').click()
    traffic.requests = 8
    await page.clock.runFor(10_000)
    expect(await page.getByText('Requests8').count()).toBe(0)
    await button(page, 'Pause').click()
    await page.locator('.figures').filter({ hasText: 'Requests8' }).waitFor()
    await offline(third)
    await page.clock.runFor(2_000)
    await line(page, 'press-3').getByText('Offline').waitFor()
    await line(page, 'press-3').click()
    await page.getByText('No answer: no power, no network, or the agent hangs.').waitFor()
    await page.getByText('Previously: https://press-3.site.test.').waitFor()
    expect(await policy.count()).toBe(0)
  })

  it('shows who changed what, and what is asked for of it', async () => {
    const { baseUrl, key, call } = await startManagementApi()
    const { page, complaints } = await openPage(DESK, baseUrl)
    await signIn(page, key)
    const { body } = await call('POST', '/bot_users', { body: { name: 'press-1' } })
    await call('PATCH', `/bot_users/${body.id}`, { body: { active: false } })
    await call('POST', '/bot_users', { body: { name: 'press-1' } })
    await goTo(page, 'Audit')
    await line(page, 'test signed in').waitFor()
    expect(await page.locator('.item').count()).toBe(4)
    const refused = await openLine(page, 'test could not create bot user press-1')
    await refused.getByText('ERR_NGROK_4112').waitFor()
    const item = await openLine(page, 'test changed bot user press-1')
    await item.getByText('true → false').waitFor()
    await item.getByText('test (API key)').waitFor()
    const signIns = await openLine(page, 'test signed in')
    await signIns.getByText('test (API key, in this console)').waitFor()
    await expectGoodView(page, 'audit')
    await page.getByLabel('Object').selectOption('Bot user')
    await page.getByLabel('Result').selectOption('Done')
    await line(page, 'test signed in').waitFor({ state: 'detached' })
    expect(await page.locator('.item').count()).toBe(2)
    await page.getByLabel('Search').fill('nobody "quoted"')
    await page.getByText('No audit entries match the filter.').waitFor()
    await page.getByLabel('Search').fill('PRESS-1 update')
    await line(page, 'test changed bot user press-1').waitFor()
    expect(await page.locator('.item').count()).toBe(1)
    await page.getByLabel('Search').fill('')
    await page.getByLabel('Since').fill('2029-12-31')
    await page.getByLabel('Until').fill('2030-01-02')
    await line(page, 'test created bot user press-1').waitFor()
    await page.getByLabel('Until').fill('2029-12-30')
    await page.getByText('No audit entries match the filter.').waitFor()
    await expectGoodView(page, 'audit-choice')
    expect(complaints).toEqual([])
  })

  it('shows endpoints of devices and cloud endpoints with their state and traffic', async () => {
    const { baseUrl, key, cloudEndpoints, registrar, online, clock } = await startManagementApi()
    const { page, complaints } = await openPage(PHONE, baseUrl)
    await page.clock.install()
    await signIn(page, key)
    await goTo(page, 'Endpoints')
    await page.getByText('No endpoints online').waitFor()
    await expectGoodView(page, 'endpoints-none')
    const { agent, traffic } = agentWithEndpoint('2')
    await online(agent)
    traffic.requests = 60
    for (let n = 0; n < 5; n += 1) traffic.countRefusal(undefined)
    for (const status of [200, 204, 304, 404, 502, 502, 0]) traffic.countEnd(status, 20)
    await clock.advance(60_000)
    await registrar.reserve({ domain: '*.site.test' })
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
    await line(page, 'https://press-2.site.test').getByText('Working').waitFor()
    await line(page, 'https://press-2.site.test').getByText('60 requests · 5 errors').waitFor()
    const ofDevice = await openLine(page, 'https://press-2.site.test')
    await ofDevice.getByText('Device press-2. Open since').waitFor()
    for (const name of ['Requests', 'Errors']) {
      await ofDevice
        .getByRole('img', { name: `${name} a minute in the last hour: maximum` })
        .waitFor()
    }
    await ofDevice
      .locator('.responses')
      .filter({ hasText: '2xx23xx14xx15xx2No response1' })
      .waitFor()
    await expectGoodView(page, 'endpoint')
    Object.assign(traffic.outcomes, { state: 'unreachable', judgedAt: clock.now() })
    await page.clock.runFor(2_000)
    await line(page, 'https://press-2.site.test').getByText('Service down').waitFor()
    await ofDevice.getByText('service down', { exact: true }).waitFor()
    const cloud = await openLine(page, 'https://front.site.test:8443')
    await cloud.getByRole('link', { name: 'https://front.site.test:8443' }).waitFor()
    await cloud.getByText('front door of the hall').last().waitFor()
    await cloud.locator('.figures').filter({ hasText: 'Requests7Errors1' }).waitFor()
    await cloud.getByText('Traffic policy').click()
    await cloud.getByText('"type": "deny"').waitFor()
    await expectGoodView(page, 'cloud-endpoint')
    await button(page, 'Filter').click()
    await page.getByLabel('State').selectOption('Service down (1)')
    await line(page, 'https://front.site.test:8443').waitFor({ state: 'detached' })
    await page.getByLabel('State').selectOption('All')
    const changed = await cloudEndpoints.update(
      front.id,
      { url: 'https://door.site.test' },
      { isGranted: true },
    )
    await page.clock.runFor(2_000)
    await line(page, 'https://door.site.test:8443').waitFor()
    if (changed) await cloudEndpoints.delete(changed)
    await page.clock.runFor(2_000)
    await line(page, 'https://door.site.test:8443').waitFor({ state: 'detached' })
    expect(complaints).toEqual([])
  })

  it('shows a device with what is known of it', async () => {
    const { baseUrl, key, online, clock, devices, call } = await startManagementApi()
    const { page, complaints } = await openPage(PHONE, baseUrl)
    await page.clock.install()
    const { agent, traffic } = agentWithEndpoint('2')
    const session = await online(agent)
    devices.refusedDuplicate(session, '192.0.2.99')
    for (let minute = 0; minute < 60; minute += 1) {
      traffic.requests += (minute % 7) * 10
      traffic.bytesOut += minute * 1_000
      await clock.advance(60_000)
    }
    await signIn(page, key)
    await line(page, 'press-2').click()
    await page.getByText('from 192.0.2.99, refused').waitFor()
    await page
      .getByRole('img', { name: 'Requests a minute in the last hour: maximum 60' })
      .waitFor()
    await page
      .getByRole('img', { name: 'Bytes a minute in the last hour: maximum 59 kB' })
      .waitFor()
    await expectGoodView(page, 'device')
    await button(page, 'Edit press-2').click()
    await field(page, 'Name').fill('Press 7, north door')
    await field(page, 'Tags').fill('hall-a, line-2')
    await expectGoodView(page, 'device-edit')
    await dialogButton(page, 'Save').click()
    await line(page, 'Press 7, north door').waitFor()
    const [device] = (await call('GET', '/devices')).body.devices
    expect(device).toMatchObject({ name: 'Press 7, north door', tags: ['hall-a', 'line-2'] })
    await button(page, 'Edit Press 7, north door').click()
    await field(page, 'Tags').fill('two words!')
    await dialogButton(page, 'Save').click()
    await page.getByRole('alert').getByText('ERR_NGROK_215').waitFor()
    await dialogButton(page, 'Cancel').click()
    expect(complaints).toEqual([])
  })

  it('finds one of a thousand devices', async () => {
    const { baseUrl, key, devices, clock } = await startManagementApi()
    for (let n = 1; n <= 1_000; n += 1) {
      const { agent } = agentWithEndpoint(String(n))
      const session = { ...agent, identity: { ...agent.identity, deviceId: `d${n}` } }
      devices.came(session)
      if (n % 10 === 0) devices.went(session, 'silent', [])
    }
    await clock.advance(1_000)
    for (const device of devices.all().filter(({ deviceId }) => deviceId?.endsWith('7'))) {
      await devices.save({ ...device, tags: ['sevens'] })
    }
    const { page, complaints } = await openPage(DESK, baseUrl)
    await page.clock.install()
    await signIn(page, key)
    const status = page.getByRole('main').getByRole('status')
    await status.getByText('1 to 50 of 1,000').waitFor()
    expect(await page.locator('.item').count()).toBe(50)
    const names = async () => page.locator('.item-name').allTextContents()
    // As people count, not as letters do.
    expect((await names()).slice(0, 3)).toEqual(['press-1', 'press-2', 'press-3'])
    await expectGoodView(page, 'devices-thousand')
    await page.getByRole('button', { name: 'Next' }).click()
    await status.getByText('51 to 100 of 1,000').waitFor()
    expect((await names())[0]).toBe('press-51')
    await page.getByLabel('Search').fill('press-99')
    await status.getByText('11 shown, of 1,000 devices').waitFor()
    await page.getByLabel('Search').fill('')
    await page.getByLabel('State').selectOption('Offline')
    await status.getByText('1 to 50 of 100, of 1,000 devices').waitFor()
    await page.getByLabel('State').selectOption('All')
    await page.getByLabel('Tag').selectOption('sevens (100)')
    await status.getByText('1 to 50 of 100, of 1,000 devices').waitFor()
    await page.getByLabel('Tag').selectOption('All')
    await page.getByLabel('Sort by').selectOption('Problems first')
    expect((await names()).slice(0, 2)).toEqual(['press-10', 'press-20'])
    await page.getByLabel('Search').fill('nobody')
    await page.getByText('No devices match the filter.').waitFor()
    // Lines stay as they are while nothing about them changes: nothing is painted anew.
    await page.getByLabel('Search').fill('press-99')
    await page.evaluate(`
      window.changes = 0
      new MutationObserver((records) => { window.changes += records.length }).observe(
        document.querySelector('.items'),
        { childList: true, subtree: true, characterData: true, attributes: true },
      )`)
    for (let n = 0; n < 2; n += 1) {
      const answered = page.waitForResponse('**/device_rows')
      await page.clock.runFor(5_000)
      await answered
    }
    expect(await page.evaluate('window.changes')).toBe(0)
    const [device] = devices.all().filter(({ deviceId }) => deviceId === 'd99')
    if (device) await devices.save({ ...device, name: 'press-99, renamed' })
    await page.clock.runFor(5_000)
    await line(page, 'press-99, renamed').waitFor()
    expect(complaints).toEqual([])
  })

  it('creates, replaces and deletes a secret, and never shows its value', async () => {
    const { baseUrl, key, vaultSecrets, seal, registrar } = await startManagementApi()
    const { id: domain } = await registrar.reserve({ domain: 'site.test' })
    const { page, complaints } = await openPage(PHONE, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Secrets')
    await page.getByText('No secrets').waitFor()
    await button(page, 'Create a secret').click()
    await field(page, 'Vault').fill('site')
    await field(page, 'Name').fill('api key')
    await field(page, 'Value').fill('hunter2')
    expect(await field(page, 'Value').getAttribute('type')).toBe('password')
    await dialogButton(page, 'Create').click()
    await page.getByRole('alert').getByText('ERR_NGROK_24000').waitFor()
    await field(page, 'Name').fill('api-key')
    await expectGoodView(page, 'secret-form')
    await dialogButton(page, 'Create').click()
    await line(page, 'site/api-key').getByText('Not used').waitFor()
    const card = await openLine(page, 'site/api-key')
    await expectGoodView(page, 'secrets')
    const value = () => {
      const [secret] = vaultSecrets.all()
      return secret && seal.open(secret.sealed, secret)
    }
    expect(value()).toBe('hunter2')
    await button(page, 'Replace value site/api-key').click()
    await field(page, 'Value').fill('hunter3')
    await dialogButton(page, 'Replace').click()
    await expect.poll(value).toBe('hunter3')
    await button(page, 'Change access site/api-key').click()
    await field(page, 'Allowed for').fill(`${domain}, `)
    await dialogButton(page, 'Save').click()
    await page.getByText('The access was changed.').waitFor()
    await card.getByText(domain).waitFor()
    expect(vaultSecrets.all()[0]?.allow).toEqual([domain])
    await button(page, 'Change access site/api-key').click()
    expect(await field(page, 'Allowed for').inputValue()).toBe(domain)
    await dialogButton(page, 'Cancel').click()
    expect(value()).toBe('hunter3')
    expect(await page.content()).not.toContain('hunter')
    await button(page, 'Delete site/api-key').click()
    await dialogButton(page, 'Delete secret').click()
    await expect.poll(value).toBeUndefined()
    expect(complaints.filter((it) => !it.includes('400'))).toEqual([])
  })

  it('makes, tries out and deletes a webhook', async () => {
    const { baseUrl, key, webhooks } = await startManagementApi({ mayDial: () => true })
    const receiver = await startReceiver((count) => (count === 0 ? 204 : 503))
    const { page, complaints } = await openPage(PHONE, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Webhooks')
    await page.getByText('No webhooks').waitFor()
    await expectGoodView(page, 'webhooks-none')
    await button(page, 'Create a webhook').click()
    await field(page, 'URL').fill('hooks')
    await dialogButton(page, 'Create').click()
    await page.getByRole('alert').getByText('ERR_NGROK_834').waitFor()
    await field(page, 'URL').fill(receiver.url)
    await field(page, 'Events').selectOption('Only problems')
    await expectGoodView(page, 'webhook-form')
    const newest = () => webhooks.page({ limit: 1 })[0]
    await dialogButton(page, 'Create').click()
    await expect.poll(newest).toBeDefined()
    receiver.secret.current = newest()?.secret ?? ''
    await page.getByRole('dialog').getByText(receiver.secret.current).waitFor()
    await dialogButton(page, 'I have copied it').click()
    const card = await openLine(page, receiver.url)
    await line(page, receiver.url).getByText('Only problems').waitFor({ state: 'attached' })
    expect(await page.content()).not.toContain(receiver.secret.current)
    await button(page, `Test ${receiver.url}`).click()
    await card.getByText('The test message was delivered.').waitFor()
    await button(page, `Test ${receiver.url}`).click()
    await card.getByText('The receiver answered with 503.').waitFor()
    await expectGoodView(page, 'webhooks')
    await button(page, `New secret ${receiver.url}`).click()
    await field(page, 'Keep the old secret valid for').selectOption('One week')
    await expectGoodView(page, 'webhook-new-secret')
    await dialogButton(page, 'Create a new secret').click()
    const olderSecrets = () => newest()?.oldSecrets.map(({ secret }) => secret)
    await expect.poll(olderSecrets).toEqual([receiver.secret.current])
    await page
      .getByRole('dialog')
      .getByText(newest()?.secret ?? '-')
      .waitFor()
    await dialogButton(page, 'I have copied it').click()
    await card.getByText('also signs until').waitFor()
    await button(page, `Pause ${receiver.url}`).click()
    await line(page, receiver.url).getByText('Paused').waitFor()
    await button(page, `Send again ${receiver.url}`).click()
    await dialogButton(page, 'Send again').click()
    await page.getByRole('alert').getByText('ERR_NGROK_215').waitFor()
    await dialogButton(page, 'Cancel').click()
    await button(page, `Delete ${receiver.url}`).click()
    await dialogButton(page, 'Delete webhook').click()
    await page.getByText('No webhooks').waitFor()
    expect(complaints).toEqual([])
  })

  it('names owners, however many bot users there are', async () => {
    const { baseUrl, key, issuer } = await startManagementApi()
    const { page } = await openPage(DESK, baseUrl)
    const { id: ownerId } = await issuer.createBotUser({ name: 'the oldest' })
    await issuer.createApiKey({ name: 'viewer', ownerId })
    await Promise.all(
      Array.from({ length: 1_000 }, (_, n) => issuer.createBotUser({ name: `press-${n}` })),
    )
    await signIn(page, key)
    await goTo(page, 'API keys')
    const item = await openLine(page, 'viewer')
    await item.getByText('the oldest, only resources of this owner').waitFor()
  })

  it('offers no change to a key that may only read, and says why', async () => {
    const { baseUrl, issuer, registrar, online } = await startManagementApi()
    await registrar.reserve({ domain: '*.site.test' })
    await issuer.createBotUser({ name: 'Press 7' })
    await issuer.createCredential({ description: 'Hall 3' })
    await online(agentWithEndpoint('2').agent)
    const { page, complaints } = await openPage(DESK, baseUrl)
    await signIn(page, (await issuer.createApiKey({ name: 'viewer', scope: 'read' })).token)
    for (const [view, shown] of VIEWS_WITH_CHANGES) {
      await goTo(page, view)
      await page.getByText(shown).first().waitFor()
      await openFirst(page)
      const main = page.getByRole('main')
      await main.getByText('This API key can only read.').waitFor()
      expect(await main.getByRole('button', { name: CHANGES }).count(), view).toBe(0)
    }
    await expectGoodView(page, 'read-only')
    await button(page, 'Sign out').click()
    await signIn(page, (await issuer.createApiKey({ name: 'editor' })).token)
    for (const [view] of VIEWS_WITH_CHANGES) {
      await goTo(page, view)
      await openFirst(page)
      await page.getByRole('main').getByRole('button', { name: CHANGES }).first().waitFor()
      expect(await page.getByText('This API key can only read.').count()).toBe(0)
    }
    expect(complaints).toEqual([])
  })

  it('offers bot users to be looked at alone to a key of one of them', async () => {
    const { baseUrl, issuer } = await startManagementApi()
    const { id: ownerId } = await issuer.createBotUser({ name: 'Press 7' })
    const { page } = await openPage(DESK, baseUrl)
    await signIn(page, (await issuer.createApiKey({ name: 'press', ownerId })).token)
    await goTo(page, 'Bot users')
    const item = await openLine(page, 'Press 7')
    expect(await item.locator('.item-below').getByRole('button').count()).toBe(0)
    expect(await button(page, 'Create a bot user').count()).toBe(0)
    await goTo(page, 'Authtokens')
    await button(page, 'Create an authtoken').waitFor()
  })

  it('shows the devices for an address that leads nowhere', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page, complaints } = await openPage(DESK, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Domains')
    await page.goto('/console/#/constructor')
    await page.getByRole('heading', { name: 'Devices', level: 1 }).waitFor()
    expect(complaints).toEqual([])
  })

  it('says so when the gateway takes the question and never answers', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page } = await openPage(DESK, baseUrl)
    await page.clock.install()
    await signIn(page, key)
    const arrived = createDeferred()
    await page.route('**/console/api/device_rows', () => arrived.resolve())
    await page.clock.runFor(2_000)
    await arrived.promise
    await page.clock.runFor(10_000)
    await page.getByRole('alert').getByText('The gateway does not answer.').waitFor()
    await page.unroute('**/console/api/device_rows')
    await page.clock.runFor(2_000)
    await page.getByRole('alert').waitFor({ state: 'detached' })
  })

  it('leaves the form for signing in alone when a late answer says that the session is over', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page } = await openPage(DESK, baseUrl)
    const arrived = createDeferred()
    const released = createDeferred()
    await page.route('**/console/api/device_rows', async (route) => {
      arrived.resolve()
      await released.promise
      await route.continue()
    })
    await signIn(page, key)
    await arrived.promise
    await button(page, 'Sign out').click()
    await page.getByLabel('API key').fill('half a key')
    const late = page.waitForResponse('**/console/api/device_rows')
    released.resolve()
    expect((await late).status()).toBe(401)
    await page.waitForLoadState('networkidle')
    expect(await page.getByLabel('API key').inputValue()).toBe('half a key')
    expect(await page.getByText('You are signed out.').count()).toBe(1)
  })

  it('waits for the outcome of what is under way', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page } = await openPage(DESK, baseUrl)
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
    const { page } = await openPage(DESK, baseUrl)
    await signIn(page, key)
    await goTo(page, 'API keys')
    const [apiKey] = apiKeys.page({ limit: 1 })
    await button(page, 'Create an API key').click()
    await dialogButton(page, 'Create').waitFor()
    if (apiKey) await issuer.deleteApiKey(apiKey)
    await dialogButton(page, 'Create').click()
    await page.getByText('Your session has ended. Sign in again to continue.').waitFor()
    expect(await page.getByRole('dialog').count()).toBe(0)
    expect(await page.getByRole('navigation').count()).toBe(0)
  })

  it('shows the link of a view that was opened by its address, and says that DNS was not checked', async () => {
    const { baseUrl, key, registrar } = await startManagementApi({ dnsServers: ['127.0.0.1:1'] })
    await registrar.reserve({ domain: '*.site.test' })
    const { page } = await openPage(PHONE, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Domains')
    await openLine(page, '*.site.test')
    await button(page, 'Check status of *.site.test').click()
    await page.getByText('Not checked', { exact: true }).waitFor()
    await page.getByText('DNS could not be checked.').waitFor()
    await page.goto(`${page.url().split('#')[0]}#/audit`)
    await page.reload()
    const link = page.locator('.views a[aria-current]')
    await link.getByText('Audit').waitFor()
    const box = await link.boundingBox()
    expect(box && box.x >= 0 && box.x + box.width <= PHONE).toBe(true)
  })

  it('follows the certificate after the records were put right, and forgets them when it cannot ask', async () => {
    const records: Record<string, string> = {}
    const { baseUrl, key, registrar, status, clock } = await startManagementApi({
      dnsServers: [await startDnsServer(records)],
      hasAcme: true,
    })
    const { page } = await openPage(DESK, baseUrl)
    const byDns = { authority: 'letsencrypt', challenge: 'dns-01' } as const
    const domain = await registrar.reserve({ domain: '*.site.test', ...byDns })
    records['dns-check.site.test'] = cnameTarget(domain, 'gateway.test')
    records['_acme-challenge.site.test'] = challengeTarget(domain, 'gateway.test')
    const job = { startedAt: clock.now(), error: 'No record.', retriesAt: clock.now() }
    status.current = { renewsAt: undefined, job }
    await signIn(page, key)
    await goTo(page, 'Domains')
    await line(page, '*.site.test').getByText('Certificate failed').waitFor()
    await openLine(page, '*.site.test')
    status.current = { renewsAt: clock.now(), job: undefined }
    await button(page, 'Check status of *.site.test').click()
    await line(page, '*.site.test').getByText('Certificate ready').waitFor()
    expect(await page.getByText('Found', { exact: true }).count()).toBe(2)
    await page.route('**/check', (route) => route.abort())
    await button(page, 'Check status of *.site.test').click()
    await page.getByRole('alert').waitFor()
    expect(await page.getByText('Found', { exact: true }).count()).toBe(0)
  })

  it('chooses how a domain gets its certificate', async () => {
    const { baseUrl, key, registrar, domains } = await startManagementApi({ hasAcme: true })
    await registrar.reserve({ domain: 'shop.test' })
    const { page } = await openPage(DESK, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Domains')
    await openLine(page, 'shop.test')
    await button(page, 'Edit certificate of shop.test').click()
    await field(page, 'Certificate').selectOption('on-demand')
    await dialogButton(page, 'Save').click()
    await page.getByText('The certificate of shop.test was changed.').waitFor()
    const policy = { authority: 'letsencrypt', challenge: 'on-demand' }
    expect(domains.find('shop.test')).toMatchObject(policy)
    // Only the record for visitors is left.
    expect(await page.getByText('_acme-challenge').count()).toBe(0)
    await button(page, 'Edit certificate of shop.test').click()
    expect(await field(page, 'Certificate').inputValue()).toBe('on-demand')
  })

  it('uploads a certificate, and assigns it to a domain', async () => {
    const { baseUrl, key, registrar, domains, clock } = await startManagementApi()
    await registrar.reserve({ domain: 'shop.test' })
    const now = clock.now()
    const { certPem, keyPem } = await makeCertificate({
      ...{ names: ['shop.test'], commonName: 'Shop CA' },
      ...{ notBefore: now - 86_400_000, notAfter: now + 90 * 86_400_000 },
    })
    const { page } = await openPage(DESK, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Certificates')
    await button(page, 'Upload a certificate').first().click()
    await field(page, 'Certificate and chain (PEM)').fill(certPem)
    await field(page, 'Private key (PEM)').fill('garbage')
    await dialogButton(page, 'Upload').click()
    await page.getByText('contains no private key').waitFor()
    await field(page, 'Private key (PEM)').fill(keyPem)
    await dialogButton(page, 'Upload').click()
    await page.getByText('The certificate for shop.test was uploaded.').waitFor()
    await line(page, 'shop.test').getByText('by Shop CA').waitFor()
    await openLine(page, 'shop.test')
    await expectGoodView(page, 'certificates')
    await goTo(page, 'Domains')
    await openLine(page, 'shop.test')
    await button(page, 'Edit certificate of shop.test').click()
    const option = await page.getByRole('option', { name: /^Uploaded: shop.test/ }).textContent()
    await field(page, 'Certificate').selectOption({ label: option ?? '' })
    await dialogButton(page, 'Save').click()
    await line(page, 'shop.test').getByText('Own certificate').waitFor()
    expect(domains.find('shop.test')?.certificateId).toMatch(/^cert_/)
    await goTo(page, 'Certificates')
    await openLine(page, 'shop.test')
    await button(page, 'Delete shop.test').click()
    await dialogButton(page, 'Delete certificate').click()
    await page.getByText('The certificate is in use by shop.test').waitFor()
  })

  it('adds and deletes a client CA', async () => {
    const { baseUrl, key, clock, certificateAuthorities: store } = await startManagementApi()
    const now = clock.now()
    const dates = { notBefore: now - 86_400_000, notAfter: now + 90 * 86_400_000 }
    const { certPem } = await makeCertificate({ isCa: true, commonName: 'Press CA', ...dates })
    const { page } = await openPage(DESK, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Client CAs')
    await button(page, 'Add a client CA').first().click()
    await field(page, 'CA certificates (PEM)').fill('garbage')
    await dialogButton(page, 'Add').click()
    await page.getByText('contains no certificate').waitFor()
    await field(page, 'CA certificates (PEM)').fill(certPem)
    await dialogButton(page, 'Add').click()
    await page.getByText('The client CA Press CA was added.').waitFor()
    const item = await openLine(page, 'Press CA')
    await item.getByText(store.page({ limit: 1 })[0]?.id ?? 'no CA').waitFor()
    await expectGoodView(page, 'client-cas')
    await button(page, 'Delete Press CA').click()
    await dialogButton(page, 'Delete client CA').click()
    await page.getByText('The client CA was deleted.').waitFor()
    expect(store.page({ limit: 1 })).toEqual([])
  })

  it('has room for the longest names', async () => {
    const { baseUrl, key, issuer, registrar, online } = await startManagementApi()
    const { page } = await openPage(DESK, baseUrl)
    const name = 'w'.repeat(255)
    const { id } = await issuer.createBotUser({ name })
    await issuer.createCredential({
      ownerId: id,
      description: name,
      acl: [`bind:${'w.'.repeat(120)}test`],
    })
    await issuer.createApiKey({ name, description: `${name.slice(1)}.`, ownerId: id })
    await registrar.reserve({
      domain: `*.${'w'.repeat(63)}.${'w'.repeat(63)}.test`,
      description: name,
      ownerId: id,
    })
    const { agent } = agentWithEndpoint('2')
    await online({ ...agent, identity: { ...agent.identity, hostname: name } })
    await signIn(page, key)
    for (const view of ['Devices', 'Domains', 'Bot users', 'Authtokens', 'API keys']) {
      await goTo(page, view)
      await openFirst(page)
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
    const { page } = await openPage(DESK, baseUrl)
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
    const { page, complaints } = await openPage(DESK, baseUrl)
    const name = '<img src=x onerror=alert(1)>'
    await issuer.createBotUser({ name })
    await signIn(page, key)
    await goTo(page, 'Bot users')
    await line(page, name).waitFor()
    expect(complaints).toEqual([])
  })
})

import type { Browser, Page } from 'playwright-core'
import { toString as drawQrCode } from 'qrcode'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { Secret } from '../../src/base/secret.ts'
import {
  accessibilityFindings,
  hasChromium,
  launchChromium,
  openPage,
  overflow,
  takePictures,
} from '../helpers/chromium.ts'
import { startDnsServer } from '../helpers/dns-server.ts'
import { eventually } from '../helpers/eventually.ts'
import { startManagementApi } from '../helpers/management-client.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { connectSdk, startGateway } from '../helpers/running-gateway.ts'
import { serveHttp } from '../helpers/serve-http.ts'

const WIDTHS = [360, 1280]

/** What holds for every view: nothing serious for axe, nothing beside the window. */
async function expectGoodView(page: Page, name: string) {
  await takePictures(page, name)
  expect(await accessibilityFindings(page), name).toEqual([])
  expect(await overflow(page), name).toBeLessThanOrEqual(0)
}

async function signIn(page: Page, key: Secret) {
  await page.goto('/')
  await page.getByLabel('API key').fill(key.reveal())
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { name: 'Devices', level: 1 }).waitFor()
}

async function goTo(page: Page, view: string) {
  await page.getByRole('navigation').getByRole('link', { name: view }).click()
  await page.getByRole('heading', { name: view, level: 1 }).waitFor()
}

const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })
const dialogButton = (page: Page, name: string) =>
  page.getByRole('dialog').getByRole('button', { name, exact: true })

const field = (page: Page, label: string) =>
  page.getByRole('dialog').getByLabel(label, { exact: true })

describe.runIf(hasChromium)('the console in Chromium', () => {
  let browser: Browser

  beforeAll(async () => {
    browser = await launchChromium()
  })
  afterAll(() => browser.close())

  it.each(WIDTHS)(
    'is walked from a domain to a device at %i px',
    { timeout: 60_000 },
    async (width) => {
      const zone: Record<string, string> = {}
      const site = await startGateway({
        apiListen: { host: '127.0.0.1', port: 0 },
        dnsServers: [await startDnsServer(zone)],
        cnameBase: 'gateway.example.com',
      })
      const { gateway, addresses } = site
      if (!addresses.api) throw new Error('the management API is not served')
      const key = gateway.provisionApiKey({ description: 'Site office' })
      const baseUrl = `http://${formatListenAddress(addresses.api)}`
      const { page, complaints } = await openPage(browser, width, baseUrl)

      await page.goto('/')
      await page.getByLabel('API key').fill('nonsense')
      await button(page, 'Sign in').click()
      await page.getByRole('alert').getByText('(ERR_NGROK_202)').waitFor()
      await expectGoodView(page, 'sign-in')
      await signIn(page, key)
      await page.getByText('No device is online').waitFor()
      await expectGoodView(page, 'devices-none')

      await goTo(page, 'Domains')
      await button(page, 'Reserve a domain').click()
      await field(page, 'Domain').fill('*.-sitea.test')
      await dialogButton(page, 'Reserve').click()
      await page.getByRole('alert').getByText('ERR_NGROK_').waitFor()
      await expectGoodView(page, 'domain-refused')
      await field(page, 'Domain').fill('*.sitea.test')
      await field(page, 'Description').fill('Factory, hall A')
      await dialogButton(page, 'Reserve').click()
      const card = page
        .getByRole('article')
        .filter({ has: page.getByRole('heading', { name: '*.sitea.test' }) })
      await card.waitFor()
      const [domain] = gateway.parts.domains.page({ limit: 1 })
      const records = await card.getByRole('code').allTextContents()
      expect(records).toEqual([
        '*.sitea.test',
        `${domain?.dnsLabel}.cname.gateway.example.com`,
        '_acme-challenge.sitea.test',
        `${domain?.dnsLabel}.acme.gateway.example.com`,
      ])
      await card.getByRole('button', { name: `Copy the value ${records[1]}` }).click()
      expect(await page.evaluate('navigator.clipboard.readText()')).toBe(records[1])
      const check = card.getByRole('button', { name: 'Check status' })
      await check.click()
      await card.getByText('DNS has no such record yet.').nth(1).waitFor()
      zone['*.sitea.test'] = records[1] ?? ''
      await check.click()
      await card.getByText('DNS is not ready yet.').waitFor()
      await card.getByText(`It points to ${records[1]}.`).waitFor()
      await expectGoodView(page, 'domains')
      zone['_acme-challenge.sitea.test'] = records[3] ?? ''
      await check.click()
      await card.getByText('Both records are as they should be.').waitFor()
      await card.getByText('Certificate ready').waitFor()

      await goTo(page, 'Bot users')
      await button(page, 'Create a bot user').click()
      await field(page, 'Name').fill('Press 7')
      await dialogButton(page, 'Create').click()
      await page.getByRole('heading', { name: 'Press 7' }).waitFor()
      await expectGoodView(page, 'bot-users')

      await goTo(page, 'Authtokens')
      await button(page, 'Create an authtoken').click()
      await field(page, 'Description').fill('Press 7, north door')
      await field(page, 'Owner').selectOption({ label: 'Press 7' })
      await field(page, 'May open').selectOption('bind:*.sitea.test')
      await expectGoodView(page, 'authtoken-form')
      await dialogButton(page, 'Create').click()
      const shown = page.getByRole('dialog', { name: 'Your new authtoken' })
      const authtoken = (await shown.getByRole('code').textContent()) ?? ''
      const [credential] = gateway.parts.credentials.page({ limit: 1 })
      expect(gateway.parts.authority.authenticate(authtoken)).toEqual(credential)
      expect(credential?.acl).toEqual(['bind:*.sitea.test'])
      const picture = await shown.getByRole('img', { name: 'QR code' }).getAttribute('src')
      expect(decodeURIComponent(picture ?? '')).toContain(
        await drawQrCode(authtoken, { type: 'svg', margin: 2, errorCorrectionLevel: 'M' }),
      )
      await dialogButton(page, 'Copy the authtoken').click()
      expect(await page.evaluate('navigator.clipboard.readText()')).toBe(authtoken)
      await expectGoodView(page, 'authtoken-shown')
      await page.keyboard.press('Escape')
      await dialogButton(page, 'I have copied it').click()
      await page.getByRole('heading', { name: 'Press 7, north door' }).waitFor()
      expect(await page.content()).not.toContain(authtoken)
      await expectGoodView(page, 'authtokens')

      const told: string[] = []
      const session = await connectSdk(site, {
        authtoken: new Secret(authtoken),
        metadata: 'Press 7',
        onStop: () => told.push('stop'),
        onRestart: () => told.push('restart'),
      })
      const upstream = await serveHttp((_request, response) => response.end('hello'))
      const listener = await session
        .httpEndpoint()
        .domain('cam.sitea.test')
        .listenAndForward(`http://127.0.0.1:${upstream.server.port}`)
      await goTo(page, 'Devices')
      await page.getByRole('link', { name: listener.url() ?? '' }).waitFor()
      const ingress = `http://${formatListenAddress(addresses.http)}`
      for (let n = 0; n < 3; n += 1) await publicRequest({ ingress, host: 'cam.sitea.test' })
      const figures = page.locator('.endpoint .figures')
      await figures.filter({ hasText: /Requests3/ }).waitFor()
      await expectGoodView(page, 'devices')
      for (const verb of ['Restart', 'Stop']) {
        await page.getByRole('button', { name: verb }).click()
        await dialogButton(page, `${verb} agent`).click()
        await page.getByRole('status').getByText(`was told to ${verb.toLowerCase()}`).waitFor()
      }
      await eventually(() => expect(told).toEqual(['restart', 'stop']))

      await goTo(page, 'Bot users')
      await button(page, 'Deactivate Press 7').click()
      await expectGoodView(page, 'confirm')
      await dialogButton(page, 'Deactivate').click()
      await button(page, 'Activate Press 7').waitFor()
      await goTo(page, 'Devices')
      await page.getByText('No device is online').waitFor()

      await goTo(page, 'API keys')
      await button(page, 'Create an API key').click()
      await field(page, 'Description').fill('Night shift')
      await dialogButton(page, 'Create').click()
      await dialogButton(page, 'I have copied it').click()
      await page.getByRole('heading', { name: 'Night shift' }).waitFor()
      await expectGoodView(page, 'api-keys')
      await button(page, 'Delete Night shift').click()
      await dialogButton(page, 'Delete API key').click()
      await page.getByRole('heading', { name: 'Night shift' }).waitFor({ state: 'detached' })
      await button(page, 'Delete Site office').click()
      await dialogButton(page, 'Delete API key').click()
      await page.getByText('Your session is over').waitFor()
      expect(complaints).toEqual([])
    },
  )

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
    await page.getByRole('heading', { name: 'Lathe 2' }).waitFor()
    await tabTo('Delete')
    await keyboard.press('Enter')
    await tabTo('Delete bot user')
    await keyboard.press('Enter')
    await page.getByText('There is no bot user').waitFor()
    expect(await focused()).toBe('Bot users')
  })

  it('asks for a key again when the session is over, and forgets what it showed', async () => {
    const { baseUrl, key, issuer, apiKeys } = await startManagementApi()
    const { page } = await openPage(browser, 1280, baseUrl)
    await signIn(page, key)
    await goTo(page, 'API keys')
    const [apiKey] = apiKeys.page({ limit: 1 })
    await button(page, 'Create an API key').click()
    if (apiKey) issuer.deleteApiKey(apiKey)
    await dialogButton(page, 'Create').click()
    await page.getByText('Your session is over: sign in again to go on.').waitFor()
    expect(await page.getByRole('dialog').count()).toBe(0)
    expect(await page.getByRole('navigation').count()).toBe(0)
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
    await page.getByRole('heading', { name }).waitFor()
    expect(complaints).toEqual([])
  })
})

import { toString as drawQrCode } from 'qrcode'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { Secret } from '../../src/base/secret.ts'
import { joinGateway } from '../../src/join/join-client.ts'
import { parseJoinString } from '../../src/join/join-string.ts'
import { hasChromium, openPage } from '../helpers/chromium.ts'
import {
  button,
  dialogButton,
  expectGoodView,
  field,
  goTo,
  line,
  openLine,
  PHONE,
  signIn,
} from '../helpers/console-page.ts'
import { startDnsServer } from '../helpers/dns-server.ts'
import { eventually } from '../helpers/eventually.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { connectSdk, startGateway } from '../helpers/running-gateway.ts'
import { serveHttp } from '../helpers/serve-http.ts'

describe.runIf(hasChromium)('the walk through the console in Chromium', () => {
  it('adds a device with one command', async () => {
    const site = await startGateway({
      apiListen: { host: '127.0.0.1', port: 0 },
      publicNames: [{ host: 'gateway.example.com', port: undefined }],
    })
    const { gateway, addresses } = site
    if (!addresses.api) throw new Error('the management API is not served')
    const key = await gateway.provisionApiKey({ description: 'Site office' })
    const baseUrl = `http://${formatListenAddress(addresses.api)}`
    const { page, complaints } = await openPage(PHONE, baseUrl)
    await signIn(page, key)
    await button(page, 'Add a device').click()
    await field(page, 'Name').fill('camera-7')
    await page.getByText('More', { exact: true }).click()
    await field(page, 'Number of devices').fill('2')
    await expectGoodView(page, 'add-device-form')
    await dialogButton(page, 'Create the command').click()
    await page.getByRole('alert').getByText('max_uses is more than 1').waitFor()
    await field(page, 'Number of devices').fill('1')
    await field(page, 'Tags').fill('hall-3, camera')
    await dialogButton(page, 'Create the command').click()
    const shown = page.getByRole('dialog', { name: 'Run this command on the device' })
    const command = (await shown.getByRole('code').first().textContent()) ?? ''
    await shown.getByText('Waiting for the device…').waitFor()
    await shown.getByText(/It works once, until \w/).waitFor()
    expect(await shown.getByText('knows only addresses of its own machine').count()).toBe(0)
    await shown.getByRole('img', { name: 'QR code' }).waitFor()
    await expectGoodView(page, 'add-device-shown')

    const text = /^echo '(\S+)' \| sudo device-agent join -$/.exec(command)?.[1] ?? ''
    const joinString = parseJoinString(text)
    if ('problem' in joinString) throw new Error(joinString.problem)
    const { port } = addresses.agent
    const joined = await joinGateway({
      joinString: { ...joinString, addresses: [{ host: 'localhost', port }] },
      claim: new Secret('c'.repeat(22)),
      hostname: 'raspberrypi',
      clock: systemClock,
    })
    await shown.getByText('camera-7 has joined, from 127.0.0.1.').waitFor()
    await expectGoodView(page, 'add-device-joined')
    await dialogButton(page, 'Done').click()
    expect(await page.content()).not.toContain(text)
    const { authtoken } = joined
    await connectSdk(site, { authtoken, metadata: 'camera-7' })
    await page.locator('.item-line').getByText('camera-7').waitFor()

    await button(page, 'Add a device').click()
    await dialogButton(page, 'Create the command').click()
    await dialogButton(page, 'Done').click()
    await goTo(page, 'Invitations')
    await openLine(page, 'camera-7')
    await page.getByText(/^camera-7, .+ from 127\.0\.0\.1$/).waitFor()
    await expectGoodView(page, 'invitations')
    await line(page, 'camera-7')
      .getByText(/^joined /)
      .waitFor({ state: 'attached' })
    await openLine(page, 'Named by the device')
    await button(page, 'Withdraw Named by the device').click()
    await dialogButton(page, 'Withdraw invitation').click()
    await page.getByText('Withdrawn', { exact: true }).waitFor()
    await goTo(page, 'Audit')
    await page.getByText(/^camera-7 joined with the invitation inv_/).waitFor()
    expect(await page.getByLabel('Object').textContent()).toContain('Notification channel')

    await goTo(page, 'Devices')
    await button(page, 'Add a device').click()
    await field(page, 'Name').fill('camera-7')
    await dialogButton(page, 'Create the command').click()
    await shown.getByText('A device named camera-7 exists. Only that device can join').waitFor()
    await expectGoodView(page, 'add-device-taken')
    expect(complaints.filter((it) => !it.includes('400'))).toEqual([])
  })

  it('leads from a domain to a device', async () => {
    const zone: Record<string, string> = {}
    const site = await startGateway({
      apiListen: { host: '127.0.0.1', port: 0 },
      dnsServers: [await startDnsServer(zone)],
      cnameBase: 'gateway.example.com',
    })
    const { gateway, addresses } = site
    if (!addresses.api) throw new Error('the management API is not served')
    const key = await gateway.provisionApiKey({ description: 'Site office' })
    const baseUrl = `http://${formatListenAddress(addresses.api)}`
    const { page, complaints } = await openPage(PHONE, baseUrl)

    await page.goto('/')
    await page.getByLabel('API key').fill('nonsense')
    await button(page, 'Sign in').click()
    await page.getByRole('alert').getByText('(ERR_NGROK_202)').waitFor()
    await expectGoodView(page, 'sign-in')
    await signIn(page, key)
    await page.getByText('No devices yet').waitFor()
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
    const card = await openLine(page, '*.sitea.test')
    const [domain] = gateway.parts.domains.page({ limit: 1 })
    const records = await card.getByRole('code').allTextContents()
    expect(records).toEqual(['*.sitea.test', `${domain?.dnsLabel}.cname.gateway.example.com`])
    await card.getByRole('button', { name: `Copy the value ${records[1]}` }).click()
    expect(await page.evaluate('navigator.clipboard.readText()')).toBe(records[1])
    const check = card.getByRole('button', { name: 'Check status' })
    await check.click()
    await card.getByText('The record does not exist in DNS yet.').waitFor()
    zone['*.sitea.test'] = 'old.example.com'
    await check.click()
    await card.getByText('DNS is not ready yet.').waitFor()
    await card.getByText('The record points to old.example.com.').waitFor()
    await expectGoodView(page, 'domains')
    zone['*.sitea.test'] = records[1] ?? ''
    await check.click()
    await card.getByText('The record is correct.').waitFor()
    await card.getByText('Certificate ready').waitFor()

    await goTo(page, 'Bot users')
    await button(page, 'Create a bot user').click()
    await field(page, 'Name').fill('Press 7')
    await dialogButton(page, 'Create').click()
    await line(page, 'Press 7').waitFor()
    await expectGoodView(page, 'bot-users')

    await goTo(page, 'Authtokens')
    await button(page, 'Create an authtoken').click()
    await field(page, 'Description').fill('Press 7, north door')
    await field(page, 'Owner').selectOption({ label: 'Press 7' })
    await field(page, 'ACL rule').selectOption('bind:*.sitea.test')
    await expectGoodView(page, 'authtoken-form')
    await field(page, 'ACL rule').selectOption('Choose a rule…')
    await dialogButton(page, 'Create').click()
    await page.getByRole('alert').getByText('Choose an ACL rule.').waitFor()
    await field(page, 'ACL rule').selectOption('bind:*.sitea.test')
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
    for (let n = 0; n < 3; n += 1) await page.keyboard.press('Escape')
    await dialogButton(page, 'I have copied it').click()
    await line(page, 'Press 7, north door').waitFor()
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
    await page.locator('.item-line').first().click()
    await page.getByRole('link', { name: listener.url() ?? '' }).waitFor()
    const ingress = `http://${formatListenAddress(addresses.http)}`
    for (let n = 0; n < 3; n += 1) await publicRequest({ ingress, host: 'cam.sitea.test' })
    const figures = page.locator('.endpoint .figures').first()
    await figures.filter({ hasText: /Requests3/ }).waitFor()
    await expectGoodView(page, 'devices')
    for (const verb of ['Restart', 'Stop']) {
      await page.getByRole('button', { name: verb }).click()
      await dialogButton(page, `${verb} agent`).click()
      await page.getByRole('status').getByText(`was told to ${verb.toLowerCase()}`).waitFor()
    }
    await eventually(() => expect(told).toEqual(['restart', 'stop']))

    await goTo(page, 'Bot users')
    await openLine(page, 'Press 7')
    await button(page, 'Deactivate Press 7').click()
    await expectGoodView(page, 'confirm')
    await dialogButton(page, 'Deactivate').click()
    await button(page, 'Activate Press 7').waitFor()
    await goTo(page, 'Devices')
    await page.locator('.item-line').filter({ hasText: 'Offline' }).click()
    await page.getByText('The authtoken is no longer valid.').waitFor()

    await goTo(page, 'API keys')
    await button(page, 'Create an API key').click()
    await field(page, 'Name').fill('Night shift')
    await field(page, 'Scope').selectOption('read')
    expect(await field(page, 'Access').isVisible()).toBe(false)
    await field(page, 'Owner').selectOption({ label: 'Press 7' })
    await field(page, 'Access').waitFor()
    await field(page, 'Ends').fill('2199-12-31T08:00')
    await expectGoodView(page, 'api-key-form')
    await dialogButton(page, 'Create').click()
    await page.getByRole('alert').getByText('ERR_NGROK_636').waitFor()
    await field(page, 'Owner').selectOption({ label: 'No owner' })
    await dialogButton(page, 'Create').click()
    await dialogButton(page, 'I have copied it').click()
    const night = await openLine(page, 'Night shift')
    const [made] = gateway.parts.apiKeys.page({ limit: 1 })
    expect(made).toMatchObject({ name: 'Night shift', scope: 'read', ownerId: null })
    expect(new Date(made?.expiresAt ?? 0).getUTCFullYear()).toBe(2199)
    await night.getByText('read only').last().waitFor()
    await expectGoodView(page, 'api-keys')
    await button(page, 'Delete Night shift').click()
    await dialogButton(page, 'Delete API key').click()
    await line(page, 'Night shift').waitFor({ state: 'detached' })
    await openLine(page, 'Site office')
    await button(page, 'Delete Site office').click()
    await dialogButton(page, 'Delete API key').click()
    await page.getByText('Your session has ended').waitFor()
    expect(complaints).toEqual([])
  })
})

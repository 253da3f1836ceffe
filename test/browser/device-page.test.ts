import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import type { Page } from 'playwright-core'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { FindingView } from '../../src/api/diagnosis/doctor.ts'
import { API_TOKEN, startApi } from '../api/started-api.ts'
import { hasChromium, openPage } from '../helpers/chromium.ts'
import {
  button,
  DESK,
  dialogButton,
  expectGoodView,
  field,
  focusedText,
  goTo,
  PHONE,
  tabTo,
} from '../helpers/console-page.ts'
import { sendRequest } from '../helpers/serve-http.ts'

const FINDINGS: FindingView[] = [
  { check: 'settings', outcome: 'good', detail: 'settings of the running agent', remedy: null },
  { check: 'disk', outcome: 'good', detail: '11204 MiB free', remedy: null },
  {
    check: 'dns gateway.site.example.com:4443',
    outcome: 'bad',
    detail: 'the name gateway.site.example.com does not resolve',
    remedy: 'Check the DNS server of the device, and the name in SVC_SERVER_ADDR.',
  },
  {
    check: 'tcp gateway.site.example.com:4443',
    outcome: 'skipped',
    detail: 'not reached',
    remedy: null,
  },
]

/** Waits for the sentence about the device, which stands above its tunnels. */
const verdict = (page: Page, text: string) =>
  page.getByRole('heading', { level: 1 }).filter({ hasText: text }).waitFor()

describe.runIf(hasChromium)('the device page in Chromium', () => {
  it('leads from a code to a tunnel, the doctor and the log', async () => {
    const api = await startApi()
    const baseUrl = `http://127.0.0.1:${api.port}`
    const { page, complaints } = await openPage(PHONE, baseUrl)

    await page.goto('/')
    await page.getByLabel('One-time code').fill('wrong-code-0000')
    await button(page, 'Sign in').click()
    await page.getByRole('alert').getByText('The code is wrong or has expired').waitFor()
    await expectGoodView(page, 'device-sign-in')
    await page.getByText('Use an API token instead').click()
    await expectGoodView(page, 'device-sign-in-token')

    const code = api.codes.create().code.reveal()
    await page.goto('about:blank')
    await page.goto(`/page/#code=${code}`)
    await page.getByRole('heading', { name: 'No tunnels', exact: true }).waitFor()
    expect(page.url()).toBe(`${baseUrl}/page/`)
    await expectGoodView(page, 'device-empty')

    await button(page, 'Add a tunnel').click()
    await field(page, 'Public name (optional)').fill('not a name')
    await field(page, 'Service on this device').fill('localhost:8001')
    await dialogButton(page, 'Add tunnel').click()
    const refusal = page.getByRole('alert')
    await refusal.getByText('Must be a domain name such as').waitFor()
    // Told once, at the field.
    expect(await refusal.count()).toBe(1)
    const name = field(page, 'Public name (optional)')
    expect(await name.getAttribute('aria-describedby')).toContain(await refusal.getAttribute('id'))
    expect(await page.evaluate('document.activeElement.name')).toBe('domain')
    await expectGoodView(page, 'device-add-refused')
    await field(page, 'Public name (optional)').fill('cam.site.test')
    await page.getByText('Traffic policy').first().click()
    await field(page, 'Traffic policy').fill('on_http_request: [{actions: [{type: deny}]}]')
    await dialogButton(page, 'Add tunnel').click()
    await page.getByRole('link', { name: 'cam.site.test' }).waitFor()
    expect(api.agent.list()[0]?.spec.policy).toEqual({
      on_http_request: [{ actions: [{ type: 'deny' }] }],
    })
    await api.agent.create({
      protocol: 'http',
      domain: 'press.site.test',
      forwardsTo: 'localhost:9',
      policy: null,
    })
    await page.getByText('service down').first().waitFor()
    await expectGoodView(page, 'device-tunnels')
    await button(page, 'Add a tunnel').click()
    await field(page, 'Service on this device').fill('8002')
    await dialogButton(page, 'Add tunnel').click()
    const given = api.service.connector.name
    await page.getByRole('link', { name: given }).waitFor()
    await button(page, `Details of ${given}`).click()
    await page.getByRole('button', { name: `Copy https://${given}` }).waitFor()
    await expectGoodView(page, 'device-named')
    await api.agent.remove(api.service.connector.name)

    api.service.goAway()
    await page.getByText('offline', { exact: true }).first().waitFor()
    await expectGoodView(page, 'device-offline')
    await button(page, 'Details of press.site.test').click()
    await page.getByRole('button', { name: 'Remove press.site.test' }).click()
    await expectGoodView(page, 'device-remove')
    await dialogButton(page, 'Remove tunnel').click()
    await page
      .getByRole('button', { name: 'Details of press.site.test' })
      .waitFor({ state: 'detached' })
    expect(api.agent.list()).toHaveLength(1)

    api.doctor.findings = FINDINGS
    await goTo(page, 'Doctor')
    await button(page, 'Run checks').click()
    await page.getByText('1 check failed. Start with the first.').waitFor()
    await expectGoodView(page, 'device-doctor')
    api.doctor.findings = FINDINGS.slice(0, 2)
    await button(page, 'Run checks').click()
    await page.getByText('All checks passed.').waitFor()
    api.doctor.findings = [
      ...FINDINGS.slice(0, 2),
      {
        check: 'status',
        outcome: 'good',
        detail: 'the link is slow',
        remedy: 'Check the network of the device.',
      },
    ]
    await button(page, 'Run checks').click()
    await page.getByText('No check failed. 1 note has a fix.').waitFor()
    await page.getByText('Note:').waitFor({ state: 'attached' })
    await expectGoodView(page, 'device-doctor-note')

    await goTo(page, 'Log')
    api.log.error({ reason: 'network' }, '<b>canary</b> line')
    const line = page.getByText('<b>canary</b> line')
    await line.waitFor()
    await expectGoodView(page, 'device-log')
    await page.getByLabel('Level').selectOption('error')
    await page.getByText('page session opened').waitFor({ state: 'detached' })
    await page.getByLabel('Contains').fill('nothing like it')
    await page.getByText('No matching lines.').waitFor()

    await button(page, 'Sign out').click()
    await page.getByText('You are signed out.').waitFor()
    expect(await page.evaluate('document.cookie')).toBe('')
    expect(complaints).toEqual([])
  })

  it('looks into a tunnel for some minutes', async () => {
    const service = createServer(async (request, response) => {
      response.setHeader('content-type', 'application/json')
      response.statusCode = request.url?.startsWith('/missing') ? 404 : 200
      response.end(JSON.stringify({ heard: await text(request), reading: { celsius: 21.5 } }))
    })
    await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => void service.close().closeAllConnections())
    const { port } = service.address() as AddressInfo
    const api = await startApi()
    await api.agent.create({
      protocol: 'http',
      domain: 'cam.site.test',
      forwardsTo: `localhost:${port}`,
      policy: null,
    })
    const visit = (path: string, method = 'GET', body?: string) => {
      const url = api.service.connector.last.endpoints.get('cam.site.test')?.dialUrl ?? ''
      const headers = { authorization: 'Bearer canary', 'user-agent': 'a visitor' }
      const at = { port: Number(new URL(url).port) }
      return sendRequest(at, { path, method, headers, ...(body && { body }) })
    }
    const { page, complaints } = await openPage(DESK, `http://127.0.0.1:${api.port}`)
    await page.goto(`/page/#code=${api.codes.create().code.reveal()}`)
    await button(page, 'Details of cam.site.test').click()
    await page.getByRole('link', { name: 'Inspect cam.site.test' }).click()
    await page.getByRole('heading', { name: 'cam.site.test', level: 1 }).waitFor()
    await page.getByText('Start the inspector to see new requests here.').waitFor()
    await expectGoodView(page, 'device-inspect-off')
    await page.getByLabel('For', { exact: true }).selectOption('15')
    await button(page, 'Start').click()
    await page.getByText('No requests yet.').waitFor()
    await visit('/api/reading?sensor=4&token=canary')
    await visit('/missing')
    await visit('/api/reading', 'POST', '{"celsius":21.5}')
    await page.getByRole('button', { name: 'POST' }).click()
    await page.getByLabel('Response body').getByText('"celsius": 21.5').waitFor()
    expect(await page.getByLabel('Request headers').textContent()).toContain(
      'authorization: [secret]',
    )
    await expectGoodView(page, 'device-inspect')
    // Where there is no room beside the list, what was chosen opens in its place.
    const chosen = page.getByRole('listitem').filter({ has: page.getByLabel('Request details') })
    expect(await chosen.count()).toBe(0)
    await page.setViewportSize({ width: PHONE, height: 800 })
    await expect.poll(() => chosen.count()).toBe(1)
    await button(page, 'Send again').click()
    await page.getByText('sent again, copy of 3').waitFor()
    await page.getByLabel('Filter').fill('get 404')
    await page.getByRole('button', { name: '/api/reading' }).first().waitFor({ state: 'detached' })
    await page.getByRole('button', { name: '/missing' }).waitFor()
    await button(page, 'Stop and delete').click()
    await page.getByText('Start the inspector to see new requests here.').waitFor()
    expect(api.agent.inspections.status(api.agent.find('cam').id).state).toBe('off')
    expect(await page.content()).not.toContain('canary')
    expect(complaints).toEqual([])
  })

  it('is used by keyboard alone', async () => {
    const api = await startApi()
    const { page } = await openPage(DESK, `http://127.0.0.1:${api.port}`)
    const { keyboard } = page
    await page.goto('/page/')
    await page.getByLabel('One-time code').waitFor()
    await keyboard.type(api.codes.create().code.reveal().toLowerCase())
    await keyboard.press('Enter')
    await page.getByRole('heading', { name: 'No tunnels', exact: true }).waitFor()
    await tabTo(page, 'Skip to content')
    await keyboard.press('Enter')
    await tabTo(page, 'Add a tunnel')
    await keyboard.press('Enter')
    await page.getByRole('dialog').waitFor()
    await keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(await focusedText(page)).toBe('Add a tunnel')
    await keyboard.press('Enter')
    await keyboard.type('8001')
    await keyboard.press('Tab')
    await keyboard.type('cam.site.test')
    await keyboard.press('Enter')
    const details = page.getByRole('button', { name: 'Details of cam.site.test' })
    await details.waitFor()
    await details.focus()
    await keyboard.press('Enter')
    await tabTo(page, 'Edit')
    await keyboard.press('Enter')
    await page.getByRole('dialog', { name: 'Edit cam.site.test' }).waitFor()
    await keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(await focusedText(page)).toBe('Edit')
    await tabTo(page, 'Doctor')
    await keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Doctor', level: 1 }).waitFor()
    expect(await focusedText(page)).toBe('Doctor')
    await tabTo(page, 'Run checks')
    await keyboard.press('Enter')
    await page.getByText('All checks passed.').waitFor()
    expect(await focusedText(page)).toBe('Run checks')
  })

  it('offers nobody a change who may only read', async () => {
    const api = await startApi()
    const reader = api.tokens.create({ name: 'viewer', scope: 'read', expiresAt: null })
    const { page } = await openPage(DESK, `http://127.0.0.1:${api.port}`)
    await api.agent.create({
      protocol: 'http',
      domain: 'cam.site.test',
      forwardsTo: 'localhost:9',
      policy: null,
    })
    await page.goto('/page/')
    await page.getByText('Use an API token instead').click()
    await page.getByLabel('API token').fill(reader.secret.reveal())
    await button(page, 'Sign in with the token').click()
    await button(page, 'Details of cam.site.test').click()
    await page.getByText('Read only').waitFor()
    const buttons = ['Sign out', '', 'Copy', 'Copy']
    expect(await page.getByRole('button').allTextContents()).toEqual(buttons)
    await expectGoodView(page, 'device-read-only')
    api.tokens.revoke(reader.token.id)
    await page.getByText('Your session has ended').waitFor()
  })

  it('says that a code in the address is over, and that the agent is silent', async () => {
    const api = await startApi()
    const { page } = await openPage(PHONE, `http://127.0.0.1:${api.port}`)
    await page.goto('/page/#code=0000-0000-0000')
    await page.getByText('The code in this address has expired.').waitFor()
    await page.getByText('Use an API token instead').click()
    await page.getByLabel('API token').fill(API_TOKEN)
    await button(page, 'Sign in with the token').click()
    await verdict(page, 'tunnels')
    await page.route('**/page/api/**', (route) => route.abort())
    await page.getByRole('alert').getByText('Not connected to the agent.').waitFor()
    await page.unroute('**/page/api/**')
    await page.getByRole('alert').waitFor({ state: 'detached' })
    await page.route('**/page/api/tunnels**', (route) =>
      route.fulfill({ status: 503, json: { code: 'starting', detail: 'Not read yet.' } }),
    )
    await page.getByRole('status').getByText('Starting.').waitFor()
    expect(await page.getByRole('alert').count()).toBe(0)
    await page.unroute('**/page/api/tunnels**')
    await page.getByText('Starting.').waitFor({ state: 'detached' })
  })
})

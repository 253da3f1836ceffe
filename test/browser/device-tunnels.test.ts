import { hostname } from 'node:os'
import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { DEFAULT_TIMINGS } from '../../src/agent/timings.ts'
import { type StartedApi, startApi } from '../api/started-api.ts'
import { hasChromium, openPage } from '../helpers/chromium.ts'
import {
  button,
  DESK,
  dialogButton,
  expectGoodView,
  field,
  PHONE,
} from '../helpers/console-page.ts'
import { onWebPort } from '../helpers/on-web-port.ts'
import { serveHttp } from '../helpers/serve-http.ts'
import { socketTable } from '../helpers/socket-table.ts'

/** Nothing listens on this port. */
const NO_SERVICE = 'localhost:9'
/** Longer than a test: the second check that makes a service count as down does not come. */
const HOUR = 3_600_000

/** Path of the page that signs in. */
const signedIn = (api: StartedApi) => `/page/#code=${api.codes.create().code.reveal()}`

/** Script: the characters that begin the second and later lines of the names of tunnels. */
const FIRST_OF_LATER_LINES = `[...document.querySelectorAll('h3')].flatMap((heading) => {
  const range = document.createRange()
  const walker = document.createTreeWalker(heading, NodeFilter.SHOW_TEXT)
  const firsts = []
  let above
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent
    for (let at = 0; at < text.length; at += 1) {
      range.setStart(walker.currentNode, at)
      range.setEnd(walker.currentNode, at + 1)
      const { top } = range.getBoundingClientRect()
      if (top > above) firsts.push(text[at])
      above = top
    }
  }
  return firsts
})`

async function serviceAddress(): Promise<string> {
  const { server } = await serveHttp((_request, response) => response.end('hello'))
  return `localhost:${server.port}`
}

const names = (page: Page) => page.getByRole('heading', { level: 3 }).allTextContents()
const title = (page: Page) => page.title()

describe.runIf(hasChromium)('the tunnels of the device page in Chromium', () => {
  async function open(api: StartedApi, width: number) {
    const opened = await openPage(width, `http://127.0.0.1:${api.port}`)
    await opened.page.goto(signedIn(api))
    return opened
  }

  const add = ({ agent }: StartedApi, domain: string, forwardsTo: string) =>
    agent.create({ protocol: 'http', domain, forwardsTo, policy: null })

  it('names the device, and shows problems first, each told once', async () => {
    const api = await startApi()
    const service = await serviceAddress()
    await add(api, 'camera.site.test', service)
    await add(api, 'press.site.test', NO_SERVICE)
    await add(api, 'oven.site.test', NO_SERVICE)
    const { page, complaints } = await open(api, PHONE)
    await expect.poll(() => title(page)).toBe(`${hostname()}: 2 problems`)
    const heading = page.getByRole('heading', { level: 1 })
    expect(await heading.textContent()).toContain(hostname())
    await page.getByText('working', { exact: true }).waitFor()
    expect(await names(page)).toEqual([
      'press.site.test:8443',
      'oven.site.test:8443',
      'camera.site.test:8443',
    ])
    await expect.poll(() => page.getByText('refuses connections').count()).toBe(1)
    expect(await page.getByText('Start the service on').count()).toBe(1)
    const badges = page.getByRole('listitem').filter({ hasText: 'press' })
    expect(await badges.getByText('working').count()).toBe(0)
    await expectGoodView(page, 'device-problems')
    await button(page, 'Details of press.site.test').click()
    await page.getByText('Start the service on').nth(1).waitFor()
    await expectGoodView(page, 'device-details')
    await api.agent.remove('press.site.test')
    await api.agent.remove('oven.site.test')
    await expect.poll(() => title(page)).toBe(`${hostname()}: 1 tunnel`)
    expect(complaints).toEqual([])
  })

  it('counts a tunnel neither as working nor as a problem until its service was checked', async () => {
    const upstream = { ...DEFAULT_TIMINGS.upstream, intervalMs: HOUR }
    const api = await startApi({ agent: { timings: { ...DEFAULT_TIMINGS, upstream } } })
    await add(api, 'press.site.test', NO_SERVICE)
    const { page } = await open(api, PHONE)
    const tone = () => page.getByLabel('This device').getAttribute('data-tone')
    await page.getByText('Checking the tunnel.').waitFor()
    await page.getByText('checking', { exact: true }).waitFor()
    expect(await title(page)).toBe(`${hostname()}: 1 tunnel`)
    expect(await tone()).toBe('wait')
    await add(api, 'camera.site.test', await serviceAddress())
    await page.getByText('1 of 2 tunnels work. 1 is being checked.').waitFor()
    expect(await names(page)).toEqual(['press.site.test:8443', 'camera.site.test:8443'])
    await api.agent.remove('press.site.test')
    await page.getByText('The tunnel works.').waitFor()
    expect(await tone()).toBe('good')
  })

  it('finds a tunnel among many by name, port and state, and is quiet while the link is down', async () => {
    const api = await startApi({ agent: { maxTunnels: 20 } })
    const service = await serviceAddress()
    for (let n = 1; n <= 8; n += 1) await add(api, `sensor-${n}.site.test`, service)
    const { page } = await open(api, PHONE)
    const search = page.getByLabel('Find tunnels')
    await page.getByText('sensor-8').waitFor()
    expect(await search.isVisible()).toBe(false)
    await add(api, 'press.site.test', NO_SERVICE)
    await search.fill('sensor-3')
    await expect.poll(() => names(page)).toEqual(['sensor-3.site.test:8443'])
    await page.getByRole('status').getByText('1 of 9 tunnels').waitFor()
    await search.fill(':9')
    await expect.poll(() => names(page)).toEqual(['press.site.test:8443'])
    await search.fill('sensor down')
    await page.getByText('No matching tunnels.').waitFor()
    await search.fill('down')
    await expect.poll(() => names(page)).toEqual(['press.site.test:8443'])
    await search.fill('')
    await expect.poll(() => names(page)).toHaveLength(9)

    api.service.goAway()
    await expect.poll(() => title(page)).toBe(`${hostname()}: offline`)
    await expect.poll(() => page.getByText('offline', { exact: true }).count()).toBe(9)
    await page.getByText('Link down, next try soon').click()
    await page.getByText(/^down · /).waitFor()
    expect(await page.getByText(/refuses connections|connection was lost/).count()).toBe(1)
    await expectGoodView(page, 'device-many')
  })

  it('breaks a long address before a dot or its port', async () => {
    const api = await startApi({ agent: { maxTunnels: 20 } })
    const service = await serviceAddress()
    const long = [6, 8, 10, 12, 14, 16, 18].map((length) => `${'e'.repeat(length)}.hall.site.test`)
    for (const domain of long) await add(api, domain, service)
    const { page } = await open(api, PHONE)
    await expect.poll(() => names(page)).toEqual(long.map((name) => `${name}:8443`))
    const breaks = await page.evaluate<string[]>(FIRST_OF_LATER_LINES)
    // Some of these addresses do not fit into one line.
    expect(new Set(breaks)).toEqual(new Set(['.', ':']))
    await expectGoodView(page, 'device-long-addresses')
  })

  it('changes a tunnel, and loses nothing when somebody else changes it', async () => {
    const api = await startApi()
    const service = await serviceAddress()
    await add(api, 'cam.site.test', NO_SERVICE)
    const { page, complaints } = await open(api, PHONE)
    await button(page, 'Details of cam.site.test').click()
    const edit = button(page, 'Edit cam.site.test')
    await edit.click()
    const target = field(page, 'Service on this device')
    expect(await target.inputValue()).toBe(NO_SERVICE)
    await page.getByRole('dialog').getByText('More options').click()
    await field(page, 'Seconds to wait for an answer').fill('99999')
    await expectGoodView(page, 'device-edit')
    await page.getByRole('dialog').getByText('More options').click()
    await dialogButton(page, 'Save').click()
    // The field is shown again.
    await page.getByRole('alert').getByText('from 1 to 3600').waitFor()
    await field(page, 'Seconds to wait for an answer').fill('90')
    await target.fill(service)

    const now = { protocol: 'http', forwards_to: 'localhost:8009' }
    await api.call('PUT', '/tunnels/cam.site.test', now)
    await dialogButton(page, 'Save').click()
    await page.getByRole('alert').getByText('changed while you edited it').waitFor()
    await page.getByRole('alert').getByText('Changed meanwhile to: localhost:8009').waitFor()
    expect(await target.inputValue()).toBe(service)
    expect(api.agent.find('cam').spec.forwardsTo).toBe('localhost:8009')
    await expectGoodView(page, 'device-conflict')
    await dialogButton(page, 'Save').click()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(api.agent.find('cam').spec).toMatchObject({
      forwardsTo: service,
      upstream: { timeout: 90 },
      policy: null,
    })
    await page.getByText('working', { exact: true }).waitFor()

    // A change keeps the options that the form has shown.
    await edit.click()
    await page.getByText('Traffic policy').first().click()
    await field(page, 'Traffic policy').fill('on_http_request: [{actions: [{type: deny}]}]')
    await dialogButton(page, 'Save').click()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(api.agent.find('cam').spec).toMatchObject({
      upstream: { timeout: 90 },
      policy: { on_http_request: [{ actions: [{ type: 'deny' }] }] },
    })
    await edit.click()
    await target.waitFor()
    await api.agent.remove('cam')
    await dialogButton(page, 'Save').click()
    await page.getByRole('alert').getByText('removed while you edited it').waitFor()
    expect(api.agent.list()).toEqual([])
    expect(complaints).toEqual([])
  })

  it('offers the services of the device, with a name', async () => {
    const { server } = await onWebPort((port) =>
      serveHttp((_request, response) => void response.end('<title>Door <b>bell</title>'), {
        host: '127.0.0.1',
        port,
      }),
    )
    const api = await startApi({ agent: { serviceTables: [socketTable([22], [server.port])] } })
    await add(api, 'press.site.test', NO_SERVICE)
    const { page, complaints } = await open(api, PHONE)
    await button(page, 'Details of press.site.test').waitFor()
    await button(page, 'Add a tunnel').click()
    const found = page.getByRole('list', { name: 'Services found on this device' })
    await found.getByText('Door <b>bell').waitFor()
    // Web services first.
    expect(await found.getByRole('button').allTextContents()).toEqual([
      `${server.port}Door <b>bell`,
      '22SSH',
    ])
    await found.getByText('Door <b>bell').click()
    await dialogButton(page, 'Use door-b-bell.site.test').click()
    await expectGoodView(page, 'device-add-found')
    await dialogButton(page, 'Add tunnel').click()
    await page.getByRole('link', { name: 'door-b-bell.site.test' }).waitFor()
    expect(api.agent.find('door-b-bell').spec.forwardsTo).toBe(`localhost:${server.port}`)
    expect(complaints).toEqual([])
  })

  it('shows a long form with its buttons, and errors at the fields in the words of the form', async () => {
    const title = 'Door bell of the north gate on the second floor'
    const { server } = await onWebPort((port) =>
      serveHttp((_request, response) => void response.end(`<title>${title}</title>`), {
        host: '127.0.0.1',
        port,
      }),
    )
    const table = socketTable([22], [1883], [3389], [5432], [server.port])
    const api = await startApi({ agent: { serviceTables: [table] } })
    await add(api, 'press.site.test', NO_SERVICE)
    const { page, complaints } = await open(api, PHONE)
    await button(page, 'Details of press.site.test').waitFor()
    await button(page, 'Add a tunnel').click()
    const found = page.getByRole('list', { name: 'Services found on this device' })
    await found.getByText(title).waitFor()
    const list = "document.querySelector('.found ul')"
    expect(await page.evaluate(`${list}.scrollWidth - ${list}.clientWidth`)).toBe(0)
    const submit = dialogButton(page, 'Add tunnel')
    const { y, height } = (await submit.boundingBox()) ?? expect.fail('no button')
    expect(y + height).toBeLessThanOrEqual(page.viewportSize()?.height ?? 0)

    await found.getByText(title).click()
    await dialogButton(page, 'Use door-bell-of-the-north.site.test').click()
    const name = field(page, 'Public name (optional)')
    expect(await name.inputValue()).toBe('door-bell-of-the-north.site.test')
    expect(await page.getByText('Use door-bell').count()).toBe(0)
    await name.fill('press.site.test')
    await submit.click()
    const taken = page.getByText(/^A tunnel of this device has this name already\. /)
    await taken.waitFor()
    // Between the field and its hint.
    expect(await page.evaluate("document.querySelector('.field-error').previousSibling.name")).toBe(
      'domain',
    )
    await expectGoodView(page, 'device-add-taken')
    await name.fill('door.site.test')
    await page.getByRole('dialog').getByText('Traffic policy').first().click()
    await field(page, 'Traffic policy').fill('on_http_request: [{actions: [{type: denny}]}]')
    await submit.click()
    await page
      .getByText('on_http_request[0].actions[0].type: Unknown action denny: did you mean deny?')
      .waitFor()
    await expectGoodView(page, 'device-add-policy')
    expect(complaints).toEqual([])
  })

  it('shows the traffic of a tunnel', async () => {
    const api = await startApi()
    await add(api, 'cam.site.test', NO_SERVICE)
    let requests = 1_000
    api.service.connector.onTraffic = async () => {
      requests += 204
      return [{ domain: 'cam.site.test', requests, errors: 3, bytesIn: 900, bytesOut: 5_400_000 }]
    }
    const { page, complaints } = await openPage(PHONE, `http://127.0.0.1:${api.port}`)
    await page.goto(signedIn(api))
    await page.getByText(/^[\d,]{5} requests, 3 failed$/).waitFor()
    await button(page, 'Details of cam.site.test').click()
    await page.getByText('5.4 MB').waitFor()
    await page.getByText('requests in the last minute').waitFor()
    await page.getByText('1,612 requests, 3 failed').waitFor()
    await expectGoodView(page, 'device-traffic')
    expect(complaints).toEqual([])
  })

  it('copies an address and a command, also without the clipboard API of the browser', async () => {
    const api = await startApi()
    await add(api, 'cam.site.test', NO_SERVICE)
    const { page } = await openPage(DESK, `http://127.0.0.1:${api.port}`)
    // As over plain HTTP in the network.
    await page.addInitScript(
      "globalThis.clipboard = navigator.clipboard; Object.defineProperty(navigator, 'clipboard', { value: undefined })",
    )
    await page.goto(signedIn(api))
    await button(page, 'Details of cam.site.test').click()
    const url = 'https://cam.site.test:8443'
    for (const text of [url, `curl ${url}`]) {
      await button(page, `Copy ${text}`).click()
      await button(page, `Copied ${text}`).getByText('Copied').waitFor()
      await page.getByRole('status').getByText('Copied.').waitFor()
      expect(await page.evaluate('clipboard.readText()')).toBe(text)
    }
  })

  it('shows old data with its age, and connects again by itself', async () => {
    const api = await startApi()
    await add(api, 'cam.site.test', NO_SERVICE)
    const { page } = await openPage(PHONE, `http://127.0.0.1:${api.port}`)
    await page.clock.install()
    await page.goto(signedIn(api))
    await button(page, 'Details of cam.site.test').waitFor()
    const lost = page.getByRole('alert')
    await page.route('**/page/api/**', (route) => route.abort())
    await page.clock.runFor(4_000)
    await lost.getByText('Not connected to the agent. Data is less than a minute old.').waitFor()
    expect(await page.locator('.is-stale').count()).toBe(1)
    await page.clock.runFor(121_000)
    await lost.getByText('Not connected to the agent. Data is 2 min old.').waitFor()
    expect(await title(page)).toBe(`${hostname()}: not connected`)
    expect(await page.locator('.is-stale').count()).toBe(1)
    expect(await names(page)).toEqual(['cam.site.test:8443'])
    await page.unroute('**/page/api/**')
    await page.clock.runFor(4_000)
    await lost.waitFor({ state: 'detached' })
    expect(await page.locator('.is-stale').count()).toBe(0)
    await expect.poll(() => title(page)).toBe(`${hostname()}: 1 problem`)
  })
})

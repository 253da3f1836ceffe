import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { hasChromium, openPage } from '../helpers/chromium.ts'
import { agentWithEndpoint } from '../helpers/connected-agent.ts'
import { button, DESK, goTo, line, signIn } from '../helpers/console-page.ts'
import { startManagementApi } from '../helpers/management-client.ts'
import { frames, type Step, watchPage } from '../helpers/page-figures.ts'

type Api = Awaited<ReturnType<typeof startManagementApi>>

const COUNT = 1_000
/** A page of 50 lines with the details of one item needs less. */
const MAX_NODES = 1_000
const numbers = Array.from({ length: COUNT }, (_, at) => at + 1)

/** By view: a search with one result, an order, and where the list comes from when it refreshes itself. */
const VIEWS = [
  { view: 'Devices', one: 'press-777', sortBy: 'Problems first', refresh: 'device_rows' },
  {
    view: 'Endpoints',
    one: 'https://press-777.site.test',
    sortBy: 'Requests',
    refresh: 'endpoint_rows',
  },
  { view: 'Domains', one: '*.hall-777.test', sortBy: 'Name' },
  { view: 'Authtokens', one: 'Door 777', sortBy: 'Name' },
] as const

/** Devices with an endpoint each, domains and authtokens. */
async function createAll({ agents, devices, clock, call }: Api) {
  for (const n of numbers) {
    const { agent, traffic } = agentWithEndpoint(String(n))
    const session = { ...agent, identity: { ...agent.identity, deviceId: `d${n}` } }
    traffic.requests = n % 97
    agents.push(session)
    devices.came(session)
    if (n % 10 === 0) devices.went(session, 'silent', [])
  }
  await clock.advance(1_000)
  for (let from = 0; from < COUNT; from += 50) {
    const some = numbers.slice(from, from + 50)
    const requests = some.flatMap((n) => [
      { path: 'reserved_domains', body: { domain: `*.hall-${n}.test` } },
      { path: 'credentials', body: { description: `Door ${n}`, acl: [`bind:d${n}.site.test`] } },
    ])
    const { body } = await call('POST', '/batch', { body: { requests } })
    expect(new Set(body.responses.map((it: { status: number }) => it.status))).toEqual(
      new Set([201]),
    )
  }
}

/** Text below the list, such as `1 to 50 of 1,000`. */
const range = (page: Page, text: string | RegExp) =>
  page.locator('.pager').getByRole('status').getByText(text).waitFor()

/** More than other tests: 3,000 items are created, and 30 steps walked. */
const OPTIONS = { timeout: 600_000 }

describe.runIf(hasChromium)('lists of a thousand items in Chromium', () => {
  it('stay small, and are searched and sorted without a request', OPTIONS, async () => {
    const api = await startManagementApi()
    await createAll(api)
    const { page, complaints } = await openPage(DESK, api.baseUrl)
    await signIn(page, api.key)
    await goTo(page, 'API keys')
    await line(page, 'test').waitFor()
    const step = await watchPage(page)
    await step('idle', () => frames(page, 120))
    const steps: Step[] = []
    for (const { view, one, sortBy, ...more } of VIEWS) {
      const during = async (name: string, run: () => Promise<unknown>) =>
        steps.push(await step(`${view}: ${name}`, run))
      await step(`${view}: open`, async () => {
        await goTo(page, view)
        await range(page, `1 to 50 of ${view === 'Endpoints' ? '900' : '1,000'}`)
      })
      await during('sort', () => page.getByLabel('Sort by').selectOption(sortBy))
      await during('next page', () => button(page, 'Next').click())
      await during('previous page', () => button(page, 'Previous').click())
      await page.getByLabel('Search').focus()
      await during('type a search', async () => {
        await page.keyboard.type(one)
        await range(page, /^1 shown/)
      })
      await during('clear the search', async () => {
        await page.keyboard.press('ControlOrMeta+A')
        await page.keyboard.press('Delete')
        await range(page, /^1 to 50/)
      })
      await step(`${view}: details`, async () => {
        await page.locator('.item-line').first().click()
        await page.locator('.item-below > div').waitFor()
      })
      if ('refresh' in more) {
        await step(`${view}: refresh`, async () => {
          await page.waitForResponse((it) => it.url().endsWith(more.refresh))
        })
      }
      expect(await page.locator('.item').count()).toBe(50)
    }
    const asked = steps.filter(({ requests }) => requests.length > 0)
    expect(asked).toEqual([])
    expect(Math.max(...steps.map(({ nodes }) => nodes))).toBeLessThan(MAX_NODES)
    expect(complaints).toEqual([])
  })
})

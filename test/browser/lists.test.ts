import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { hasChromium, openPage } from '../helpers/chromium.ts'
import { agentWithEndpoint } from '../helpers/connected-agent.ts'
import {
  button,
  DESK,
  expectGoodView,
  goTo,
  line,
  openLine,
  PHONE,
  signIn,
} from '../helpers/console-page.ts'
import { makeCertificate } from '../helpers/made-certificate.ts'
import { startManagementApi } from '../helpers/management-client.ts'

type Api = Awaited<ReturnType<typeof startManagementApi>>

interface ListCase {
  readonly view: string
  /** Creates items. */
  readonly make: (api: Api) => Promise<unknown>
  /** How the range of the list reads. */
  readonly range: string
  /** Names of the first page after `sortBy`. */
  readonly sortBy: string
  readonly sorted: readonly string[]
  /** A search, and the only name that it finds. */
  readonly search: string
  readonly found: string
  /** A text that only the details have. */
  readonly detail: string | RegExp
}

const DAY_MS = 86_400_000
const MANY = 60
const numbers = (count: number) => Array.from({ length: count }, (_, at) => at + 1)

async function create(api: Api, path: string, bodies: readonly object[]) {
  for (const body of bodies) {
    const { status, body: answer } = await api.call('POST', path, { body })
    expect([status, answer?.msg]).toEqual([201, undefined])
  }
}

async function bringOnline({ online }: Api) {
  for (const n of numbers(MANY)) await online(agentWithEndpoint(String(n)).agent)
}

async function uploadCertificates(api: Api) {
  for (const [name, days] of [
    ['b.test', 5],
    ['a.test', 90],
    ['c.test', 40],
  ] as const) {
    const { certPem, keyPem } = await makeCertificate({
      ...{ names: [name], commonName: `CA of ${name}` },
      ...{ notBefore: api.clock.now() - DAY_MS, notAfter: api.clock.now() + days * DAY_MS },
    })
    const body = { certificate_pem: certPem, private_key_pem: keyPem }
    await create(api, '/tls_certificates', [body])
  }
}

const FIRST_THREE = (of: (n: number) => string) => [of(1), of(2), of(3)]

/** By view. Lists of many have two pages. */
const CASES: readonly ListCase[] = [
  {
    view: 'Devices',
    make: bringOnline,
    range: '1 to 50 of 60',
    ...{ sortBy: 'Name', sorted: FIRST_THREE((n) => `press-${n}`) },
    ...{ search: 'press-37', found: 'press-37' },
    detail: 'linux · arm64',
  },
  {
    view: 'Endpoints',
    make: bringOnline,
    range: '1 to 50 of 60',
    ...{ sortBy: 'URL', sorted: FIRST_THREE((n) => `https://press-${n}.site.test`) },
    ...{ search: 'press-37.', found: 'https://press-37.site.test' },
    detail: 'Device press-37. Open since',
  },
  {
    view: 'Invitations',
    make: (api) =>
      create(
        api,
        '/invites',
        numbers(MANY).map((n) => ({ name: `cam-${n}`, tags: [`hall-${n}`], acl: ['bind:a.test'] })),
      ),
    range: '1 to 50 of 60',
    ...{ sortBy: 'Name', sorted: FIRST_THREE((n) => `cam-${n}`) },
    ...{ search: 'hall-37', found: 'cam-37' },
    detail: 'hall-37',
  },
  {
    view: 'Domains',
    make: (api) =>
      create(
        api,
        '/reserved_domains',
        numbers(MANY).map((n) => ({ domain: `*.hall-${n}.test`, description: `Hall ${n}` })),
      ),
    range: '1 to 50 of 60',
    ...{ sortBy: 'Name', sorted: FIRST_THREE((n) => `*.hall-${n}.test`) },
    ...{ search: 'HALL 37', found: '*.hall-37.test' },
    detail: /\.cname\.gateway\.test$/,
  },
  {
    view: 'Certificates',
    make: uploadCertificates,
    range: '3 shown',
    ...{ sortBy: 'Expires first', sorted: ['b.test', 'c.test', 'a.test'] },
    ...{ search: 'ca of a.test', found: 'a.test' },
    detail: /\(in 90 days\)/,
  },
  {
    view: 'Addresses',
    make: (api) =>
      create(
        api,
        '/reserved_addrs',
        [2, 1, 3].map((n) => ({ addr: `gw.site.test:2000${n}`, description: `Press-${n}` })),
      ),
    range: '3 shown',
    ...{ sortBy: 'Name', sorted: FIRST_THREE((n) => `gw.site.test:2000${n}`) },
    ...{ search: 'PRESS-2', found: 'gw.site.test:20002' },
    detail: 'Press-2',
  },
  {
    view: 'Error pages',
    make: (api) =>
      create(api, '/error_pages', [
        { kind: 'offline', html: '<h1>Gone</h1>', description: 'by the office' },
        { kind: 'busy', html: '<h1>Busy</h1>' },
        { kind: 'unknown', html: '<h1>Where</h1>' },
      ]),
    range: '3 shown',
    ...{ sortBy: 'Name', sorted: ['Device offline', 'Too busy', 'Unknown address'] },
    ...{ search: 'office', found: 'Device offline' },
    detail: 'by the office',
  },
  {
    view: 'Bot users',
    make: (api) =>
      create(
        api,
        '/bot_users',
        numbers(MANY).map((n) => ({ name: `Press ${n}` })),
      ),
    range: '1 to 50 of 60',
    ...{ sortBy: 'Name', sorted: FIRST_THREE((n) => `Press ${n}`) },
    ...{ search: 'press 37', found: 'Press 37' },
    detail: '0 of 16,777,216',
  },
  {
    view: 'Authtokens',
    make: (api) =>
      create(
        api,
        '/credentials',
        numbers(MANY).map((n) => ({ description: `Door ${n}`, acl: [`bind:d${n}.site.test`] })),
      ),
    range: '1 to 50 of 60',
    ...{ sortBy: 'Name', sorted: FIRST_THREE((n) => `Door ${n}`) },
    ...{ search: 'd37.site', found: 'Door 37' },
    detail: /^cr_/,
  },
  {
    view: 'API keys',
    make: (api) =>
      create(
        api,
        '/api_keys',
        numbers(MANY).map((n) => ({ name: `shift ${n}` })),
      ),
    // The key of this test too.
    range: '1 to 50 of 61',
    ...{ sortBy: 'Name', sorted: FIRST_THREE((n) => `shift ${n}`) },
    ...{ search: 'shift 37', found: 'shift 37' },
    detail: /^ak_/,
  },
  {
    view: 'Secrets',
    make: async (api) => {
      await create(api, '/vaults', [{ name: 'site' }])
      const secrets = numbers(MANY).map((n) => ({ vault_name: 'site', name: `key-${n}` }))
      await create(
        api,
        '/vault_secrets',
        secrets.map((it) => ({ ...it, value: 'hunter2' })),
      )
    },
    range: '1 to 50 of 60',
    ...{ sortBy: 'Name', sorted: FIRST_THREE((n) => `site/key-${n}`) },
    ...{ search: 'key-37', found: 'site/key-37' },
    detail: "secrets.get('site', 'key-37')",
  },
  {
    view: 'Webhooks',
    make: (api) =>
      create(
        api,
        '/webhook_endpoints',
        ['b', 'a', 'c'].map((name) => ({
          url: `https://${name}.test/x`,
          description: `pager-${name}`,
        })),
      ),
    range: '3 shown',
    ...{ sortBy: 'Name', sorted: ['a', 'b', 'c'].map((name) => `https://${name}.test/x`) },
    ...{ search: 'PAGER-B', found: 'https://b.test/x' },
    detail: /^wh_/,
  },
]

const names = (page: Page) => page.locator('.item-name').allTextContents()
const status = (page: Page) => page.locator('.pager').getByRole('status')

describe.runIf(hasChromium)('lists of the console in Chromium', () => {
  it.each(CASES)('search, sort, turn pages and show details: $view', async (list) => {
    const api = await startManagementApi({ mayDial: () => true })
    await list.make(api)
    const { page, complaints } = await openPage(DESK, api.baseUrl)
    await page.clock.setFixedTime(api.clock.now())
    await signIn(page, api.key)
    await goTo(page, list.view)
    await status(page).getByText(list.range, { exact: true }).waitFor()
    await page.getByLabel('Sort by').selectOption(list.sortBy)
    await expect.poll(async () => (await names(page)).slice(0, 3)).toEqual(list.sorted)
    if (list.range.startsWith('1 to 50')) {
      expect(await names(page)).toHaveLength(50)
      await button(page, 'Next').click()
      await status(page)
        .getByText(/^51 to 6[01] of/)
        .waitFor()
      expect(await names(page)).not.toContain(list.sorted[0])
      await button(page, 'Previous').click()
      await status(page).getByText(list.range, { exact: true }).waitFor()
    }
    await page.getByLabel('Search').fill(list.search)
    await expect.poll(() => names(page)).toEqual([list.found])
    const item = await openLine(page, list.found)
    await item.locator('.item-below').getByText(list.detail).first().waitFor()
    await expectGoodView(page, `list-${list.view.replace(' ', '-').toLowerCase()}`)
    await line(page, list.found).press('Enter')
    expect(await line(page, list.found).getAttribute('aria-expanded')).toBe('false')
    expect(await item.locator('.item-below > *').count()).toBe(0)
    await page.getByLabel('Search').fill('nothing like it')
    await page.getByText(`No ${nounsOf(list.view)} match the filter.`).waitFor()
    expect(complaints).toEqual([])
  })

  it('show data on the first screen of a phone, with targets of 44 px', async () => {
    const api = await startManagementApi()
    await create(
      api,
      '/bot_users',
      numbers(MANY).map((n) => ({ name: `Press ${n}` })),
    )
    await bringOnline(api)
    const { page } = await openPage(PHONE, api.baseUrl)
    await signIn(page, api.key)
    for (const view of ['Devices', 'Endpoints', 'Bot users', 'Audit']) {
      await goTo(page, view)
      await page.locator('.item-line').nth(4).waitFor()
      // The fifth line ends above the navigation at the bottom.
      const fifth = await page.locator('.item-line').nth(4).boundingBox()
      const bar = await page.getByRole('navigation').boundingBox()
      expect((fifth?.y ?? 0) + (fifth?.height ?? 0), view).toBeLessThan(bar?.y ?? 0)
      expect(await page.getByLabel(view === 'Audit' ? 'Result' : 'Sort by').isVisible()).toBe(false)
      await button(page, 'Filter').click()
      expect(await page.getByLabel(view === 'Audit' ? 'Result' : 'Sort by').isVisible()).toBe(true)
      await page.locator('.item-line').first().click()
      await page.locator('.item-below > div').waitFor()
      expect(await smallTargets(page), view).toEqual([])
    }
  })

  it('find an ID by its start, not by a part that others have by chance', async () => {
    const api = await startManagementApi()
    await create(
      api,
      '/bot_users',
      numbers(3).map((n) => ({ name: `Press ${n}` })),
    )
    const { page } = await openPage(DESK, api.baseUrl)
    await signIn(page, api.key)
    await goTo(page, 'Bot users')
    const item = await openLine(page, 'Press 2')
    const id = (await item.locator('code').first().textContent()) ?? ''
    // Ids of the same second may differ in their last letter only.
    await page.getByLabel('Search').fill(id)
    await expect.poll(() => names(page)).toEqual(['Press 2'])
    await page.getByLabel('Search').fill(id.slice(10))
    await expect.poll(() => names(page)).toEqual([])
  })

  it('of more than 2,000 items are searched by the gateway', async () => {
    const { baseUrl, key, issuer } = await startManagementApi()
    const { id } = await issuer.createBotUser({ name: 'The Oldest' })
    await Promise.all(numbers(2_050).map((n) => issuer.createBotUser({ name: `press-${n}` })))
    const { page, complaints } = await openPage(DESK, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Bot users')
    await status(page).getByText('1 to 50 of 2,000+').waitFor()
    await page.getByLabel('Search').fill('oldest')
    await line(page, 'The Oldest').waitFor()
    expect(await names(page)).toEqual(['The Oldest'])
    // A part of an ID that the gateway found would leave gaps in the pages.
    const asked = page.waitForRequest((it) =>
      decodeURIComponent(it.url()).includes(id.slice(0, 20)),
    )
    await page.getByLabel('Search').fill(id.slice(0, 20))
    expect(decodeURIComponent((await asked).url())).toContain('obj.id.startsWith(')
    await line(page, 'The Oldest').waitFor()
    await page.getByLabel('Search').fill('')
    await status(page).getByText('1 to 50 of 2,000+').waitFor()
    expect(complaints).toEqual([])
  })

  it('without an end are loaded page by page, and go on after a failure', async () => {
    const api = await startManagementApi()
    await create(
      api,
      '/bot_users',
      numbers(110).map((n) => ({ name: `Press ${n}` })),
    )
    const { page } = await openPage(DESK, api.baseUrl)
    await signIn(page, api.key)
    await goTo(page, 'Audit')
    await status(page).getByText('1 to 50 of 100+').waitFor()
    await button(page, 'Next').click()
    await status(page).getByText('51 to 100 of 1').waitFor()
    await page.route('**/console/api/audit?before_id=*', (route) => route.abort())
    await button(page, 'Next').click()
    await page.getByRole('alert').getByText('The gateway does not answer.').waitFor()
    expect(await names(page)).toHaveLength(50)
    await page.unroute('**/console/api/audit?before_id=*')
    await button(page, 'Next').click()
    await status(page).getByText('101 to 111 of 111').waitFor()
    expect(await page.getByRole('alert').count()).toBe(0)
    await line(page, 'test created bot user Press 1').waitFor()
    expect(await button(page, 'Next').isDisabled()).toBe(true)
  })

  it('keep an item open, and the focus, when it is loaded again', async () => {
    const api = await startManagementApi()
    await create(api, '/bot_users', [{ name: 'Press 1' }, { name: 'Press 2' }])
    const { page } = await openPage(DESK, api.baseUrl)
    await signIn(page, api.key)
    await goTo(page, 'Bot users')
    const item = await openLine(page, 'Press 1')
    await item.getByRole('button', { name: 'Deactivate Press 1' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Deactivate' }).click()
    await item.getByRole('button', { name: 'Activate Press 1', exact: true }).waitFor()
    await line(page, 'Press 1').getByText('Inactive').waitFor()
    expect(await page.evaluate('document.activeElement.className')).toBe('item-line')
  })
})

const nounsOf = (view: string) => (view === 'API keys' ? view : view.toLowerCase())

/** Visible controls that are lower than 44 px, except links in a text. */
function smallTargets(page: Page): Promise<string[]> {
  return page.evaluate<string[]>(`
    [...document.querySelectorAll('button, select, input, summary, nav a')]
      .filter((it) => it.getClientRects().length > 0 && it.getBoundingClientRect().height < 44)
      .map((it) => it.outerHTML.slice(0, 80))`)
}

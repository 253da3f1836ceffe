import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { hasChromium, launchChromium, openPage } from '../helpers/chromium.ts'
import {
  button,
  dialogButton,
  expectGoodView,
  goTo,
  signIn,
  WIDTHS,
} from '../helpers/console-page.ts'
import { GatewayCluster } from '../helpers/gateway-cluster.ts'
import { managed } from '../helpers/managed-gateway.ts'
import { startManagementApi } from '../helpers/management-client.ts'
import { hasPostgres, TestPostgres } from '../helpers/postgres.ts'
import { bind, connectSdk } from '../helpers/running-gateway.ts'

const API = { host: '127.0.0.1', port: 0 }

describe.runIf(hasChromium && hasPostgres)('the nodes of the console', () => {
  let browser: Browser
  let postgres: TestPostgres
  beforeAll(async () => {
    browser = await launchChromium()
    postgres = await TestPostgres.shared()
  })
  afterAll(async () => {
    await browser?.close()
    await postgres?.remove()
  })

  it('show who serves how much, drain one, and forget it when it is gone', async () => {
    const cluster = GatewayCluster.open(await postgres.database())
    const one = await cluster.start({ apiListen: API })
    const two = await cluster.start({ authtoken: one.authtoken })
    const session = await connectSdk(one)
    for (const name of ['press', 'oven', 'lathe']) await bind(session, `${name}.site.test`)
    const { apiKey } = await managed(one)
    const baseUrl = `http://127.0.0.1:${one.addresses.api?.port}`
    const open = async (width: number) => {
      const { page, complaints } = await openPage(browser, width, baseUrl)
      await signIn(page, apiKey)
      await goTo(page, 'Nodes')
      await page.getByText('3 endpoints, 1 agent, 100 %').waitFor()
      return { page, complaints }
    }
    const pages = await Promise.all(WIDTHS.map(open))
    const expectGood = async (name: string) => {
      for (const { page } of pages) await expectGoodView(page, name)
    }
    for (const { page } of pages) {
      await expect.poll(() => page.getByText('Live', { exact: true }).count()).toBe(2)
    }
    // Both have the name of this machine.
    const drains = pages[0]?.page.getByRole('button', { name: /^Drain/ })
    const names = await drains?.evaluateAll((all) => all.map((it) => it.getAttribute('aria-label')))
    expect(new Set(names).size).toBe(2)
    expect(new Set(await pages[0]?.page.locator('.site-name').allTextContents()).size).toBe(2)
    await expectGood('nodes')
    const [{ page }] = pages as [(typeof pages)[number]]
    // The newest stands first: that is the one that has joined.
    await page
      .getByRole('button', { name: /^Drain/ })
      .first()
      .click()
    await dialogButton(page, 'Drain').click()
    for (const at of pages) {
      await at.page
        .getByText('Drained. You can stop this gateway without affecting visitors.')
        .waitFor()
    }
    await expectGood('nodes-draining')
    await page.getByRole('button', { name: /^Cancel drain/ }).click()
    await page.getByText('Draining', { exact: true }).waitFor({ state: 'detached' })
    await two.gateway.stop()
    for (const at of pages) await at.page.getByText('Stopped', { exact: true }).waitFor()
    await expectGood('nodes-gone')
    await page.getByRole('button', { name: /^Forget/ }).click()
    await dialogButton(page, 'Forget gateway').click()
    for (const at of pages) {
      await at.page.getByText('Stopped', { exact: true }).waitFor({ state: 'detached' })
      expect(await at.page.getByRole('button', { name: /^Forget/ }).count()).toBe(0)
    }
    for (const { complaints } of pages) expect(complaints).toEqual([])
  })

  it('are one without any button where a gateway is alone', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page, complaints } = await openPage(browser, 360, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Nodes')
    await page.getByText('Live', { exact: true }).waitFor()
    expect(await button(page, 'Drain').count()).toBe(0)
    await expectGoodView(page, 'nodes-alone')
    expect(complaints).toEqual([])
  })
})

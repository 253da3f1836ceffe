import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { hasChromium, openPage } from '../helpers/chromium.ts'
import {
  button,
  DESK,
  dialogButton,
  expectGoodView,
  goTo,
  PHONE,
  signIn,
} from '../helpers/console-page.ts'
import { GatewayCluster } from '../helpers/gateway-cluster.ts'
import { managed } from '../helpers/managed-gateway.ts'
import { startManagementApi } from '../helpers/management-client.ts'
import { hasPostgres, TestPostgres } from '../helpers/postgres.ts'
import { bind, connectSdk } from '../helpers/running-gateway.ts'

const API = { host: '127.0.0.1', port: 0 }

describe.runIf(hasChromium && hasPostgres)('the nodes of the console', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(async () => {
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
    const { page, complaints } = await openPage(DESK, baseUrl)
    await signIn(page, apiKey)
    await goTo(page, 'Nodes')
    await page.getByText('3 endpoints, 1 session, 100 %').waitFor()
    await expect.poll(() => page.getByText('Live', { exact: true }).count()).toBe(2)
    // Both have the name of this machine.
    const drains = page.getByRole('button', { name: /^Drain/ })
    const names = await drains.evaluateAll((all) => all.map((it) => it.getAttribute('aria-label')))
    expect(new Set(names).size).toBe(2)
    expect(new Set(await page.locator('.site-name').allTextContents()).size).toBe(2)
    await expectGoodView(page, 'nodes')
    // The newest stands first: that is the one that has joined.
    await page
      .getByRole('button', { name: /^Drain/ })
      .first()
      .click()
    await dialogButton(page, 'Drain').click()
    await page.getByText('Drained. You can stop this gateway without affecting visitors.').waitFor()
    await expectGoodView(page, 'nodes-draining')
    await page.getByRole('button', { name: /^Cancel drain/ }).click()
    await page.getByText('Draining', { exact: true }).waitFor({ state: 'detached' })
    await two.gateway.stop()
    await page.getByText('Stopped', { exact: true }).waitFor()
    await expectGoodView(page, 'nodes-gone')
    await page.getByRole('button', { name: /^Forget/ }).click()
    await dialogButton(page, 'Forget gateway').click()
    await page.getByText('Stopped', { exact: true }).waitFor({ state: 'detached' })
    expect(await page.getByRole('button', { name: /^Forget/ }).count()).toBe(0)
    expect(complaints).toEqual([])
  })

  it('are one without any button where a gateway is alone', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page, complaints } = await openPage(PHONE, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Nodes')
    await page.getByText('Live', { exact: true }).waitFor()
    expect(await button(page, 'Drain').count()).toBe(0)
    await expectGoodView(page, 'nodes-alone')
    expect(complaints).toEqual([])
  })
})

import { describe, expect, it } from 'vitest'
import { hasChromium, openPage } from '../helpers/chromium.ts'
import {
  DESK,
  dialogButton,
  expectGoodView,
  field,
  goTo,
  openLine,
  PHONE,
  signIn,
} from '../helpers/console-page.ts'
import { startManagementApi } from '../helpers/management-client.ts'

describe.runIf(hasChromium)('accounts in the console in Chromium', () => {
  it('have quotas that its owner changes', async () => {
    const { baseUrl, key, call } = await startManagementApi()
    const { page } = await openPage(DESK, baseUrl)
    const { body: user } = await call('POST', '/bot_users', { body: { name: 'press' } })
    const quotas = async () => (await call('GET', `/bot_users/${user.id}`)).body.quotas
    await call('POST', '/reserved_domains', {
      body: { domain: 'cam.press.test', owner_id: user.id },
    })
    await signIn(page, key)
    await goTo(page, 'Bot users')
    await openLine(page, 'press')
    await page.getByText('1 of 2,000', { exact: true }).waitFor()
    const edit = async (values: Record<string, string>) => {
      await page.getByRole('button', { name: /^Quotas/ }).click()
      for (const [label, value] of Object.entries(values)) await field(page, label).fill(value)
      await expectGoodView(page, 'quotas')
      await dialogButton(page, 'Save').click()
    }
    await edit({ Domains: '1', 'Policy bytes': '4096' })
    await page.getByText('1 of 1', { exact: true }).waitFor()
    await page.getByText('0 of 4,096').waitFor()
    expect(await quotas()).toMatchObject({ domains: 1, policy_bytes: 4_096, keys: 200 })
    // No number is no default.
    await edit({ Domains: '2O' })
    await page.getByRole('dialog').getByRole('alert').waitFor()
    expect((await quotas()).domains).toBe(1)
    await field(page, 'Domains').fill('')
    await dialogButton(page, 'Save').click()
    await page.getByText('1 of 2,000', { exact: true }).waitFor()
    expect((await quotas()).domains).toBe(2_000)
  })

  it('see which ACL rules of their authtokens give no names', async () => {
    const { baseUrl, key, call } = await startManagementApi()
    const { page, complaints } = await openPage(PHONE, baseUrl)
    const { body: user } = await call('POST', '/bot_users', { body: { name: 'press' } })
    await call('POST', '/reserved_domains', { body: { domain: '*.site.press.test' } })
    const acl = ['bind:*.press.test', 'bind:cam.site.press.test']
    await call('POST', '/credentials', { body: { description: 'Hall', acl, owner_id: user.id } })
    await signIn(page, key)
    await goTo(page, 'Authtokens')
    await openLine(page, 'Hall')
    await page.getByText('bind:*.press.test: The rule gives no names').waitFor()
    expect(await page.getByText('The rule gives no names').count()).toBe(1)
    await expectGoodView(page, 'authtokens-without-effect')
    expect(complaints).toEqual([])
  })
})

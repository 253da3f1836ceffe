import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { DEFAULT_PAGE_POLICY, defaultPage } from '../../src/gateway/error-pages/default-page.ts'
import { ERROR_KINDS, KIND_TEXTS } from '../../src/gateway/error-pages/error-kind.ts'
import { hasChromium, openPage } from '../helpers/chromium.ts'
import {
  button,
  DESK,
  dialogButton,
  expectGoodView,
  field,
  goTo,
  line,
  openLine,
  PHONE,
  signIn,
} from '../helpers/console-page.ts'
import { startManagementApi } from '../helpers/management-client.ts'

const HOST = 'garage-camera.a-customer-with-a-long-name.tunnels.example.com'

const STYLE_OF = (selector: string, property: string) =>
  `getComputedStyle(document.querySelector('${selector}')).${property}`

/** Serves the page of the gateway for each kind, with its content policy. */
async function servePages(): Promise<string> {
  const server = createServer(({ url = '' }, response) => {
    const kind = ERROR_KINDS.find((it) => url === `/${it}`)
    response.setHeader('content-security-policy', DEFAULT_PAGE_POLICY)
    response.setHeader('content-type', 'text/html; charset=utf-8')
    if (!kind) {
      response.end()
      return
    }
    const { title, message = 'Your IP address is not allowed at this endpoint.' } = KIND_TEXTS[kind]
    const about = { title, message, host: HOST, requestId: '3f9a01c2d4e5' }
    response.end(
      defaultPage(kind, { ...about, status: 503, code: 'ERR_GATEWAY_AWAY', retryAfterS: 5 }),
    )
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

describe.runIf(hasChromium)('error pages in Chromium', () => {
  it('of the gateway fit a phone and a desk, in light and dark, with their style', async () => {
    const baseUrl = await servePages()
    for (const width of [PHONE, DESK]) {
      const { page, complaints } = await openPage(width, baseUrl)
      for (const kind of ERROR_KINDS) {
        await page.goto(`/${kind}`)
        expect(await page.evaluate<string>(STYLE_OF('main', 'maxWidth'))).toBe('528px')
        await expectGoodView(page, `error-page-${kind}`)
      }
      expect(complaints).toEqual([])
    }
  })

  it('of their own are made in the console, with a preview that runs no script', async () => {
    const { baseUrl, key, call } = await startManagementApi()
    await call('POST', '/reserved_domains', { body: { domain: '*.cams.test' } })
    const { page, complaints } = await openPage(DESK, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Error pages')
    await button(page, 'Create an error page').click()
    await expectGoodView(page, 'error-pages-create')
    const script = '<script>document.querySelector("h1").textContent = parent.origin</script>'
    await field(page, 'HTML').fill(
      `<style>h1 { color: rgb(1, 2, 3) }</style><h1>Gone: {{host}}</h1>${script}`,
    )
    await dialogButton(page, 'Preview').click()
    const shown = page.frameLocator('iframe[title=Preview]').locator('h1')
    await shown.getByText('Gone: camera.example.com').waitFor()
    const frame = page.frame({ name: 'error-page-preview' }) ?? expect.fail('no frame')
    expect(await frame.evaluate<string>(STYLE_OF('h1', 'color'))).toBe('rgb(1, 2, 3)')
    await expectGoodView(page, 'error-pages-preview')
    // A script would have asked for the parent, which a sandbox without an origin may not have.
    expect(complaints.filter((text) => !/script/i.test(text))).toEqual([])
    await dialogButton(page, 'Create').click()
    await line(page, 'Device offline').getByText('*.cams.test').waitFor()
    await expectGoodView(page, 'error-pages')
    const { error_pages: made } = (await call('GET', '/error_pages')).body
    expect(made).toMatchObject([{ kind: 'offline', in_use: true }])
    await openLine(page, 'Device offline')
    await button(page, 'Change Device offline, *.cams.test').click()
    await expect.poll(() => field(page, 'HTML').inputValue()).toContain('Gone: {{host}}')
  })

  it('that are not valid are refused with line and column', async () => {
    const { baseUrl, key } = await startManagementApi()
    const { page } = await openPage(PHONE, baseUrl)
    await signIn(page, key)
    await page.goto('/console/#/error-pages')
    await button(page, 'Create an error page').click()
    await field(page, 'HTML').fill('<p>\n{{upstream}}')
    await dialogButton(page, 'Preview').click()
    const problem = 'Line 2, column 1: {{upstream}} is unknown'
    await page.frameLocator('iframe[title=Preview]').getByText(problem).waitFor()
    await dialogButton(page, 'Create').click()
    await page.getByRole('dialog').getByRole('alert').getByText(problem).waitFor()
  })
})

import { describe, expect, it, onTestFinished } from 'vitest'
import { hasChromium, launchChromium } from '../helpers/chromium.ts'
import { forward } from '../helpers/device-sdk.ts'
import { connectSdk, startGateway } from '../helpers/running-gateway.ts'
import { startWeakService, type Weakness } from '../helpers/weak-service.ts'

const CONNECTIONS = 6
const FILES = 40
const HOST = 'cam.site.test'
const PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
const files = Array.from({ length: FILES }, (_, at) => `/file-${at}.svg`)
const PAGE = `<!doctype html><title>camera</title>${files.map((file) => `<img src="${file}">`).join('')}`
const isWeak: readonly Weakness[] = ['refuses', 'closes']

describe.runIf(hasChromium)('a page with 40 files on a device that takes 6 connections', () => {
  it.each(isWeak)('comes whole over HTTP/2 when the device %s the next', async (weakness) => {
    const running = await startGateway()
    const service = await startWeakService(CONNECTIONS, weakness, ({ url }, response) => {
      if (url === '/') response.setHeader('content-type', 'text/html').end(PAGE)
      else {
        response.setHeader('content-type', 'image/svg+xml')
        setTimeout(() => response.end(PICTURE), 20)
      }
    })
    const sdk = await connectSdk(running)
    await forward(sdk, service.url, { domain: HOST })
    const browser = await launchChromium([`--host-resolver-rules=MAP ${HOST} 127.0.0.1`])
    onTestFinished(() => browser.close())
    const context = await browser.newContext({ ignoreHTTPSErrors: true })
    const page = await context.newPage()
    const statuses = new Map<string, number>()
    page.on('response', (response) => {
      statuses.set(new URL(response.url()).pathname, response.status())
    })
    await page.goto(`https://${HOST}:${running.addresses.https.port}/`, { timeout: 60_000 })
    expect(files.filter((file) => statuses.get(file) !== 200)).toEqual([])
    const protocols = await page.evaluate(
      "performance.getEntriesByType('resource').map((entry) => entry.nextHopProtocol)",
    )
    expect(new Set(protocols as string[])).toEqual(new Set(['h2']))
    expect(service.most()).toBe(CONNECTIONS)
  })
})

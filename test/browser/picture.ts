/**
 * `npm run picture`: runs agent and gateway with tunnels to three services, one of which is down, signs in
 * at the device page, and puts what it shows into `docs/device-page.png`.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { launchChromium } from '../helpers/chromium.ts'
import { ROOT } from '../helpers/document-part.ts'
import { Program } from '../helpers/program.ts'

const PICTURE = join(ROOT, 'docs/device-page.png')
const TUNNELS = ['press', 'camera', 'door']

const folder = mkdtempSync(join(tmpdir(), 'device-agent-picture-'))
const services = createServer((_request, response) => response.end('hello'))
await new Promise<void>((resolve) => services.listen(0, '127.0.0.1', resolve))
const { port } = services.address() as AddressInfo
const program = new Program({ args: ['up'], cwd: folder })
const browser = await launchChromium()
try {
  const api = await agentApi()
  const token = readFileSync(join(folder, 'data/api-token'), 'utf8').trim()
  for (const name of TUNNELS) {
    const tunnel = {
      protocol: 'http',
      // Nothing listens on port 9.
      forwards_to: `localhost:${name === 'press' ? 9 : port}`,
      domain: `${name}.site.localhost`,
    }
    const answer = await fetch(`${api}/tunnels`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify(tunnel),
    })
    if (!answer.ok) throw new Error(await answer.text())
  }
  const page = await browser.newPage({ viewport: { width: 1080, height: 560 } })
  await page.goto(`${api}/page/`)
  await page.getByText('Use an API token instead').click()
  await page.getByLabel('API token').fill(token)
  await page.getByRole('button', { name: 'Sign in with the token' }).click()
  await page.getByText('service down', { exact: true }).first().waitFor()
  await page.getByText('working', { exact: true }).nth(1).waitFor()
  await page.screenshot({ path: PICTURE })
} finally {
  await browser.close()
  await program.end()
  services.close()
  rmSync(folder, { recursive: true, force: true })
}

/** Where the welcome of `up` says that the agent listens. */
async function agentApi(): Promise<string> {
  let text = ''
  for await (const part of program.child.stdout ?? []) {
    text += part
    const address = /agent API +(http:\/\/[\d.:]+)/.exec(text)?.[1]
    if (address && text.includes('Tunnels are stored')) return address
  }
  throw new Error(`ended before it was ready: ${program.stderr}`)
}

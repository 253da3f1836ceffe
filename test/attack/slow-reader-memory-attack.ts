import { setTimeout as sleep } from 'node:timers/promises'
import { row } from '../helpers/trials.ts'
import type { Attack } from './attack.ts'
import { ATTACKED, type AttackSite, BESIDE, BYSTANDER, FILE_BYTES } from './attack-site.ts'
import { linkRow } from './probes.ts'

const BUDGET_MB = 24
/** Beside the budget: garbage, and what hundreds of connections cost that hold nothing. */
const MARGIN_MB = 48
const ADDRESSES = ['127.0.0.2', '127.0.0.3', '127.0.0.4', '127.0.0.5', '127.0.0.6', '127.0.0.7']
const READERS = 600
const DOWNLOADS = 5

export const attack: Attack = {
  name: 'slow-reader-memory',
  what: '600 readers from six addresses take nothing; what the gateway holds for them is bounded',
  env: { GATEWAY_BUFFER_MB: String(BUDGET_MB) },
  async run(site) {
    const { link } = await site.status()
    // The first download warms the engine up.
    await download(site, ATTACKED)
    const before = site.gatewayMb
    for (let count = 0; count < READERS; count += 1) {
      const host = count % 2 === 0 ? ATTACKED : BESIDE
      site.request(host, '/file', ADDRESSES[count % ADDRESSES.length] ?? '')
      await sleep(5)
    }
    let most = before
    const watch = setInterval(() => {
      most = Math.max(most, site.gatewayMb)
    }, 100)
    let whole = 0
    for (let count = 0; count < DOWNLOADS; count += 1) {
      if ((await download(site, BESIDE)) === FILE_BYTES) whole += 1
      await sleep(1_000)
    }
    clearInterval(watch)
    const grown = most - before
    const bar = BUDGET_MB + MARGIN_MB
    return [
      row('memory of the gateway', `+${grown.toFixed(0)} MB`, `< +${bar} MB`, grown < bar),
      row('downloads of others', `${whole} whole`, `${DOWNLOADS} whole`, whole === DOWNLOADS),
      await linkRow(site, link.since),
    ]
  },
}

/** Bytes of the file that came. */
async function download(site: AttackSite, host: string): Promise<number> {
  const { port } = site.ingress
  const { get } = await import('node:http')
  return new Promise((resolve) => {
    const options = { host: '127.0.0.1', port, localAddress: BYSTANDER, agent: false }
    let bytes = 0
    get({ ...options, path: '/file', headers: { host } }, (response) => {
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length
      })
      response.on('close', () => resolve(response.statusCode === 200 ? bytes : 0))
      response.on('error', () => {})
    }).on('error', () => resolve(0))
  })
}

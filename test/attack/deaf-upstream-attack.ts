import { setTimeout as sleep } from 'node:timers/promises'
import type { Attack } from './attack.ts'
import { createDeafService } from './attack-site.ts'
import { linkRow, probeOthers } from './probes.ts'

const DEAF = 'deaf.site.localhost'
const REQUESTS = 660
const ADDRESSES = ['127.0.0.2', '127.0.0.3', '127.0.0.4']

export const attack: Attack = {
  name: 'deaf-upstream',
  what: '660 requests, each given up soon, to a service that does not notice that',
  async run(site) {
    await site.tunnel(DEAF, await site.serve(createDeafService()))
    const { link } = await site.status()
    for (let count = 0; count < REQUESTS; count += 1) {
      const address = ADDRESSES[count % ADDRESSES.length] ?? ''
      const socket = site.request(DEAF, '/', address)
      setTimeout(() => socket.destroy(), 500)
      await sleep(5)
    }
    await sleep(1_000)
    const rows = await probeOthers(site)
    rows.push(await linkRow(site, link.since))
    return rows
  },
}

import { setTimeout as sleep } from 'node:timers/promises'
import type { Attack } from './attack.ts'
import { ATTACKED } from './attack-site.ts'
import { linkRow, probeOthers } from './probes.ts'

const REQUESTS = 500
const ADDRESS = '127.0.0.2'

export const attack: Attack = {
  name: 'hanging-requests',
  what: '500 requests that the service never answers, all from one address',
  async run(site) {
    const { link } = await site.status()
    for (let count = 0; count < REQUESTS; count += 1) site.request(ATTACKED, '/hang', ADDRESS)
    await sleep(2_000)
    const rows = await probeOthers(site)
    rows.push(...(await probeOthers(site, ADDRESS)), await linkRow(site, link.since))
    return rows
  },
}

import type { Attack } from './attack.ts'
import { ATTACKED } from './attack-site.ts'
import { linkRow, probeOthers } from './probes.ts'

const READERS = 470
const ADDRESS = '127.0.0.2'

export const attack: Attack = {
  name: 'trickle-readers',
  what: '470 readers of a 20 MB file take 2 kB/s each, all from one address',
  async run(site) {
    const { link } = await site.status()
    const readers = Array.from({ length: READERS }, () => site.request(ATTACKED, '/file', ADDRESS))
    const trickle = setInterval(() => {
      for (const reader of readers) reader.resume()
    }, 250)
    try {
      await site.calm()
      const rows = await probeOthers(site)
      rows.push(...(await probeOthers(site, ADDRESS)), await linkRow(site, link.since))
      return rows
    } finally {
      clearInterval(trickle)
    }
  },
}

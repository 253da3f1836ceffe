import { setTimeout as sleep } from 'node:timers/promises'
import type { Attack } from './attack.ts'
import { ATTACKED } from './attack-site.ts'
import { linkRow, probeOthers } from './probes.ts'

const ADDRESSES = ['127.0.0.2', '127.0.0.3', '127.0.0.4', '127.0.0.5', '127.0.0.6', '127.0.0.7']
const OPENS_PER_SECOND = 16
/** Until the streams are taken, and on while the probes look. */
const BEFORE_MS = 6_000

export const attack: Attack = {
  name: 'waves',
  what: '16 trickling downloads a second from each of six addresses, against one tunnel',
  async run(site) {
    const { link } = await site.status()
    const readers = new Set<ReturnType<typeof site.request>>()
    const open = setInterval(() => {
      for (const address of ADDRESSES) {
        const reader = site.request(ATTACKED, '/file', address)
        readers.add(reader)
        reader.once('close', () => readers.delete(reader))
      }
    }, 1_000 / OPENS_PER_SECOND)
    const trickle = setInterval(() => {
      for (const reader of readers) reader.resume()
    }, 500)
    try {
      await sleep(BEFORE_MS)
      await site.calm()
      const rows = await probeOthers(site)
      rows.push(await linkRow(site, link.since))
      return rows
    } finally {
      clearInterval(open)
      clearInterval(trickle)
    }
  },
}

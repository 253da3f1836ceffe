import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Attack } from './attack.ts'
import { FLOODED } from './flood-kinds.ts'
import { heldBy, leftRows, REPORTING_GATEWAY } from './gateway-memory.ts'

const CONNECTIONS = 1_400
const AFTER_MS = 30_000

export const attack: Attack = {
  name: 'held-connections',
  what: '1,400 TLS connections at once, held and closed, twice; what the second time adds, 30 s later',
  gateway: REPORTING_GATEWAY,
  async run(site) {
    const { gateway, ready } = site.site
    await site.tunnel(FLOODED, await site.serveWord())
    const hold = async (count: number) => {
      const words = [new URL(ready.ingress_https).port, ready.ca_cert, String(count)]
      const args = ['--import', 'tsx', join(import.meta.dirname, 'held-process.ts'), ...words]
      const child = spawn(process.execPath, args, {
        stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      })
      await once(child, 'message')
      const held = await heldBy(gateway)
      child.kill()
      await once(child, 'exit')
      await sleep(AFTER_MS)
      return held
    }
    const { rss } = await heldBy(gateway)
    await hold(CONNECTIONS)
    // The C library keeps for the next ones what the first ones needed, and gives nothing back.
    const before = await heldBy(gateway)
    const during = await hold(CONNECTIONS)
    return leftRows({ before, during, after: await heldBy(gateway), startRss: rss })
  },
}

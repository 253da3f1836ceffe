import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Attack } from './attack.ts'
import { FLOODED } from './flood-kinds.ts'
import { heldBy, leftRows, REPORTING_GATEWAY } from './gateway-memory.ts'

const CONNECTIONS = 10_000
/** Code is compiled and pools are filled before anything is compared. */
const FIRST_CONNECTIONS = 500
const AFTER_MS = 30_000

export const attack: Attack = {
  name: 'broken-connections',
  what: '10,000 connections that break a rule or break off; what is left of them 30 s later',
  gateway: REPORTING_GATEWAY,
  async run(site) {
    const { gateway, ready } = site.site
    await site.tunnel(FLOODED, await site.serveWord())
    const breakOff = (count: number) =>
      runBroken([new URL(ready.ingress_https).port, ready.ca_cert, String(count)])
    await breakOff(FIRST_CONNECTIONS)
    await sleep(AFTER_MS)
    const before = await heldBy(gateway)
    await breakOff(CONNECTIONS)
    await sleep(AFTER_MS)
    return leftRows({ before, after: await heldBy(gateway) })
  },
}

async function runBroken(words: readonly string[]): Promise<void> {
  const file = join(import.meta.dirname, 'broken-process.ts')
  const args = ['--import', 'tsx', file, ...words]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] })
  const [code] = await once(child, 'exit')
  if (code !== 0) throw new Error(`the attack ended with ${code}`)
}

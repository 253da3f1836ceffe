import { cpSync, mkdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { DEFAULT_TIMINGS } from '../../src/agent/timings.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { row, type TrialRow } from '../helpers/trials.ts'
import type { AlwaysOnSite } from './always-on-site.ts'
import { TIMES } from './planned.ts'
import { until } from './until.ts'

const WRONG_MS = 8_000
/** After which link and tunnel begin with the shortest pause again, and a second. */
const STABLE_MS = DEFAULT_TIMINGS.link.stableMs + 1_000
const WORST_MS = 15_000
/** What makes the gateway the same to those who connect, and nothing of what it knows. */
const IDENTITY = ['ca.pem', 'ca.key', 'server.pem']

/** Since the gateway was wrong, in ms. */
interface Outage {
  /** Until it was right again. */
  readonly wrongMs: number
  /** Until the first visitor was served. */
  readonly tookMs: number
}

/** A gateway that has lost its database, and has it back after a while. */
async function wipedDatabase(site: AlwaysOnSite): Promise<Outage> {
  const folder = join(site.folder, 'gateway')
  const aside = join(site.folder, 'gateway-aside')
  await site.gateway.end('SIGTERM')
  renameSync(folder, aside)
  mkdirSync(folder, { mode: 0o700 })
  for (const name of IDENTITY) cpSync(join(aside, name), join(folder, name))
  await site.gateway.startAgain()
  const since = performance.now()
  await sleep(WRONG_MS)
  await site.gateway.end('SIGKILL')
  rmSync(folder, { recursive: true })
  renameSync(aside, folder)
  await site.gateway.startAgain()
  return outageSince(site, since)
}

/** An authtoken that may not bind the tunnel for a while. */
async function narrowedAuthtoken(site: AlwaysOnSite): Promise<Outage> {
  const { credentials } = (await site.manage('GET', '/credentials')) as {
    credentials: { id: string; acl: string[] }[]
  }
  const allow = async (aclOf: (acl: string[]) => string[]) => {
    for (const { id, acl } of credentials) {
      await site.manage('PATCH', `/credentials/${id}`, { acl: aclOf(acl) })
    }
  }
  await allow(() => ['bind:elsewhere.site.localhost'])
  const since = performance.now()
  await sleep(WRONG_MS)
  await allow((acl) => acl)
  return outageSince(site, since)
}

async function outageSince(site: AlwaysOnSite, since: number): Promise<Outage> {
  const wrongMs = performance.now() - since
  const ingress = site.ready.ingress_http
  await until('visitors are served', async () => {
    const answer = await publicRequest({ ingress, host: site.host(0) }).catch(() => undefined)
    return answer?.status === 200
  })
  return { wrongMs, tookMs: performance.now() - since }
}

async function worstOf(
  what: string,
  site: AlwaysOnSite,
  cause: (site: AlwaysOnSite) => Promise<Outage>,
): Promise<TrialRow> {
  let worst: Outage = { wrongMs: 0, tookMs: 0 }
  for (let time = 0; time < TIMES; time += 1) {
    const outage = await cause(site)
    if (outage.tookMs > worst.tookMs) worst = outage
    await site.online(1)
    // Each time as the first: who is refused again soon after waits longer.
    if (time < TIMES - 1) await sleep(STABLE_MS)
  }
  const [took, wrong] = [worst.tookMs, worst.wrongMs].map((ms) => (ms / 1_000).toFixed(1))
  const measured = `${TIMES} times, worst ${took} s after ${wrong} s wrong`
  return row(what, measured, 'worst < 15 s', worst.tookMs < WORST_MS)
}

/** Both on one site with one tunnel. */
export async function tryRefusals(site: AlwaysOnSite): Promise<TrialRow[]> {
  await site.createTunnels(1)
  return [
    await worstOf('the gateway has lost its database', site, wipedDatabase),
    await worstOf('the authtoken may not bind the name', site, narrowedAuthtoken),
  ]
}

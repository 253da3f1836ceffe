import { cpSync, lstatSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { StatusView } from '../../src/api/status-view.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { type RunReady, SITE_API_TOKEN } from '../helpers/site.ts'
import { row, type TrialRow } from '../helpers/trials.ts'
import { type AlwaysOnSite, startAgent } from './always-on-site.ts'
import { rowOf, TIMES } from './planned.ts'
import { until } from './until.ts'

const TOLD_WITHIN_MS = 30_000
/** The copy tries again and again meanwhile. */
const WATCHED_MS = 10_000
const LATEST_MS = 7_500
/** Bound of the time from the end of the original until the copy serves. */
const SUCCESSION_MS = 10_000
const WORST_MS = 1_000
/** The management API takes 120 requests a minute of a key. */
const ASK_EVERY_MS = 500
/** The gateway says so once in ten minutes. */
const REFUSED = /the device is already connected/g
const SAID_MS = 600_000

interface Meeting {
  /** Until gateway and both agents had said it. */
  readonly toldMs: number
  /** Until the next try of the refused agent, as it says. */
  readonly nextMs: number
}

/**
 * Starts an agent on a copy of the other one's data folder. `atRefusal` runs after both agents and the
 * gateway have reported the duplicate.
 */
async function meet(
  site: AlwaysOnSite,
  number: number,
  atRefusal: () => Promise<unknown>,
): Promise<Meeting> {
  const folder = join(site.folder, `copy-${number}`)
  // A socket cannot be copied, by nobody.
  const filter = (path: string) => !lstatSync(path).isSocket()
  cpSync(join(site.folder, 'agent'), join(folder, 'agent'), { recursive: true, filter })
  cpSync(join(site.folder, 'authtoken'), join(folder, 'authtoken'))
  const since = performance.now()
  const clone = startAgent(folder, site.ready)
  try {
    const { agent_api } = await clone.ready<RunReady>()
    const headers = { authorization: `Bearer ${SITE_API_TOKEN}` }
    const statusOfClone = async () =>
      (await fetch(`${agent_api}/status`, { headers })).json() as Promise<StatusView>
    let refusal: StatusView['link'] | undefined
    await until(
      'gateway and both agents say duplicate',
      async () => {
        refusal = (await statusOfClone()).link
        const { tunnel_sessions: sessions } = (await site.manage('GET', '/tunnel_sessions')) as {
          tunnel_sessions: { duplicate: object | null }[]
        }
        const isTold = sessions.some(({ duplicate }) => duplicate !== null)
        const isKnown = (await site.status())?.link.duplicate != null
        const isPaused = refusal.state === 'duplicate' && refusal.next_retry_at != null
        return isPaused && isTold && isKnown
      },
      ASK_EVERY_MS,
    )
    const toldMs = performance.now() - since
    const nextMs = Date.parse(refusal?.next_retry_at ?? '') - Date.now()
    await atRefusal()
    return { toldMs, nextMs }
  } finally {
    await clone.end('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Kills the original and returns the milliseconds until the copy serves the name. */
async function timeOfSuccession(site: AlwaysOnSite): Promise<number> {
  await site.endAgent('SIGKILL')
  const since = performance.now()
  const ingress = site.ready.ingress_http
  await until('the copy serves', async () => {
    const { status } = await publicRequest({ ingress, host: site.host(0) })
    return status === 200
  })
  return performance.now() - since
}

/**
 * The next try of a copy comes soon, as the copy says, and the gateway does not log each.
 */
export async function tryDuplicate(site: AlwaysOnSite): Promise<TrialRow[]> {
  await site.createTunnels(1)
  const meetings: Meeting[] = []
  const begin = performance.now()
  const visitors = site.visitors('http', [site.host(0)])
  visitors.start()
  for (let number = 1; number <= TIMES; number += 1) {
    meetings.push(await meet(site, number, () => sleep(WATCHED_MS)))
  }
  const visits = await visitors.stop()
  const said = site.gateway.log.match(REFUSED)?.length ?? 0
  const mostSaid = 1 + Math.floor((performance.now() - begin) / SAID_MS)
  const successions: number[] = []
  for (let number = 1; number <= TIMES; number += 1) {
    await meet(site, number, async () => successions.push(await timeOfSuccession(site)))
    await site.startAgent()
    await site.online(1)
  }
  const succession = Math.max(...successions)
  const told = Math.max(...meetings.map(({ toldMs }) => toldMs))
  const next = Math.max(...meetings.map(({ nextMs }) => nextMs))
  return [
    row(
      'gateway and both agents say it',
      `${TIMES} copies, within ${(told / 1_000).toFixed(1)} s`,
      'within 30 s',
      told < TOLD_WITHIN_MS,
    ),
    rowOf(`the older one serves ${TIMES} times`, visits, WORST_MS),
    row(
      'the next try of a copy',
      `within ${(next / 1_000).toFixed(1)} s, ${said} lines in the log of the gateway`,
      `within ${LATEST_MS / 1_000} s, at most ${mostSaid} lines`,
      next <= LATEST_MS && said <= mostSaid,
    ),
    row(
      'the copy serves after the original was killed',
      `${TIMES} times, within ${(succession / 1_000).toFixed(1)} s`,
      `within ${SUCCESSION_MS / 1_000} s`,
      succession <= SUCCESSION_MS,
    ),
  ]
}

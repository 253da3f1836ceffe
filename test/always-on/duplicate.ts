import { cpSync, lstatSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { StatusView } from '../../src/api/status-view.ts'
import { type RunReady, SITE_API_TOKEN } from '../helpers/site.ts'
import { row, type TrialRow } from '../helpers/trials.ts'
import { type AlwaysOnSite, startAgent } from './always-on-site.ts'
import { rowOf, TIMES } from './planned.ts'
import { until } from './until.ts'

const TOLD_WITHIN_MS = 30_000
/** In which a device that does not let go would come again and again: before, 57 times in 100 s. */
const WATCHED_MS = 10_000
const HOUR_MS = 3_600_000
const MOST_AN_HOUR = 4
const WORST_MS = 1_000
/** The management API takes 120 requests a minute of a key. */
const ASK_EVERY_MS = 500
const REFUSED = /the device is already connected/g

interface Meeting {
  /** Until gateway and both agents had said it. */
  readonly toldMs: number
  /** By the gateway's log. */
  readonly linkUps: number
  /** From one link-up of the refused agent to the next, as it says. */
  readonly everyMs: number
}

/** Starts an agent on a copy of the other one's data folder. */
async function meet(site: AlwaysOnSite, number: number): Promise<Meeting> {
  const folder = join(site.folder, `copy-${number}`)
  // A socket cannot be copied, by nobody.
  const filter = (path: string) => !lstatSync(path).isSocket()
  cpSync(join(site.folder, 'agent'), join(folder, 'agent'), { recursive: true, filter })
  cpSync(join(site.folder, 'authtoken'), join(folder, 'authtoken'))
  const linkUps = () => site.gateway.log.match(REFUSED)?.length ?? 0
  const before = linkUps()
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
        return refusal.state === 'duplicate' && isTold && isKnown && linkUps() > before
      },
      ASK_EVERY_MS,
    )
    const toldMs = performance.now() - since
    const nextAt = Date.parse(refusal?.next_retry_at ?? '')
    const everyMs = nextAt - Date.parse(refusal?.since ?? '')
    await sleep(WATCHED_MS)
    return { toldMs, linkUps: linkUps() - before, everyMs }
  } finally {
    await clone.end('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
}

/**
 * Link-ups an hour: those that the gateway has counted while the two were watched have to be one for
 * each copy, and the next one is as far away as the copy says.
 */
export async function tryDuplicate(site: AlwaysOnSite): Promise<TrialRow[]> {
  await site.createTunnels(1)
  const meetings: Meeting[] = []
  const visitors = site.visitors('http', [site.host(0)])
  visitors.start()
  for (let number = 1; number <= TIMES; number += 1) meetings.push(await meet(site, number))
  const visits = await visitors.stop()
  const told = Math.max(...meetings.map(({ toldMs }) => toldMs))
  const linkUps = Math.max(...meetings.map((meeting) => meeting.linkUps))
  const anHour = HOUR_MS / Math.min(...meetings.map(({ everyMs }) => everyMs))
  return [
    row(
      'gateway and both agents say it',
      `${TIMES} copies, within ${(told / 1_000).toFixed(1)} s`,
      'within 30 s',
      told < TOLD_WITHIN_MS,
    ),
    rowOf(`the older one serves ${TIMES} times`, visits, WORST_MS),
    row(
      'link-ups of a copy',
      `${linkUps} in ${WATCHED_MS / 1_000} s, the next so that it is ${anHour.toFixed(1)} an hour`,
      `1, and at most ${MOST_AN_HOUR} an hour`,
      linkUps === 1 && anHour <= MOST_AN_HOUR,
    ),
  ]
}

import { setTimeout as sleep } from 'node:timers/promises'
import type { Visitors, Visits } from '../always-on/visitors.ts'
import { row, type Trial, type TrialRow } from '../helpers/trials.ts'
import { LinkSite } from './link-site.ts'
import { type LinkShape, type Rig, textOf } from './rig.ts'
import { SHOWS_STAGES, stagesIn } from './stages.ts'

/** Of visitors in each trial with visitors: 1,000 requests. */
const REQUESTS_MS = 20_000
const BACK_MS = 120_000
const ONLINE_MS = 300_000
const WORST_MS = 10_000
/** How long tunnels on slow links have to stay online. */
const STAY_MS = Number(process.env.LINKS_STAY_SECONDS ?? 300) * 1_000
const POLL_MS = 1_000

interface OnLink {
  readonly link: LinkShape
  readonly tunnels: number
}

/** For names: `600ms`, and `2000ms-5kB`. */
const nameOf = ({ rttMs, bytesPerSecond }: LinkShape) =>
  bytesPerSecond === undefined ? `${rttMs}ms` : `${rttMs}ms-${bytesPerSecond / 1_000}kB`

const seconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`

async function withSite<T>(rig: Rig, use: (site: LinkSite) => Promise<T>): Promise<T> {
  rig.shape('device', { rttMs: 0 })
  const site = await LinkSite.start(rig, {}, SHOWS_STAGES ? { LOG_LEVEL: 'info' } : {})
  try {
    return await use(site)
  } finally {
    await site.stop()
    rig.shape('device', { rttMs: 0 })
  }
}

/** How long tunnels take on a link from the start of the agent, and whether they stay. */
function online(rig: Rig, on: OnLink & { readonly stays?: boolean }): Trial {
  const { link, tunnels, stays = false } = on
  const run = () =>
    withSite(rig, async (site) => {
      await site.createTunnels(tunnels)
      await site.untilOnline(tunnels, ONLINE_MS)
      rig.shape('device', link)
      await site.restartAgent()
      const ms = await site.untilOnline(tunnels, ONLINE_MS)
      const what = `${tunnels} tunnels at ${textOf(link)}`
      if (ms === undefined) {
        const count = await site.onlineCount()
        return [row(what, `${count} online after ${seconds(ONLINE_MS)}`, 'all online', false)]
      }
      const rows = [row(what, `online after ${seconds(ms)}`, 'all online', true)]
      if (stays) rows.push(await staying(site, what, tunnels))
      return rows
    })
  return {
    name: `online-${nameOf(link)}`,
    what: `${tunnels} tunnels come online at ${textOf(link)}`,
    run,
  }
}

async function staying(site: LinkSite, what: string, tunnels: number): Promise<TrialRow> {
  const end = performance.now() + STAY_MS
  let fewest = tunnels
  while (performance.now() < end) {
    await sleep(POLL_MS)
    fewest = Math.min(fewest, await site.onlineCount())
  }
  const bar = `all online for ${seconds(STAY_MS)}`
  return row(`${what}, afterwards`, `${fewest} online at the least`, bar, fewest === tunnels)
}

interface Change {
  readonly name: string
  readonly what: string
  act(site: LinkSite): Promise<void>
}

const CHANGES: readonly Change[] = [
  { name: 'restart', what: 'the gateway is restarted', act: (site) => site.restartGateway() },
  { name: 'reload', what: 'the gateway is reloaded', act: (site) => site.gateway.reload() },
  { name: 'agent', what: 'the agent is restarted', act: (site) => site.restartAgent() },
]

function planned(rig: Rig, { name, what, act }: Change, { link, tunnels }: OnLink): Trial {
  const run = () =>
    withSite(rig, async (site) => {
      await site.createTunnels(tunnels)
      await site.untilOnline(tunnels, ONLINE_MS)
      rig.shape('device', link)
      const { visits, backMs } = await whileVisited(site, tunnels, () => act(site))
      const failures = failuresOf(visits)
      const isMet = failures === 0 && visits.worstMs < WORST_MS && backMs !== undefined
      const bar = `0 failed, worst < ${seconds(WORST_MS)}`
      return [
        row(`${tunnels} tunnels at ${textOf(link)}`, textOfVisits(visits, backMs), bar, isMet),
      ]
    })
  return {
    name: `${name}-${nameOf(link)}`,
    what: `${what}, ${tunnels} tunnels, ${textOf(link)}`,
    run,
  }
}

function cut(rig: Rig, { link, tunnels, backMs: barMs }: OnLink & { backMs: number }): Trial {
  const run = () =>
    withSite(rig, async (site) => {
      await site.createTunnels(tunnels)
      await site.untilOnline(tunnels, ONLINE_MS)
      rig.shape('device', link)
      const { visits, backMs } = await whileVisited(site, tunnels, async () => {
        rig.reset('device')
        await sleep(POLL_MS)
      })
      const notFound = [...visits.failed].some(([outcome]) => outcome.startsWith('404'))
      const isMet = !notFound && backMs !== undefined && backMs < barMs
      const bar = `no 404, all back < ${seconds(barMs)}`
      return [
        row(`${tunnels} tunnels at ${textOf(link)}`, textOfVisits(visits, backMs), bar, isMet),
      ]
    })
  return {
    name: `cut-${nameOf(link)}`,
    what: `the connections on the link are cut, ${tunnels} tunnels, ${textOf(link)}`,
    run,
  }
}

/** Short: nothing is lost. Long: the connection counts as dead, and comes back. */
function stalled(rig: Rig, forMs: number, { link, tunnels }: OnLink): Trial {
  const isShort = forMs < WORST_MS
  const run = () =>
    withSite(rig, async (site) => {
      await site.createTunnels(tunnels)
      await site.untilOnline(tunnels, ONLINE_MS)
      rig.shape('device', link)
      const { visits, backMs } = await whileVisited(site, tunnels, async () => {
        rig.stall('device', true)
        await sleep(forMs)
        rig.stall('device', false)
      })
      const failures = [...visits.failed]
        .filter(([outcome]) => isShort || outcome.startsWith('404'))
        .reduce((sum, [, count]) => sum + count, 0)
      const bar = isShort ? '0 failed' : 'no 404, all back'
      const isMet = failures === 0 && backMs !== undefined
      return [
        row(`${tunnels} tunnels at ${textOf(link)}`, textOfVisits(visits, backMs), bar, isMet),
      ]
    })
  return {
    name: `stall-${forMs / 1_000}s`,
    what: `the link stands still for ${forMs / 1_000} s, ${tunnels} tunnels, ${textOf(link)}`,
    run,
  }
}

/** Visitors of all tunnels: 1,000 requests, more when the tunnels take longer to come back. */
async function whileVisited(
  site: LinkSite,
  tunnels: number,
  act: () => Promise<void>,
): Promise<{ visits: Visits; backMs: number | undefined }> {
  const visitors: Visitors = site.visitors(tunnels)
  visitors.start()
  const enough = sleep(REQUESTS_MS)
  await sleep(1_000)
  const since = performance.now()
  const [loggedBefore, began] = [site.gateway.log.length, Date.now()]
  await act()
  const isBack = (await site.untilOnline(tunnels, BACK_MS)) !== undefined
  const backMs = performance.now() - since
  await enough
  if (SHOWS_STAGES) {
    process.stderr.write(`  ${stagesIn(site.gateway.log.slice(loggedBefore), began)}\n`)
  }
  return { visits: await visitors.stop(), backMs: isBack ? backMs : undefined }
}

const failuresOf = (visits: Visits) =>
  [...visits.failed.values()].reduce((sum, count) => sum + count, 0)

function textOfVisits(visits: Visits, backMs: number | undefined): string {
  const said = [...visits.failed].map(([outcome, count]) => `${count} x ${outcome}`).join(', ')
  const back = backMs === undefined ? 'not all back' : `all back after ${seconds(backMs)}`
  const failed = `${failuresOf(visits)} of ${visits.requests} failed${said && ` (${said})`}`
  return `${failed}, worst wait ${seconds(visits.worstMs)}, ${back}`
}

/** All rows of the table. */
export function allTrials(rig: Rig): readonly Trial[] {
  const links: readonly OnLink[] = [
    { link: { rttMs: 0 }, tunnels: 150 },
    { link: { rttMs: 20 }, tunnels: 1_000 },
    { link: { rttMs: 100 }, tunnels: 150 },
  ]
  return [
    online(rig, { link: { rttMs: 0 }, tunnels: 150 }),
    online(rig, { link: { rttMs: 20 }, tunnels: 150 }),
    online(rig, { link: { rttMs: 100 }, tunnels: 150 }),
    online(rig, { link: { rttMs: 600 }, tunnels: 30 }),
    online(rig, { link: { rttMs: 1_400 }, tunnels: 20, stays: true }),
    online(rig, { link: { rttMs: 4_000 }, tunnels: 10, stays: true }),
    online(rig, { link: { rttMs: 2_000, bytesPerSecond: 5_000 }, tunnels: 10, stays: true }),
    ...links.flatMap((on) => CHANGES.map((change) => planned(rig, change, on))),
    cut(rig, { link: { rttMs: 0 }, tunnels: 250, backMs: 8_000 }),
    cut(rig, { link: { rttMs: 20 }, tunnels: 250, backMs: 8_000 }),
    cut(rig, { link: { rttMs: 100 }, tunnels: 250, backMs: 8_000 }),
    cut(rig, { link: { rttMs: 600 }, tunnels: 30, backMs: 15_000 }),
    stalled(rig, 3_000, { link: { rttMs: 100 }, tunnels: 20 }),
    stalled(rig, 60_000, { link: { rttMs: 100 }, tunnels: 20 }),
  ]
}

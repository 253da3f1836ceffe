import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { until } from '../always-on/until.ts'
import { Balancer } from '../cluster/balancer.ts'
import { Crowd } from '../cluster/crowd.ts'
import { Devices } from '../cluster/devices.ts'
import { isReady, TrialSite } from '../cluster/trial-site.ts'
import { type Entrance, isServed, VisitLog } from '../cluster/visit-log.ts'
import { TestPostgres } from '../helpers/postgres.ts'
import { row, type Trial, type TrialRow } from '../helpers/trials.ts'
import type { OldBuild } from './old-build.ts'

const SERVE_MS = 10_000

/** Gateways of a cluster get the new version one by one, while devices of both versions serve. */
export function rollingUpgrade(old: () => OldBuild): Trial {
  return {
    name: 'cluster',
    what: 'three gateways on PostgreSQL are upgraded one by one',
    run: () => roll(old()),
  }
}

async function roll(old: OldBuild): Promise<TrialRow[]> {
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-upgrade-'))
  const stops: (() => unknown)[] = [() => rmSync(folder, { recursive: true, force: true })]
  try {
    const postgres = await TestPostgres.start({ syncs: true })
    stops.push(() => postgres.remove())
    const site = await TrialSite.start(folder, postgres, { main: old.main })
    stops.push(() => site.stop())
    await until('all nodes ready', () => areReady(site))
    const balance = async (addressOf: 'http' | 'agents') => {
      const backends = site.nodes.map((node) => ({
        ...{ address: node[addressOf], isReady: () => isReady(node) },
      }))
      const balancer = await Balancer.start(backends)
      stops.push(() => balancer.stop())
      await until('the balancer knows all nodes', async () => balancer.ready === site.nodes.length)
      return balancer.address
    }
    const [visitors, agents] = [await balance('http'), await balance('agents')]
    const devices = await Devices.start({ site, folder, balancer: agents, main: old.main })
    stops.push(() => devices.stop())
    const log = new VisitLog()
    const { hosts } = devices
    const addressOf = (entrance: Entrance) =>
      site.nodes.find(({ number }) => entrance === `node ${number}`)?.http ?? visitors
    const crowd = new Crowd({ hosts, log, addressOf })
    crowd.start()
    stops.push(() => crowd.stop())
    await until('all names served', async () => {
      const since = performance.now()
      await sleep(2_000)
      const visits = log.during(since, performance.now())
      return visits.length > 0 && visits.every(isServed)
    })
    const begin = performance.now()
    const say = (text: string) =>
      process.stderr.write(`${((performance.now() - begin) / 1_000).toFixed(1)} s: ${text}\n`)
    crowd.beginDownloads()
    await sleep(SERVE_MS)
    for (const node of site.nodes) {
      const entrance: Entrance = `node ${node.number as 1 | 2 | 3}`
      // Visitors who were told to stay away do so; the balancer finds out by itself.
      crowd.close(entrance)
      await node.program.end('SIGTERM')
      say(`node ${node.number} has ended`)
      await site.startAgain(node)
      say(`node ${node.number} is upgraded and ready`)
      crowd.open(entrance)
      await until('all ready', () => areReady(site)).catch(async (error: Error) => {
        throw new Error(`${error.message}: ${await readiness(site)}`)
      })
      await sleep(SERVE_MS)
    }
    await devices.upgrade()
    say('agents are upgraded')
    await sleep(SERVE_MS)
    await crowd.endDownloads()
    await crowd.stop()
    const visits = log.during(begin, performance.now())
    const failed = visits.filter((visit) => !isServed(visit))
    for (const { host, entrance, outcome, begin: at } of failed.slice(0, 20)) {
      say(`failed at ${((at - begin) / 1_000).toFixed(1)} s: ${host} at ${entrance}: ${outcome}`)
    }
    const downloads = visits.filter((visit) => visit.isDownload).length
    return [
      row(
        'visitors',
        `${failed.length} of ${visits.length} failed (${downloads} downloads)`,
        '0 failed',
        failed.length === 0,
      ),
    ]
  } finally {
    for (const stop of stops.reverse()) await stop()
  }
}

/** What each node answers of itself, and the end of its log. */
async function readiness(site: TrialSite): Promise<string> {
  const told = site.nodes.map(async ({ api, number, program }) => {
    const answer = await fetch(`${api}/readyz`).then((response) => response.text(), String)
    return `\nnode ${number}: ${answer}\n${program.stderr.slice(-3_000)}`
  })
  return (await Promise.all(told)).join('\n')
}

async function areReady(site: TrialSite): Promise<boolean> {
  return (await Promise.all(site.nodes.map(isReady))).every(Boolean)
}

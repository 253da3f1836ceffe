import { setTimeout as sleep } from 'node:timers/promises'
import { until } from '../always-on/until.ts'
import type { Crowd } from './crowd.ts'
import { isReady, type TrialNode, type TrialSite } from './trial-site.ts'
import type { Entrance } from './visit-log.ts'

const PAUSE_MS = 30_000
const SLOW_MS = 300

/** What a fault may touch, and what it draws. */
export interface FaultSite {
  readonly site: TrialSite
  readonly crowd: Crowd
  /** 0 to 1. */
  readonly random: () => number
  /** Notes that all links of agents break now. */
  readonly linksCut: () => void
}

/** Something that happens to the site; it is over when `run` resolves. */
export interface Fault {
  readonly name: string
  /** Nobody may notice a planned one. */
  readonly isPlanned: boolean
  /** Whether a node may be given up by the others, so that names in the cloud move. */
  readonly moves: boolean
  /** Longer than this it is not given, in a short trial neither. */
  readonly atMostS: number
  run(at: FaultSite): Promise<string>
}

const between = (random: () => number, least: number, most: number) =>
  Math.round(1_000 * (least + random() * (most - least)))
const pick = ({ site, random }: FaultSite) =>
  site.nodes[Math.floor(random() * site.nodes.length)] as TrialNode
const seconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`

/** In the order of a first round, unless it is drawn otherwise. */
export const FAULTS: readonly Fault[] = [
  {
    ...{ name: 'PostgreSQL away', isPlanned: false, moves: false, atMostS: 25 },
    run: async ({ site, random }) => {
      const ms = between(random, 3, 25)
      await site.postgres.stop()
      await sleep(ms)
      await site.postgres.start()
      return seconds(ms)
    },
  },
  {
    ...{ name: 'PostgreSQL away with cut links', isPlanned: false, moves: false, atMostS: 10 },
    run: async ({ site, random, linksCut }) => {
      const [before, after] = [between(random, 1, 3), between(random, 4, 7)]
      await site.postgres.stop()
      await sleep(before)
      linksCut()
      for (const { links } of site.nodes) links?.reset()
      await sleep(after)
      await site.postgres.start()
      return `links cut after ${seconds(before)}, ${seconds(before + after)}`
    },
  },
  {
    ...{ name: 'PostgreSQL silent', isPlanned: false, moves: false, atMostS: 20 },
    run: async ({ site, random }) => {
      const ms = between(random, 5, 20)
      for (const { database } of site.nodes) database.blackHole('both')
      await sleep(ms)
      for (const { database } of site.nodes) database.heal()
      return seconds(ms)
    },
  },
  {
    ...{ name: 'PostgreSQL slow', isPlanned: false, moves: false, atMostS: 15 },
    run: async ({ site, random }) => {
      const ms = between(random, 5, 15)
      for (const { database } of site.nodes) database.delay(SLOW_MS)
      await sleep(ms)
      for (const { database } of site.nodes) database.heal()
      return `${SLOW_MS} ms later, ${seconds(ms)}`
    },
  },
  {
    ...{ name: 'PostgreSQL crash', isPlanned: false, moves: false, atMostS: 2 },
    run: async ({ site, random }) => {
      const ms = between(random, 0, 2)
      await site.postgres.crash()
      await sleep(ms)
      await site.postgres.start()
      return `started after ${seconds(ms)}`
    },
  },
  {
    ...{ name: 'node killed', isPlanned: false, moves: true, atMostS: 12 },
    run: async (at) => {
      const node = pick(at)
      const ms = between(at.random, 0, 5)
      await node.program.end('SIGKILL')
      await sleep(ms)
      await at.site.startAgain(node)
      return `node ${node.number}, started after ${seconds(ms)}`
    },
  },
  {
    ...{ name: 'node paused', isPlanned: false, moves: true, atMostS: 30 },
    run: async (at) => {
      const { program, number } = pick(at)
      program.child.kill('SIGSTOP')
      await sleep(PAUSE_MS)
      program.child.kill('SIGCONT')
      return `node ${number}, ${seconds(PAUSE_MS)}`
    },
  },
  {
    ...{ name: 'node cut from the others', isPlanned: false, moves: false, atMostS: 20 },
    run: async (at) => {
      const { number } = pick(at)
      const ms = between(at.random, 4, 20)
      for (const other of at.site.nodes) at.site.ways.cut(number - 1, other.number - 1)
      await sleep(ms)
      at.site.ways.heal()
      return `node ${number}, ${seconds(ms)}`
    },
  },
  {
    ...{ name: 'node cut from PostgreSQL', isPlanned: false, moves: true, atMostS: 25 },
    run: async (at) => {
      const { number, database } = pick(at)
      const ms = between(at.random, 4, 25)
      database.blackHole('both')
      await sleep(ms)
      database.heal()
      return `node ${number}, ${seconds(ms)}`
    },
  },
  {
    ...{ name: 'drain', isPlanned: true, moves: false, atMostS: 20 },
    run: async (at) => {
      const node = pick(at)
      at.crowd.beginDownloads()
      await sleep(2_000)
      const id = await idOf(at.site, node)
      await act(at.site, node, `/nodes/${id}/drain`)
      await until(`node ${node.number} empty`, async () => {
        const { body } = await at.site.manage(node, 'GET', `/nodes/${id}`)
        return body.drain?.is_done === true
      })
      await act(at.site, node, `/nodes/${id}/undrain`)
      await at.crowd.endDownloads()
      return `node ${node.number}`
    },
  },
  {
    ...{ name: 'rolling restart', isPlanned: true, moves: false, atMostS: 40 },
    run: async ({ site, crowd }) => {
      crowd.beginDownloads()
      await sleep(2_000)
      for (const node of site.nodes) {
        const entrance: Entrance = `node ${node.number as 1 | 2 | 3}`
        // Whoever is told not to come there any more does not: the balancer finds out by itself.
        crowd.close(entrance)
        await node.program.end('SIGTERM')
        await site.startAgain(node)
        crowd.open(entrance)
        await until('all ready', async () =>
          (await Promise.all(site.nodes.map(isReady))).every(Boolean),
        )
        await sleep(2_000)
      }
      await crowd.endDownloads()
      return 'all nodes, one after another'
    },
  },
]

async function idOf(site: TrialSite, node: TrialNode): Promise<string> {
  const { body } = await site.manage(node, 'GET', '/nodes')
  return body.nodes.find(({ is_self }: { is_self: boolean }) => is_self).id
}

async function act(site: TrialSite, node: TrialNode, path: string): Promise<void> {
  const { status, body } = await site.manage(node, 'POST', path)
  if (status !== 200) throw new Error(`${path}: ${status} ${JSON.stringify(body)}`)
}

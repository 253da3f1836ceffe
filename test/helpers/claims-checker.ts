import type { Claim } from '../../src/gateway/cluster/nodes/claim.ts'
import type { DatabaseAddress } from '../../src/settings/database-url.ts'
import { claimOf, TestNode } from './cluster-node.ts'
import type { TestPostgres } from './postgres.ts'
import { seeded } from './seeded.ts'

const SAMPLE_MS = 2
const CLOSEST_MS = 5
/** Where less has happened, nothing was checked. */
const LEAST = { claimed: 20, released: 5, troubles: 4 }

export interface CheckOptions {
  readonly postgres: TestPostgres
  readonly address: DatabaseAddress
  readonly nodes: number
  readonly names: number
  /** For how long at least: it goes on until enough has happened. */
  readonly ms: number
  readonly seed: number
}

export interface CheckResult {
  /** Each moment in which a name had two owners, in words. */
  readonly doubles: string[]
  readonly samples: number
  readonly claimed: number
  readonly refused: number
  readonly released: number
  readonly pauses: number
  readonly kills: number
  readonly crashes: number
  /** Names that nodes had to let go of, because others had taken them meanwhile. */
  readonly lost: number
}

/**
 * Nodes that claim names from each other at random, while they are stopped, cut off and killed, and
 * the database crashes; and a look, all the time, whether a name has two owners.
 */
export async function checkClaims(options: CheckOptions): Promise<CheckResult> {
  const { postgres, address, names, ms, seed } = options
  const random = seeded(seed)
  const pick = (below: number) => Math.floor(random() * below)
  const nodes = await Promise.all(
    Array.from({ length: options.nodes }, (_, n) => TestNode.start(address, `node-${n}`)),
  )
  const result = {
    ...{ doubles: [] as string[], samples: 0, claimed: 0, refused: 0, released: 0 },
    ...{ pauses: 0, kills: 0, crashes: 0, lost: 0 },
  }
  const gone: TestNode[] = []
  const hosts = Array.from({ length: names }, (_, n) => `n${n}.site.example`)
  const samples = hosts.map((host) => claimOf(host))
  const until = performance.now() + ms
  const isOver = () =>
    performance.now() >= until &&
    result.claimed >= LEAST.claimed &&
    result.released >= LEAST.released &&
    result.pauses + result.kills + result.crashes >= LEAST.troubles
  const sleep = (time: number) => new Promise((resolve) => setTimeout(resolve, time))

  const look = () => {
    result.samples += 1
    for (const claim of samples) {
      const owners = nodes.filter((node) => node.owns(claim))
      if (owners.length < 2) continue
      const ids = owners.map(({ cluster }) => cluster.lease.nodeId).join(' and ')
      result.doubles.push(`${claim.key.host}: ${ids}`)
    }
  }
  const watch = async () => {
    while (!isOver()) {
      look()
      await sleep(SAMPLE_MS)
    }
  }

  const work = async (at: number) => {
    const own = new Map<string, Claim>()
    while (!isOver()) {
      await sleep(CLOSEST_MS + pick(20))
      const node = nodes[at]
      if (!node?.isAlive || node.clock.isPaused) continue
      const host = hosts[pick(names)] ?? ''
      const claim = own.get(host)
      if (claim && random() < 0.3) {
        own.delete(host)
        await node.cluster.claims.release(claim).then(
          () => (result.released += 1),
          () => {},
        )
        continue
      }
      const wanted = claimOf(host)
      const mayTake = random() < 0.5
      await node.cluster.claims
        .claim(wanted, () => mayTake)
        .then(
          () => {
            result.claimed += 1
            own.set(host, wanted)
          },
          () => (result.refused += 1),
        )
    }
  }

  const disturb = async () => {
    while (!isOver()) {
      await sleep(200 + pick(300))
      const at = pick(nodes.length)
      const node = nodes[at]
      const dice = random()
      if (!node?.isAlive || node.clock.isPaused) continue
      if (dice < 0.45) {
        result.pauses += 1
        node.pause()
        await sleep(pick(1_500))
        node.resume()
        // What it would serve before it has heard of anything.
        look()
      } else if (dice < 0.6) {
        node.proxy.blackHole(random() < 0.5 ? 'both' : 'down')
        await sleep(pick(1_500))
        node.proxy.heal()
      } else if (dice < 0.8) {
        result.kills += 1
        result.lost += node.lost.length
        node.kill()
        gone.push(node)
        nodes[at] = await TestNode.start(address, `node-${at}`)
      } else if (dice < 0.9) {
        result.crashes += 1
        await postgres.crash()
        await sleep(pick(800))
        await postgres.start()
      } else node.clock.stepWall(pick(7_200_000) - 3_600_000)
    }
  }

  try {
    await Promise.all([watch(), disturb(), ...nodes.map((_, at) => work(at))])
  } finally {
    for (const node of nodes) result.lost += node.lost.length
    await Promise.all([...gone, ...nodes].map((node) => node.stop()))
  }
  return result
}

import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { until } from '../always-on/until.ts'
import type { TestPostgres } from '../helpers/postgres.ts'
import { seeded } from '../helpers/seeded.ts'
import { Balancer } from './balancer.ts'
import { Crowd } from './crowd.ts'
import { Devices } from './devices.ts'
import type { Fault } from './faults.ts'
import { AGAIN_MS, type Findings, judge, type PastFault } from './findings.ts'
import { StallWatch } from './stall-watch.ts'
import { isReady, linksTo, TrialSite } from './trial-site.ts'
import { ENTRANCES, isServed, VisitLog } from './visit-log.ts'
import { WriteLedger } from './write-ledger.ts'

/** Between faults, so that what fails too long after one is seen. */
const CALM_MS = AGAIN_MS + 3_000
/** Where names do not come back, the next fault does not wait for them. */
const MAX_CALM_MS = 40_000

export interface ClusterTrialOptions {
  readonly folder: string
  readonly postgres: TestPostgres
  readonly minutes: number
  readonly seed: number
  readonly faults: readonly Fault[]
  /** Round trip to PostgreSQL and between the gateways. */
  readonly roundTripMs: number
  /** A line of progress. */
  readonly say: (line: string) => void
}

/** Puts three gateways through faults while visitors come, and answers what was seen. */
export async function runClusterTrial(options: ClusterTrialOptions): Promise<Findings> {
  const { folder, postgres, roundTripMs, say } = options
  const stops: (() => unknown)[] = []
  try {
    say('starting three gateways and twenty agents')
    const site = await TrialSite.start(folder, postgres, { roundTripMs })
    stops.push(() => site.stop())
    const balance = async (addressOf: 'http' | 'agents') => {
      const backends = site.nodes.map((node) => ({
        address: addressOf === 'agents' ? linksTo(node) : node.http,
        isReady: () => isReady(node),
      }))
      const balancer = await Balancer.start(backends)
      stops.push(() => balancer.stop())
      await until('a node ready', async () => balancer.ready > 0)
      return balancer.address
    }
    const [visitors, agents] = [await balance('http'), await balance('agents')]
    const devices = await Devices.start({ site, folder, balancer: agents })
    stops.push(() => devices.stop())
    return await disturb(options, site, devices, visitors)
  } finally {
    for (const stop of stops.reverse()) await stop()
  }
}

async function disturb(
  { minutes, seed, faults: kinds, say }: ClusterTrialOptions,
  site: TrialSite,
  { hosts }: Devices,
  balancer: { readonly host: string; readonly port: number },
): Promise<Findings> {
  const log = new VisitLog()
  const crowd = new Crowd({
    ...{ hosts, log },
    addressOf: (entrance) =>
      site.nodes.find(({ number }) => entrance === `node ${number}`)?.http ?? balancer,
  })
  const random = seeded(seed)
  const ledger = new WriteLedger(site, random)
  await ledger.start()
  const start = performance.now()
  const at = (ms: number) => `${((ms - start) / 1_000).toFixed(1)} s`
  const stalls = new StallWatch()
  stalls.start()
  crowd.start()
  const faults: PastFault[] = []
  try {
    await areServed(log, start, hosts.length * ENTRANCES.length)
    say(`${at(performance.now())}: all ${hosts.length} names are served at all nodes`)
    const begun = performance.now()
    const leftS = () => minutes * 60 - (performance.now() - begun) / 1_000
    const bag = draw(kinds, random)
    while (leftS() > 0) {
      const fault = bag(leftS() - CALM_MS / 1_000)
      if (!fault) break
      faults.push(
        await suffer(fault, faults.length + 1, { site, crowd, random, log, stalls, at, say }),
      )
      if (faults.at(-1)?.error) break
    }
    await ledger.stop()
    await crowd.stop()
    const lost = await ledger.lost()
    return judge({ log, hosts, faults, lost, writes: ledger, at })
  } finally {
    stalls.stop()
    await ledger.stop()
    await crowd.stop()
  }
}

/** Faults in an order of chance, each kind once before one comes again. */
function draw(kinds: readonly Fault[], random: () => number): (leftS: number) => Fault | undefined {
  let bag: Fault[] = []
  return (leftS) => {
    if (bag.length === 0) {
      bag = kinds
        .map((fault) => ({ fault, order: random() }))
        .sort((a, b) => a.order - b.order)
        .map(({ fault }) => fault)
    }
    const fits = bag.findIndex(({ atMostS }) => atMostS <= leftS)
    return fits < 0 ? undefined : bag.splice(fits, 1)[0]
  }
}

async function suffer(
  fault: Fault,
  number: number,
  on: Omit<Parameters<Fault['run']>[0], 'linksCut'> & {
    readonly log: VisitLog
    readonly stalls: StallWatch
    readonly at: (ms: number) => string
    readonly say: (line: string) => void
  },
): Promise<PastFault> {
  const { log, stalls, at, say } = on
  const begin = performance.now()
  const cuts: number[] = []
  const linksCut = () => void cuts.push(performance.now())
  const outcome = await fault.run({ ...on, linksCut }).then(
    (what) => ({ what }),
    (error: Error) => ({ what: 'not carried through', error: error.message }),
  )
  const end = performance.now()
  await sleep(CALM_MS)
  await areServed(log, end).catch(() => {})
  const until = performance.now()
  const stalledMs = stalls.during(begin, until)
  const past: PastFault = { number, fault, begin, end, until, stalledMs, cuts, ...outcome }
  const failed = log.during(begin, end).filter((visit) => !isServed(visit)).length
  const [worst] = log.recoveries(end, past.until)
  const again = worst
    ? `all again after ${(worst.ms / 1_000).toFixed(1)} s (${worst.host}, ${worst.entrance})`
    : 'nobody came'
  say(
    `${at(begin)}: #${number} ${fault.name}, ${past.what}: ${failed} failed meanwhile, ${again}${past.error ? `: ${past.error}` : ''}${stalledMs ? `; the trial stood still for ${(stalledMs / 1_000).toFixed(1)} s` : ''}`,
  )
  return past
}

/** Waits until each name was served at each entrance since `end`, and nobody fails any more. */
async function areServed(log: VisitLog, end: number, lanes = 1): Promise<void> {
  const giveUpAt = end + MAX_CALM_MS
  for (;;) {
    const recoveries = log.recoveries(end, Number.POSITIVE_INFINITY)
    if (recoveries.length >= lanes && recoveries.every(({ ms }) => Number.isFinite(ms))) return
    if (performance.now() > giveUpAt) {
      const away = recoveries.find(({ ms }) => !Number.isFinite(ms))
      throw new Error(`not served: ${away?.host} at ${away?.entrance}, ${away?.last}`)
    }
    await sleep(200)
  }
}

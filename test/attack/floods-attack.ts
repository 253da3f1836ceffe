import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { get } from 'node:http'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { quantile, threadMs } from '../../bench/tools.ts'
import { row, type TrialRow } from '../helpers/trials.ts'
import type { Attack } from './attack.ts'
import { type AttackSite, BESIDE } from './attack-site.ts'
import {
  FLOOD_KINDS,
  FLOODED,
  type FloodTarget,
  MANY_READERS,
  SLOW_BATCH,
  SLOW_SET,
} from './flood-kinds.ts'

/** The bar: others' p99 in milliseconds, or so many times their p99 without an attack. */
const P99_MS = 100
const TIMES_IDLE = 10
const IDLE_PROBES = 100
const PROBES = 200
const EVERY_MS = 25
/** A request that takes longer has failed. */
const PATIENCE_MS = 10_000
/** It makes nothing. */
const BATCH = { requests: [{ path: 'nothing', body: {} }] }
/** A process of TypeScript begins within it, at the lowest priority. */
const BEFORE_MS = 2_000

export const attack: Attack = {
  name: 'floods',
  what: 'ten connections cost as much as they can, in each way in turn',
  async run(site) {
    const service = startScript('flood-service.ts', [])
    const [port] = await once(service, 'message')
    await site.tunnel(FLOODED, Number(port))
    const target = await targetOf(site)
    await measure(site, othersOf(site, ''), IDLE_PROBES)
    const rows: TrialRow[] = []
    for (const name of Object.keys(FLOOD_KINDS)) {
      const others = othersOf(site, name)
      const idle = await measure(site, others, IDLE_PROBES)
      const flood = startScript('flood-process.ts', [JSON.stringify(target), name])
      await sleep(BEFORE_MS)
      const flooded = await measure(site, others, PROBES)
      flood.kill()
      await once(flood, 'exit')
      for (const [who, p99] of flooded) rows.push(rowOf(`${name}: ${who}`, p99, idle.get(who)))
    }
    service.kill()
    return rows
  },
}

/** What others do meanwhile; true when it was answered as it should be. */
type Others = Readonly<Record<string, () => Promise<boolean>>>

function othersOf(site: AttackSite, flood: string): Others {
  const isOk = async (answer: Promise<Response>) => {
    const { ok, body } = await answer
    await body?.cancel()
    return ok
  }
  return {
    'another tunnel': () => visit(site),
    'management API': () => isOk(site.site.manage('GET', '/endpoints')),
    ...(flood === SLOW_BATCH && {
      'POST /batch': () => isOk(site.site.manage('POST', '/batch', BATCH)),
    }),
    ...(flood === SLOW_SET && {
      'PUT /tunnels': async () => (await site.site.call('PUT', '/tunnels?dry_run=true', [])).ok,
    }),
    ...(flood === MANY_READERS && { '/events': () => isOk(site.site.call('GET', '/events')) }),
  }
}

/** An API key, and a token of the agent, for the flood alone. */
async function targetOf({ site }: AttackSite): Promise<FloodTarget> {
  const { ingress_http, ingress_https, management_api, ca_cert } = site.ready
  const key = await site.manage('POST', '/api_keys', { name: 'flood' })
  const token = await site.call('POST', '/tokens', { name: 'flood', scope: 'write' })
  const portOf = (url: string) => Number(new URL(url).port)
  return {
    ports: {
      http: portOf(ingress_http),
      https: portOf(ingress_https),
      management: portOf(management_api),
      agent: portOf(site.agentApi),
    },
    caFile: ca_cert,
    apiKey: ((await key.json()) as { token: string }).token,
    agentToken: ((await token.json()) as { token: string }).token,
  }
}

/** Milliseconds of a request; infinite when it has failed. */
interface Probe {
  readonly ms: number
  /** Processor time of the gateway's thread meanwhile. */
  readonly busyMs: number
}

/** p99 of each. */
async function measure(site: AttackSite, others: Others, probes: number) {
  const all = Object.entries(others).map(([who, ask]) => ({
    who,
    ask,
    asked: [] as Promise<Probe>[],
  }))
  for (let n = 0; n < probes; n += 1) {
    for (const { ask, asked } of all) asked.push(probe(site, ask))
    await sleep(EVERY_MS)
  }
  const p99s = all.map(async ({ who, asked }) => [who, p99Of(await Promise.all(asked))] as const)
  return new Map(await Promise.all(p99s))
}

async function probe({ site }: AttackSite, ask: () => Promise<boolean>): Promise<Probe> {
  const { pid } = site.gateway
  const [since, busySince] = [performance.now(), threadMs(pid)]
  const isAnswered = await ask().catch(() => false)
  const ms = isAnswered ? performance.now() - since : Number.POSITIVE_INFINITY
  return { ms, busyMs: threadMs(pid) - busySince }
}

function visit(site: AttackSite): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const options = { ...site.ingress, headers: { host: BESIDE }, agent: false }
    const request = get({ ...options, timeout: PATIENCE_MS }, (response) => {
      response.resume().on('end', () => resolve(response.statusCode === 200))
    })
    request.on('timeout', () => request.destroy(new Error('no answer')))
    request.on('error', reject)
  })
}

const p99Of = (probes: readonly Probe[]): Probe => ({
  ms: quantile(
    probes.map(({ ms }) => ms),
    0.99,
  ),
  busyMs: quantile(
    probes.map(({ busyMs }) => busyMs),
    0.99,
  ),
})

function startScript(file: string, args: readonly string[]): ChildProcess {
  const all = ['--import', 'tsx', join(import.meta.dirname, file), ...args]
  return spawn(process.execPath, all, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
}

function rowOf(what: string, flooded: Probe, idle: Probe | undefined): TrialRow {
  const idleMs = idle?.ms ?? Number.NaN
  const bar = Math.max(P99_MS, TIMES_IDLE * idleMs)
  const [p99, busy] = [flooded.ms.toFixed(0), flooded.busyMs.toFixed(0)]
  const load = loadavg()[0]?.toFixed(1)
  const measured = `p99 ${p99} ms (gateway busy ${busy}), idle ${idleMs.toFixed(0)} ms, load ${load}`
  return row(what, measured, `p99 < ${bar.toFixed(0)} ms`, flooded.ms < bar)
}

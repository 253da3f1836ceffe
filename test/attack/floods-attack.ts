import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { get } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { row, type TrialRow } from '../helpers/trials.ts'
import type { Attack } from './attack.ts'
import { type AttackSite, BESIDE } from './attack-site.ts'
import { FLOOD_KINDS, FLOODED } from './flood-kinds.ts'

const CONNECTIONS = 10
/** The bar: others' p99 in milliseconds, or so many times their p99 without an attack. */
const P99_MS = 100
const TIMES_IDLE = 10
const PROBES = 100
const EVERY_MS = 25
/** A request that takes longer has failed. */
const PATIENCE_MS = 10_000
/** Until the flood is under way. */
const BEFORE_MS = 1_500

export const attack: Attack = {
  name: 'floods',
  what: 'ten connections send tiny frames as fast as they can, of each kind in turn',
  async run(site) {
    const service = startScript('flood-service.ts', [])
    const [port] = await once(service, 'message')
    await site.tunnel(FLOODED, Number(port))
    const idle = await measure(site)
    const rows: TrialRow[] = []
    for (const name of Object.keys(FLOOD_KINDS)) {
      const flood = startFlood(site, name)
      await sleep(BEFORE_MS)
      const flooded = await measure(site)
      flood.kill()
      await once(flood, 'exit')
      rows.push(rowOf(`another tunnel: ${name}`, flooded.tunnel, idle.tunnel))
      rows.push(rowOf(`management API: ${name}`, flooded.management, idle.management))
    }
    service.kill()
    return rows
  },
}

interface Measured {
  /** Milliseconds; infinite where a request was not answered with 200. */
  readonly tunnel: number
  readonly management: number
}

/** p99 of requests to another tunnel, and to the management API. */
async function measure(site: AttackSite): Promise<Measured> {
  const tunnel: Promise<number>[] = []
  const management: Promise<number>[] = []
  for (let n = 0; n < PROBES; n += 1) {
    tunnel.push(timeOf(() => visit(site)))
    management.push(timeOf(async () => (await site.site.manage('GET', '/endpoints')).ok))
    await sleep(EVERY_MS)
  }
  return {
    tunnel: p99Of(await Promise.all(tunnel)),
    management: p99Of(await Promise.all(management)),
  }
}

async function timeOf(ask: () => Promise<boolean>): Promise<number> {
  const since = performance.now()
  const isAnswered = await ask().catch(() => false)
  return isAnswered ? performance.now() - since : Number.POSITIVE_INFINITY
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

function p99Of(times: readonly number[]): number {
  const sorted = [...times].sort((a, b) => a - b)
  return sorted[Math.floor(0.99 * (sorted.length - 1))] ?? Number.NaN
}

function startFlood({ site, ingress }: AttackSite, name: string): ChildProcess {
  const { ingress_https, ca_cert } = site.ready
  const ports = [String(ingress.port), new URL(ingress_https).port]
  return startScript('flood-process.ts', [...ports, ca_cert, name, String(CONNECTIONS)])
}

function startScript(file: string, args: readonly string[]): ChildProcess {
  const all = ['--import', 'tsx', join(import.meta.dirname, file), ...args]
  return spawn(process.execPath, all, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
}

function rowOf(what: string, ms: number, idleMs: number): TrialRow {
  const bar = Math.max(P99_MS, TIMES_IDLE * idleMs)
  const measured = `p99 ${ms.toFixed(0)} ms, idle ${idleMs.toFixed(0)} ms`
  return row(what, measured, `p99 < ${bar.toFixed(0)} ms`, ms < bar)
}

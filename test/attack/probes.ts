import { get } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { row, type TrialRow } from '../helpers/trials.ts'
import { AGENT, type AttackSite, BESIDE, BYSTANDER } from './attack-site.ts'

const PROBES = 200
/** So that 200 of them see ten seconds of the attack. */
const EVERY_MS = 50
const P99_MS = 1_000
/** Longer than anybody may be kept waiting. */
const PATIENCE_MS = 30_000

interface Probe {
  readonly outcome: string
  readonly ms: number
}

/** What others notice meanwhile: 200 requests to a tunnel beside, and to the agent's own domain. */
export async function probeOthers(site: AttackSite, from = BYSTANDER): Promise<TrialRow[]> {
  const whose = from === BYSTANDER ? '' : ", from an attacker's address"
  const [beside, agent] = await Promise.all([
    probe(site, BESIDE, '/', from),
    probe(site, AGENT, '/healthz', from),
  ])
  return [rowOf(`another tunnel${whose}`, beside), rowOf(`the agent's API${whose}`, agent)]
}

/** The link is the one that it was, and nobody blames the network. */
export async function linkRow(site: AttackSite, before: string): Promise<TrialRow> {
  const { link, verdict } = await site.status()
  const isKept = link.since === before && link.reason === null
  return row('the agent and its link', isKept ? 'kept' : verdict, 'kept', isKept)
}

async function probe(site: AttackSite, host: string, path: string, from: string): Promise<Probe[]> {
  const under: Promise<Probe>[] = []
  for (let count = 0; count < PROBES; count += 1) {
    under.push(ask(site, host, path, from))
    await sleep(EVERY_MS)
  }
  return Promise.all(under)
}

function ask(site: AttackSite, host: string, path: string, from: string): Promise<Probe> {
  const since = performance.now()
  return new Promise((resolve) => {
    const done = (outcome: string) => resolve({ outcome, ms: performance.now() - since })
    const options = { ...site.ingress, localAddress: from, path, headers: { host }, agent: false }
    const request = get({ ...options, timeout: PATIENCE_MS }, (response) => {
      response.resume()
      const code = response.headers['ngrok-error-code'] ?? ''
      response.on('end', () => done(`${response.statusCode} ${code}`.trim()))
      response.on('error', () => done('cut'))
    })
    request.on('timeout', () => request.destroy(new Error('silent')))
    request.on('error', (error) => done(error.message))
  })
}

function rowOf(what: string, probes: readonly Probe[]): TrialRow {
  const times = probes.map(({ ms }) => ms).sort((a, b) => a - b)
  const p99 = times[Math.floor(0.99 * (times.length - 1))] ?? Number.NaN
  const failed = probes.filter(({ outcome }) => outcome !== '200')
  const said = [...new Set(failed.map(({ outcome }) => outcome))].slice(0, 3).join(', ')
  const answered = probes.length - failed.length
  const measured = `${answered} of ${probes.length}, p99 ${p99.toFixed(0)} ms${said && ` (${said})`}`
  const isMet = failed.length === 0 && p99 < P99_MS
  return row(what, measured, `${PROBES} of ${PROBES}, p99 < ${P99_MS} ms`, isMet)
}

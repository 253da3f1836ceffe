import { Agent, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { threadMs } from '../../bench/tools.ts'
import type { Site } from '../helpers/site.ts'
import type { TrialRow } from '../helpers/trials.ts'

/** The tunnel of the bystander, and those with costly policies. */
export const BESIDE = 'beside-policies.site.localhost'
export const costlyHost = (index: number) => `costly${index}.site.localhost`

const WORST_MS = 50
const PATIENCE_MS = 30_000

/** What another tunnel of the same device notices, one request after the other. */
export class Bystander {
  readonly #site: Site
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 })
  #isOver = false
  #times: number[] = []
  /** Of the gateway's one thread, while each of them was under way. */
  #threadTimes: number[] = []
  #failed = 0

  constructor(site: Site) {
    this.#site = site
  }

  async run(): Promise<void> {
    while (!this.#isOver) {
      const since = performance.now()
      const threadSince = threadMs(this.#site.gateway.pid)
      const status = await visit(this.#site, BESIDE, this.#agent)
      this.#times.push(performance.now() - since)
      this.#threadTimes.push(threadMs(this.#site.gateway.pid) - threadSince)
      if (status !== 200) this.#failed += 1
      await sleep(1)
    }
    this.#agent.destroy()
  }

  /** What was seen since the last row, with the request that is under way. */
  async row(what: string): Promise<TrialRow> {
    const seen = this.#times.length
    while (this.#times.length < seen + 2) await sleep(1)
    const times = this.#times.sort((a, b) => a - b)
    const worst = times.at(-1) ?? Number.NaN
    const median = times[times.length >> 1] ?? Number.NaN
    const failed = this.#failed > 0 ? `, ${this.#failed} failed` : ''
    const busy = Math.max(...this.#threadTimes).toFixed(0)
    const measured = `worst ${worst.toFixed(0)} ms of ${times.length} (gateway busy ${busy}), median ${median.toFixed(1)}${failed}`
    const isMet = this.#failed === 0 && worst < WORST_MS
    this.#times = []
    this.#threadTimes = []
    this.#failed = 0
    return { what, measured, bar: `all 200, worst < ${WORST_MS} ms`, isMet }
  }

  /** The requests since the last row: their times, and those of the gateway's thread meanwhile, in ms. */
  take(): { readonly times: readonly number[]; readonly threadTimes: readonly number[] } {
    const taken = { times: this.#times, threadTimes: this.#threadTimes }
    this.#times = []
    this.#threadTimes = []
    return taken
  }

  get failed(): number {
    return this.#failed
  }

  stop(): void {
    this.#isOver = true
  }
}

export async function create(
  site: Site,
  host: string,
  port: number,
  policy: object,
): Promise<void> {
  const answer = await site.create(host, port, policy)
  if (!answer.ok) throw new Error(`no tunnel ${host}: ${answer.status} ${await answer.text()}`)
}

export function put(
  site: Site,
  host: string,
  port: number,
  policy: object | string,
): Promise<Response> {
  const spec = { protocol: 'http', forwards_to: `localhost:${port}`, domain: host, policy }
  return site.call('PUT', `/tunnels/${host}`, spec)
}

/** The status that a visitor gets; 0 without an answer. */
export function visit(site: Site, host: string, agent?: Agent): Promise<number> {
  const { hostname, port } = new URL(site.ready.ingress_http)
  const headers = { host, 'x-n': '4096' }
  return new Promise((resolve) => {
    const options = { host: hostname, port, headers, timeout: PATIENCE_MS, agent: agent ?? false }
    const asked = request(options, (response) => {
      response.resume()
      response.on('end', () => resolve(response.statusCode ?? 0))
      response.on('error', () => resolve(0))
    })
    asked.on('timeout', () => asked.destroy())
    asked.on('error', () => resolve(0))
    asked.end()
  })
}

import { once } from 'node:events'
import { Agent, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuMs, median, quantile } from '../../bench/tools.ts'
import type { Site } from '../helpers/site.ts'
import type { TrialRow } from '../helpers/trials.ts'
import { BESIDE, Bystander, costlyHost, create, visit } from './policy-visitors.ts'

/** Clients of one costly policy, each with one request at a time, and how long they ask in each round. */
const CLIENTS = 50
const SATURATED_MS = 4_000
const ROUNDS = 3
/** Others' 99th percentile beside them, on a quiet machine. */
const P99_MS = 50

/** Needs all that a request has, and the request says how much, so no check can refuse it. */
const WHOLE_BUDGET = {
  on_http_request: Array.from({ length: 40 }, () => ({
    expressions: Array(20).fill(
      "lists.range(int(req.headers['x-n'][0]) / 32).map(x, [x, x]).size() > 0",
    ),
    actions: [{ type: 'add-headers', config: { headers: { 'x-a': 'b' } } }],
  })),
}

export const attack = {
  name: 'saturation',
  what: 'one policy that is stopped at its budget, asked by 50 clients all the time',
  async run({ site }: { readonly site: Site }): Promise<readonly TrialRow[]> {
    const service = createServer((_, response) => response.end('hello'))
    service.listen(0, '127.0.0.1')
    await once(service, 'listening')
    const { port } = service.address() as AddressInfo
    const bystander = new Bystander(site)
    try {
      await create(site, BESIDE, port, { on_http_request: [] })
      await create(site, costlyHost(0), port, WHOLE_BUDGET)
      const watching = bystander.run()
      const rows = await saturatedRows(site, bystander)
      bystander.stop()
      await watching
      return rows
    } finally {
      bystander.stop()
      service.close()
    }
  },
}

const p99 = (times: readonly number[]) => quantile(times, 0.99)

/** Others' 99th percentile while clients saturate one costly policy, and without them, in turns. */
async function saturatedRows(site: Site, bystander: Bystander): Promise<TrialRow[]> {
  const p99s: number[][] = []
  const stoppedMs: number[] = []
  const statuses = new Set<number>()
  for (let round = 0; round < ROUNDS; round += 1) {
    bystander.take()
    await sleep(SATURATED_MS)
    const alone = bystander.take()
    const [since, cpuSince] = [performance.now(), cpuMs(site.gateway.pid)]
    let answers = 0
    const clients = Array.from({ length: CLIENTS }, async () => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 })
      while (performance.now() - since < SATURATED_MS) {
        statuses.add(await visit(site, costlyHost(0), agent))
        answers += 1
      }
      agent.destroy()
    })
    await Promise.all(clients)
    stoppedMs.push((cpuMs(site.gateway.pid) - cpuSince) / answers)
    const crowd = bystander.take()
    p99s.push([alone.times, crowd.times, alone.threadTimes, crowd.threadTimes].map(p99))
  }
  const [without, beside, busyWithout, busy] = [0, 1, 2, 3].map((column) =>
    median(p99s.map((row) => row[column] ?? Number.NaN)),
  ) as [number, number, number, number]
  const failed = bystander.failed > 0 ? `, ${bystander.failed} failed` : ''
  return [
    {
      what: `others, while ${CLIENTS} clients saturate one costly policy`,
      measured: `p99 ${beside.toFixed(1)} ms, ${without.toFixed(1)} ms without (${(beside / without).toFixed(1)} times), gateway busy ${busy.toFixed(1)}, ${busyWithout.toFixed(1)} without${failed}`,
      bar: `all 200, p99 < ${P99_MS} ms`,
      isMet: bystander.failed === 0 && beside < P99_MS,
    },
    {
      what: 'the costly policy itself',
      measured: `${[...statuses].sort().join(', ')}; gateway CPU ${median(stoppedMs).toFixed(1)} ms each, with the bystander`,
      bar: 'stopped: 500 or 503',
      isMet: [...statuses].every((status) => status === 500 || status === 503),
    },
  ]
}

import { once } from 'node:events'
import { Agent, createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { threadMs } from '../../bench/tools.ts'
import { askedBomb, digestBomb, generateBombs, manyExpressions } from '../helpers/policy-bombs.ts'
import { seeded } from '../helpers/seeded.ts'
import type { Site } from '../helpers/site.ts'
import type { TrialRow } from '../helpers/trials.ts'

const GENERATED = 200
const PARALLEL = 50
const TUNNELS = 50
const BESIDE = 'beside-policies.site.localhost'
const costlyHost = (index: number) => `costly${index}.site.localhost`
const WORST_MS = 50
const PATIENCE_MS = 30_000
const YAML_MS = 250
const SEED = 20_261_122

/** What another tunnel of the same device notices, one request after the other. */
class Bystander {
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

  stop(): void {
    this.#isOver = true
  }
}

export const attack = {
  name: 'policies',
  what: 'policies that compute as much as they can, alone and 50 at once, and long ones at a bind',
  async run({ site }: { readonly site: Site }): Promise<readonly TrialRow[]> {
    const service = createServer((_, response) => response.end('hello'))
    service.listen(0, '127.0.0.1')
    await once(service, 'listening')
    const { port } = service.address() as AddressInfo
    const bystander = new Bystander(site)
    try {
      await create(site, BESIDE, port, { on_http_request: [] })
      for (let index = 0; index < TUNNELS; index += 1) {
        await create(site, costlyHost(index), port, askedBomb())
      }
      const watching = bystander.run()
      await sleep(2_000)
      const rows = [await bystander.row('before')]
      rows.push(await refusedRow(site, port), ...(await textRows(site, port)))
      await putAll(site, port, [askedBomb()])
      await bystander.row('')
      await visit(site, costlyHost(0))
      rows.push(await bystander.row('digests, alone'))
      await visitAll(site, [0])
      rows.push(await bystander.row(`digests, ${PARALLEL} at once`))

      const next = seeded(SEED)
      const documents = generateBombs(GENERATED, (below) => Math.floor(next() * below))
      const alone: TrialRow[] = []
      const crowds: TrialRow[] = []
      let accepted = 0
      for (let from = 0; from < documents.length; from += TUNNELS) {
        const taken = await putAll(site, port, documents.slice(from, from + TUNNELS))
        accepted += taken.length
        await sleep(200)
        await bystander.row('')
        for (const index of taken) await visit(site, costlyHost(index))
        alone.push(await bystander.row(''))
        await visitAll(site, taken)
        crowds.push(await bystander.row(''))
      }
      rows.push(worstOf(alone, `${GENERATED} generated policies (${accepted} accepted), alone`))
      rows.push(worstOf(crowds, `the same, ${PARALLEL} at once`))

      await bystander.row('')
      for (const seed of [1, 2, 3]) await putAll(site, port, [manyExpressions(seed, 600)])
      rows.push(await bystander.row('600 expressions (60 kB) at a bind, three times'))
      bystander.stop()
      await watching
      return rows
    } finally {
      bystander.stop()
      service.close()
    }
  },
}

/** Documents that no request could pay for are refused before they are bound. */
async function refusedRow(site: Site, port: number): Promise<TrialRow> {
  const statuses: number[] = []
  for (const rules of [4, 20]) {
    statuses.push((await put(site, costlyHost(0), port, digestBomb(rules))).status)
  }
  const isMet = statuses.every((status) => status === 422)
  return { what: 'documents that cannot fit', measured: statuses.join(', '), bar: '422', isMet }
}

/** YAML that grows when it is read, and conditions that never change, are refused before they are bound. */
async function textRows(site: Site, port: number): Promise<TrialRow[]> {
  const answers = async (policies: readonly (object | string)[]) => {
    const found = await Promise.all(policies.map((it) => put(site, costlyHost(0), port, it)))
    return found.map(({ status }) => status)
  }
  const row = (what: string, statuses: readonly number[], bar: number): TrialRow => {
    const isMet = statuses.every((status) => status === bar)
    return { what, measured: statuses.join(', '), bar: String(bar), isMet }
  }
  const aliases = Array.from({ length: 9 }, (_, line) => {
    const item = line === 0 ? 'lol' : `*a${line - 1}`
    return `a${line}: &a${line} [${Array(9).fill(item).join(', ')}]`
  }).join('\n')
  const bombs = [aliases, '{a: '.repeat(10_000), `a: ${'['.repeat(10_000)}`]
  const denyIf = (expression: string) => ({
    on_http_request: [{ expressions: [expression], actions: [{ type: 'deny' }] }],
  })
  const constant = ["req.method == 'get'", "conn.client_ip in ['10.0.0.0/8']", 'req.method in []']
  return [
    row('YAML bombs', await answers(bombs), 400),
    row('conditions that never change', await answers(constant.map(denyIf)), 422),
    await besideYamlRow(site, port),
  ]
}

/** The agent's API while it reads long YAML policies. */
async function besideYamlRow(site: Site, port: number): Promise<TrialRow> {
  const rule = (index: number) =>
    `  - expressions: ["req.url.path == '/${index}'"]\n    actions: [{ type: deny }]\n`
  const yaml = `on_http_request:\n${Array.from({ length: 199 }, (_, index) => rule(index)).join('')}`
  let isOver = false
  const puts = Array.from({ length: 20 }, (_, index) => put(site, costlyHost(index), port, yaml))
  const done = Promise.all(puts).finally(() => {
    isOver = true
  })
  let longest = 0
  while (!isOver) {
    const since = performance.now()
    await (await site.call('GET', '/tunnels?view=spec')).text()
    longest = Math.max(longest, performance.now() - since)
  }
  const isTaken = (await done).every(({ ok }) => ok)
  return {
    what: "the agent's API beside 20 YAML policies of 199 rules",
    measured: `worst ${longest.toFixed(0)} ms${isTaken ? '' : ', refused'}`,
    bar: `all taken, worst < ${YAML_MS} ms`,
    isMet: isTaken && longest < YAML_MS,
  }
}

const worst = ({ measured }: TrialRow) => Number(/worst (\d+)/.exec(measured)?.[1] ?? Number.NaN)

function worstOf(rows: readonly TrialRow[], what: string): TrialRow {
  const [most] = [...rows].sort((a, b) => Number(a.isMet) - Number(b.isMet) || worst(b) - worst(a))
  if (!most) throw new Error('nothing was measured')
  return { ...most, what }
}

async function create(site: Site, host: string, port: number, policy: object): Promise<void> {
  const answer = await site.create(host, port, policy)
  if (!answer.ok) throw new Error(`no tunnel ${host}: ${answer.status} ${await answer.text()}`)
}

function put(site: Site, host: string, port: number, policy: object | string): Promise<Response> {
  const spec = { protocol: 'http', forwards_to: `localhost:${port}`, domain: host, policy }
  return site.call('PUT', `/tunnels/${host}`, spec)
}

/** Gives each tunnel its policy; answers those that took it. */
async function putAll(site: Site, port: number, policies: readonly object[]): Promise<number[]> {
  const taken: number[] = []
  for (const [index, policy] of policies.entries()) {
    const answer = await put(site, costlyHost(index), port, policy)
    if (answer.ok) taken.push(index)
    else if (answer.status !== 422) throw new Error(`${answer.status}: ${await answer.text()}`)
  }
  return taken
}

/** As many visits at once as there are to be, to all tunnels in turn. */
async function visitAll(site: Site, tunnels: readonly number[]): Promise<void> {
  const visits = Array.from({ length: PARALLEL }, (_, index) =>
    visit(site, costlyHost(tunnels[index % tunnels.length] ?? 0)),
  )
  await Promise.all(visits)
}

/** The status that a visitor gets; 0 without an answer. */
function visit(site: Site, host: string, agent?: Agent): Promise<number> {
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

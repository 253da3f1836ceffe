import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { threadMs } from '../../bench/tools.ts'
import { askedBomb, digestBomb, generateBombs, manyExpressions } from '../helpers/policy-bombs.ts'
import { seeded } from '../helpers/seeded.ts'
import type { Site } from '../helpers/site.ts'
import type { TrialRow } from '../helpers/trials.ts'
import { BESIDE, Bystander, costlyHost, create, put, visit } from './policy-visitors.ts'

const GENERATED = 200
const PARALLEL = 50
const TUNNELS = 50
const YAML_MS = 250
const SEED = 20_261_122

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
  let [longest, busiest] = [0, 0]
  while (!isOver) {
    const [since, threadSince] = [performance.now(), threadMs(site.agent.pid)]
    await (await site.call('GET', '/tunnels?view=spec')).text()
    longest = Math.max(longest, performance.now() - since)
    busiest = Math.max(busiest, threadMs(site.agent.pid) - threadSince)
  }
  const isTaken = (await done).every(({ ok }) => ok)
  return {
    what: "the agent's API beside 20 YAML policies of 199 rules",
    measured: `worst ${longest.toFixed(0)} ms (agent busy ${busiest.toFixed(0)})${isTaken ? '' : ', refused'}`,
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

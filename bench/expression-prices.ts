/**
 * What functions of expressions take, and variables that are looked up or read out of a field, beside
 * what they cost (`all-functions.ts`). Fails where a price is off by more than two, and where a
 * function is not measured.
 */
import { systemClock } from '../src/base/clock.ts'
import { ACTIONS } from '../src/policy/actions/all-actions.ts'
import { HeaderList } from '../src/policy/exchange/header-list.ts'
import { PolicyExchange } from '../src/policy/exchange/policy-exchange.ts'
import { Account } from '../src/policy/expression/account.ts'
import type { Phase } from '../src/policy/phase.ts'
import { PolicyScope, policyLanguage } from '../src/policy/policy-language.ts'

import { FUNCTION_PRICES, FUNCTIONS } from '../src/policy/vocabulary/all-functions.ts'

import { priceCases } from './expression-price-cases.ts'
import { cpuUs } from './processor-time.ts'
import { onceReaders, openTables } from './table-prices.ts'
import { median, printTable, progress } from './tools.ts'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 9)
/** What is measured: all unless an expression for names is given. A step is what those take then. */
const ONLY = process.env.BENCH_ONLY === undefined ? undefined : new RegExp(process.env.BENCH_ONLY)
/** What is measured at once; the best of all counts, for neighbours make some of them slow. */
const BATCH_US = 250
/** Evaluations before anything is measured. */
const WARM_UP = 100
const BATCHES = 10
const MOST = 2
/** Items of the macro in which a call runs. */
const ITEMS = 20

/** As many calls in one expression as the budget would not allow. */
class OpenAccount extends Account {
  constructor() {
    super(Number.MAX_SAFE_INTEGER)
  }

  override hold(): void {}
}

const TEXT = 'The quick brown fox jumps over it. '

const CLIENT_IP = '203.0.113.9'
const tables = await openTables(CLIENT_IP)

/** One piece, as texts of requests are, and not a rope. */
const flat = (text: string) => Buffer.from(text).toString()

function createExchange(): PolicyExchange {
  const now = Date.now()
  const head = ['host', 'device.example.com', 'x-a', '1', 'cookie', 'a=1; sid=abc', 'accept', '*/*']
  const exchange = new PolicyExchange({
    account: new OpenAccount(),
    connection: {
      clientIp: CLIENT_IP,
      clientPort: 51_234,
      serverIp: '192.0.2.1',
      serverPort: 443,
      startedAt: now,
      bytesIn: 0,
      bytesOut: 0,
    },
    endpoint: {
      id: 'ep_1',
      url: 'https://device.example.com',
      host: 'device.example.com',
      port: 443,
      protocol: 'https',
    },
    request: {
      method: 'GET',
      target: '/a/b?q=1&r=2',
      clientTarget: '/a/b?q=1&r=2',
      host: 'device.example.com',
      scheme: 'https',
      httpVersion: '1.1',
      headers: new HeaderList(head),
      receivedAt: now,
      bodyReceivedAt: now,
      readBody: () => Promise.resolve(undefined),
    },
  })
  exchange.response = { status: 200, headers: new HeaderList(['set-cookie', 'a=1; Path=/']) }
  const list = Array.from({ length: 500 }, (_, index) => BigInt((index * 7_919) % 500))
  const texts = list.map((index) => `item ${index}`)
  const values = {
    s: 'Device 17, north',
    long: flat(TEXT.repeat(118)),
    upper: flat(TEXT.repeat(118).toUpperCase()),
    bytes: Buffer.from(TEXT.repeat(118)),
    base64: Buffer.from(TEXT.repeat(118)).toString('base64'),
    digits: '7'.repeat(400),
    json: JSON.stringify({ items: texts.slice(0, 300), at: [1, 2.5, null, true] }),
    query: texts.map((text, index) => `k${index}=${encodeURIComponent(text)}`).join('&'),
    url: `https://example.com/${'path/'.repeat(200)}?${'a=b&'.repeat(400)}`,
    escaped: encodeURIComponent(TEXT.repeat(60)),
    list,
    texts,
    nested: [list.slice(0, 250), list.slice(250)],
    map: new Map(texts.slice(0, 250).map((text) => [text, text])),
  }
  for (const [name, value] of Object.entries(values)) exchange.vars.set(name, value)
  const secrets = new Map([['vault name', 'value']])
  exchange.secrets = {
    problemOf: () => undefined,
    read: ({ vault, name }) => secrets.get(`${vault} ${name}`),
  }
  return exchange
}

const exchange = createExchange()
const scope = new PolicyScope()
for (const action of ACTIONS.values()) scope.addAction(action)
scope.addVariable(undefined)
const language = policyLanguage(systemClock)

interface Measured {
  readonly steps: number
  readonly ns: number
}

/** Calls in a macro, whose own part is in it. */
function prepare(call: string, phase: Phase): () => Measured {
  const source = `lists.range(${ITEMS}).map(x, ${call}).size() == 0`
  const expression = language.compile(source, scope.in(phase))
  return prepareRun(exchange.account, ITEMS, () => expression.evaluate(exchange))
}

/** Whatever `once` does `items` times, by what it takes and spends. */
function prepareRun(account: Account, items: number, once: () => unknown): () => Measured {
  once()
  const before = account.spent
  once()
  const steps = (account.spent - before) / items
  const run = (times: number) => {
    const startUs = cpuUs()
    for (let n = 0; n < times; n += 1) once()
    return cpuUs() - startUs
  }
  // Cold code takes many times as long: a batch that looks long enough then is too short to measure.
  run(WARM_UP)
  let times = 1
  while (Math.min(run(times), run(times), run(times)) < BATCH_US) times *= 2
  return () => {
    let us = Number.POSITIVE_INFINITY
    for (let batch = 0; batch < BATCHES; batch += 1) us = Math.min(us, run(times))
    return { steps, ns: (us * 1_000) / times / items }
  }
}

const isWanted = ({ name }: { readonly name: string }) => ONLY?.test(name) ?? true
const calls = priceCases().filter(isWanted)
const account = new OpenAccount()
const readers = onceReaders(account, tables, CLIENT_IP)
/** Whoever reads pays for the worst: what takes less is not off. */
const onces = Object.keys(readers)
  .map((name) => ({ name, call: 'once a request' }))
  .filter(isWanted)
const cases = [...calls, ...onces]
const measures = [
  ...calls.map(({ call, phase }) => prepare(call, phase)),
  ...onces.map(({ name }) => prepareRun(account, 1, readers[name] as () => unknown)),
]
const base = prepare('x', 'on_http_request')
const best = cases.map(() => ({ steps: 0, ns: Number.POSITIVE_INFINITY }))
let item: Measured = { steps: 0, ns: Number.POSITIVE_INFINITY }
for (let round = 0; round < ROUNDS; round += 1) {
  progress(`round ${round + 1} of ${ROUNDS}`)
  for (const [index, measure] of measures.entries()) {
    const measured = measure()
    if (measured.ns < (best[index]?.ns ?? 0)) best[index] = measured
    const plain = index % 20 === 0 ? base() : item
    if (plain.ns < item.ns) item = plain
  }
}

const rows = cases.map(({ name, call }, index) => {
  const { steps, ns } = best[index] as Measured
  const around = index < calls.length ? item : { steps: 0, ns: 0 }
  return { name, call, steps: steps - around.steps, ns: Math.max(1, ns - around.ns) }
})
const stepNs = median(rows.map(({ steps, ns }) => ns / steps))
const off = rows.map((row) => ({ ...row, ratio: row.ns / row.steps / stepNs }))
off.sort((a, b) => b.ratio - a.ratio)
printTable(
  ['function', 'call', 'steps', 'ns', 'taken / paid'],
  off.map(({ name, call, steps, ns, ratio }) => [
    name,
    call.length > 60 ? `${call.slice(0, 59)}…` : call,
    steps.toFixed(0),
    ns.toFixed(0),
    ratio.toFixed(2),
  ]),
)
const itemRatio = item.ns / item.steps / stepNs
console.log(`\nA step is ${stepNs.toFixed(1)} ns; an item of a macro ${item.ns.toFixed(0)} ns for`)
console.log(`${item.steps.toFixed(1)} steps (${itemRatio.toFixed(2)}).`)

const measured = new Set(cases.map(({ name }) => name))
const names = [...FUNCTIONS.map(({ name }) => name), ...Object.keys(FUNCTION_PRICES)]
const missing = new Set(names.map((name) => name.replace(/^\.|\(.*$/g, '')))
for (const name of measured) missing.delete(name)
if (ONLY) missing.clear()
for (const name of missing) console.log(`not measured: ${name}`)
const isTooDear = ({ call, ratio }: (typeof off)[number]) =>
  ratio < 1 / MOST && !onces.some((once) => once.call === call)
const wrong = off.filter((row) => row.ratio > MOST || isTooDear(row))
for (const { name, ratio } of wrong) console.log(`off: ${name} (${ratio.toFixed(2)})`)
tables.stop()
process.exitCode = missing.size > 0 || wrong.length > 0 ? 1 : 0

/**
 * What whole policies take of the processor for one request at most, in all and between two places
 * where others can go on. Fails where it is more than it should be.
 */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { exportJWK, generateKeyPair } from 'jose'
import { systemClock } from '../src/base/clock.ts'
import { createLogger } from '../src/base/logger.ts'
import { compilePolicy } from '../src/policy/policy.ts'
import { createExchange, type ExchangeParts } from '../test/helpers/policy-exchange.ts'
import { cpuUs } from './processor-time.ts'
import { printTable, progress, scratchFolder } from './tools.ts'

const MAX_MS = 20
const MAX_STRETCH_MS = 5
const RUNS = Number(process.env.BENCH_RUNS ?? 12)

interface Case {
  readonly what: string
  readonly rules: readonly object[]
  readonly parts: ExchangeParts
}

const folder = scratchFolder()
const { publicKey } = await generateKeyPair('RS256', { extractable: true })
const keys = join(folder, 'keys.json')
writeFileSync(keys, JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: 'a' }] }))

const fill = (piece: string, size: number) => piece.repeat(Math.ceil(size / piece.length))
const numbered = (piece: (n: number) => string, size: number, between: string) => {
  const pieces: string[] = []
  for (let length = 0; length < size; length += (pieces.at(-1)?.length ?? 0) + between.length) {
    pieces.push(piece(pieces.length))
  }
  return pieces.join(between)
}
const manyKeys = (size: number) => `{${numbered((n) => `"${n.toString(36)}":1`, size, ',')}}`

const jwt = (method: 'header' | 'body', places: number) => ({
  type: 'jwt-validation',
  config: {
    issuer: { allow_list: [{ value: 'a' }] },
    http: {
      tokens: Array(places).fill({ type: 'jwt', method, name: method === 'body' ? 'id' : 'x-a' }),
    },
    jws: {
      allowed_algorithms: ['RS256'],
      keys: { sources: { additional_jkus: [pathToFileURL(keys).href] } },
    },
  },
})
const set = (value: string, count = 1) => ({
  type: 'set-vars',
  config: { vars: Array.from({ length: count }, (_, n) => ({ [`v${n}`]: value })) },
})
const form = 'application/x-www-form-urlencoded'
const post = (body: string, type = 'application/json'): ExchangeParts => ({
  method: 'POST',
  headers: ['content-type', type],
  body,
})
const base64url = (text: string) => Buffer.from(text).toString('base64url')
const token = (size: number) =>
  `${base64url('{"alg":"RS256","kid":"a"}')}.${base64url(manyKeys(size))}.${base64url(fill('a', 256))}`
const fields = Array.from({ length: 250 }, (_, n) => [`x-${n}`, fill('b', 200)]).flat()
const x = "req.headers['x-a'][0]"
const conditions = (...expressions: string[]) => ({
  expressions: Array.from({ length: 40 }, (_, n) => expressions[n % expressions.length]),
  actions: [{ type: 'log', config: { metadata: {} } }],
})
const action = (...actions: object[]) => [{ actions }]
const texts = ['a', '\u00e9', ' ', '%41', '"', 'a@', '=&', '1,'].map((piece) => fill(piece, 50_000))

const CASES: readonly Case[] = [
  ...['{"a":1}', manyKeys(16_000), fill('[]', 10), '[1,2]'].map((json) => ({
    what: `JSON such as ${json.slice(0, 12)}, again and again`,
    rules: [conditions(`${x}.isJson() || true`, `size(json.decode(${x})) >= 0`)],
    parts: { headers: ['x-a', json] },
  })),
  ...texts.map((text) => ({
    what: `texts of ${JSON.stringify(text.slice(0, 3))} that are taken apart`,
    rules: [
      conditions(
        `${x}.trim().upper().md5() != '' && ${x}.contains('${text.slice(0, 1) === '"' ? 'a' : text.slice(0, 1)}b') == false`,
        `${x}.isURL() || ${x}.split(',').size() > 0`,
        `(${x} + 'x').escapeUrl() != ''`,
      ),
    ],
    parts: { headers: ['x-a', text] },
  })),
  {
    what: 'patterns that are made anew',
    rules: [
      conditions("lists.range(99).exists(n, 'ab'.matches('(?i)\\\\pL{' + string(n + 2) + '}x'))"),
    ],
    parts: {},
  },
  {
    what: '50 variables of one action',
    rules: action(set(`\${${x}.isURL() || ${x}.sha512() == ''}`, 50)),
    parts: { headers: ['x-a', fill('a', 60_000)] },
  },
  {
    what: 'interpolations of one answer',
    rules: action({ type: 'custom-response', config: { body: `\${${x}}`.repeat(200) } }),
    parts: { headers: ['x-a', fill('\u00e9', 60_000)] },
  },
  ...(
    [
      ['many keys', post(manyKeys(250_000))],
      ['few keys', post(JSON.stringify({ a: fill('\n', 120_000) }))],
      ['small lists', post(`[${fill('[],', 250_000)}1]`)],
      ['small fields', post(fill('a&', 250_000), form)],
      ['other scripts', post(`id=${fill('%C3%A9', 250_000)}`, form)],
    ] as const
  ).map(([what, parts]) => ({
    what: `a token in a body of ${what}`,
    rules: action(jwt('body', 10)),
    parts,
  })),
  {
    what: 'tokens with many claims',
    rules: action(...Array(8).fill(jwt('header', 10))),
    parts: { headers: ['x-a', token(11_000)] },
  },
  {
    what: 'the longest token',
    rules: action(...Array(8).fill(jwt('header', 10))),
    parts: { headers: ['x-a', token(45_000)] },
  },
  {
    what: 'a signed body of 1 MB',
    rules: action(
      ...Array(4).fill({
        type: 'verify-webhook',
        config: { provider: 'github', secret: 's', enforce: false },
      }),
    ),
    parts: {
      method: 'POST',
      body: Buffer.alloc(1_000_000),
      headers: ['x-hub-signature-256', 'sha256=00'],
    },
  },
  {
    what: 'headers that are removed and added',
    rules: Array.from({ length: 30 }, () => ({
      actions: [
        {
          type: 'remove-headers',
          config: { headers: Array.from({ length: 10 }, (_, n) => `y-${n}`) },
        },
        {
          type: 'add-headers',
          config: {
            headers: Object.fromEntries(Array.from({ length: 10 }, (_, n) => [`z-${n}`, 'a'])),
          },
        },
      ],
    })),
    parts: { headers: fields },
  },
  {
    what: 'keys of limits',
    rules: action(
      ...Array.from({ length: 20 }, (_, n) => ({
        type: 'rate-limit',
        config: {
          name: `n${n}`,
          algorithm: 'sliding_window',
          capacity: 1_000,
          rate: '60s',
          bucket_key: [`getReqHeader('x-a')`],
        },
      })),
    ),
    parts: { headers: ['x-a', fill('\u00e9', 60_000)] },
  },
  {
    what: 'rewrites of a long URL',
    rules: action(
      ...Array(20).fill({ type: 'url-rewrite', config: { from: '(?i)([a-z]+)/', to: '$1/' } }),
    ),
    parts: { url: `https://device.example.com/${fill('ab/', 8_000)}` },
  },
  ...['(?:[ab]*a){9}c', '(a?){30}b', '(.*)(.*)(.*)c', '([^/]*)/([^/]*)/(.*)x'].map((from) => ({
    what: `rewrites by ${from}`,
    rules: action(...Array(20).fill({ type: 'url-rewrite', config: { from, to: '$1' } })),
    parts: { url: `https://device.example.com/${fill('a', 1_500)}c` },
  })),
  {
    what: 'credentials',
    rules: action(
      ...Array(20).fill({
        type: 'basic-auth',
        config: { credentials: Array(10).fill('a:12345678'), enforce: false },
      }),
    ),
    parts: { headers: ['authorization', `Basic ${fill('YWJj', 60_000)}`] },
  },
]

/** Runs a request, and counts what others of this thread would wait for. */
async function run({ rules, parts }: Case): Promise<{ all: number; stretch: number }> {
  const policy = compilePolicy(
    { on_http_request: rules },
    { clock: systemClock, log: createLogger('silent'), mayRead: () => true },
  )
  // Keys are read, and constants compiled, before.
  await policy.onHttpRequest(createExchange(parts))
  const exchange = createExchange(parts)
  let stretch = 0
  let last = cpuUs()
  const first = last
  const lap = () => {
    const now = cpuUs()
    stretch = Math.max(stretch, now - last)
    last = now
  }
  let isOver = false
  const turn = () => {
    lap()
    if (!isOver) setImmediate(turn)
  }
  setImmediate(turn)
  await policy.onHttpRequest(exchange)
  isOver = true
  lap()
  return { all: last - first, stretch }
}

const rows: { what: string; all: number; stretch: number }[] = []
for (const each of CASES) {
  progress(each.what)
  let [all, stretch] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]
  for (let round = 0; round < RUNS; round += 1) {
    const measured = await run(each)
    all = Math.min(all, measured.all)
    stretch = Math.min(stretch, measured.stretch)
  }
  rows.push({ what: each.what, all: all / 1_000, stretch: stretch / 1_000 })
}
rows.sort((a, b) => b.stretch - a.stretch)
printTable(
  ['policy', 'ms in all', 'ms at a stretch'],
  rows.map(({ what, all, stretch }) => [what, all.toFixed(1), stretch.toFixed(1)]),
)
const long = rows.filter(({ all, stretch }) => all > MAX_MS || stretch > MAX_STRETCH_MS)
console.log(`\n${rows.length} policies; ${long.length} take more than ${MAX_STRETCH_MS} ms at a`)
console.log(`stretch or ${MAX_MS} ms in all.`)
process.exitCode = long.length > 0 ? 1 : 0

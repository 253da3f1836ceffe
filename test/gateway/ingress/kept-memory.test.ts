import { once } from 'node:events'
import type { Socket } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { compilePolicy } from '../../../src/policy/policy.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { startIngressSite } from '../../helpers/ingress-site.ts'
import { RawClient, startRawService } from '../../helpers/raw-http.ts'

const MB = 1_000_000
const LETTERS = Array.from('abcdefghi')

/** Heads that repeat, for policies that add much to them, on some connections. */
interface Load {
  readonly rules: readonly object[]
  readonly queries: readonly string[]
  readonly connections: number
}

const headers = (fields: Record<string, string>) => ({
  type: 'add-headers',
  config: { headers: fields },
})

/** These fields for each request, and one more for each letter in its query. */
const choosing = (fields: Record<string, string>) => [
  { actions: [headers(fields)] },
  ...LETTERS.map((letter) => ({
    expressions: [`req.url.query.contains('${letter}')`],
    actions: [headers({ [`x-${letter}`]: 'chosen' })],
  })),
]

const LONG = [1, 2, 3, 4].map((n) => [`x-long-${n}`, 'v'.repeat(8_000)])

const SUBSETS = Array.from({ length: 2 ** LETTERS.length }, (_, bits) =>
  LETTERS.filter((_letter, at) => (bits >> at) & 1).join(''),
)

/** One field more, 400 times. */
const MANY = Array.from({ length: 8 }, (_, rule) => ({
  actions: Array.from({ length: 50 }, (_, at) => headers({ [`x-${rule}-${at}`]: '1' })),
}))

const LOADS: readonly (readonly [name: string, load: Load])[] = [
  [
    'another combination of fields for each request',
    { rules: choosing({ 'x-all': 'v'.repeat(3_000) }), queries: SUBSETS, connections: 1 },
  ],
  [
    'long fields',
    { rules: choosing(Object.fromEntries(LONG)), queries: Array(5).fill('none'), connections: 60 },
  ],
  ['many fields', { rules: MANY, queries: Array(5).fill('none'), connections: 8 }],
]

async function bytesNow(): Promise<number> {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  // Memory of buffers is given back after the collection that found them unused.
  for (let times = 0; times < 4; times += 1) {
    collect()
    await new Promise((resolve) => setImmediate(resolve))
  }
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}

/** Answers each head with the number of its bytes, and keeps nothing. */
function startCounter(): Promise<number> {
  return startRawService((socket: Socket) => {
    let bytes = 0
    let tail = ''
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      tail = (tail + chunk.toString('latin1')).slice(-4)
      if (tail !== '\r\n\r\n') return
      const text = `${bytes}.`
      bytes = 0
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${text.length}\r\n\r\n${text}`)
    })
  })
}

it.each(LOADS)('keeps little of heads to which a policy adds %s', async (_name, load) => {
  const { rules, queries, connections } = load
  const policy = compilePolicy(
    { on_http_request: rules },
    { clock: systemClock, log: captureLog().log, hasInternal: () => true },
  )
  const site = await startIngressSite({ service: await startCounter(), policy })
  const visit = async (client: RawClient, query: string) => {
    const { length } = client
    client.send(`GET /?${query} HTTP/1.1\r\nHost: a.test\r\n\r\n`)
    while (client.length === length || !client.tail.endsWith('.')) await once(client.socket, 'data')
  }
  const first = RawClient.connect(site.addresses.http.port)
  // From the third time on, a head is kept.
  for (let times = 0; times < 4; times += 1) await visit(first, LETTERS.join(''))
  const before = await bytesNow()
  const clients = [first]
  while (clients.length < connections) clients.push(RawClient.connect(site.addresses.http.port))
  for (const query of queries) {
    for (const client of clients) await visit(client, query)
  }
  expect(((await bytesNow()) - before) / MB).toBeLessThan(2.5)
})

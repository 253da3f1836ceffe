/**
 * What a request costs the gateway in HTTP/2 and in HTTP/1.1 over TLS, in turns within one run: the
 * same page of nginx, through ingress, tunnel and the real SDK. Only the ratios say something.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type ClientHttp2Session, connect } from 'node:http2'
import { Agent, get } from 'node:https'
import { connect as tlsConnect } from 'node:tls'
import { Site } from '../test/helpers/site.ts'
import {
  cpuMs,
  median,
  printTable,
  progress,
  requirePrograms,
  scratchFolder,
  startNginx,
} from './tools.ts'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 5)
const MS = 2_000
const AT_ONCE = 50
const HOST = 'bench.site.localhost'

/** Asks once; resolves when the answer is whole. */
type Ask = () => Promise<void>

interface Way {
  readonly name: string
  readonly asks: readonly Ask[]
  readonly costs: number[]
  readonly rates: number[]
}

requirePrograms({ nginx: 'nginx-light' })
const nginx = await startNginx()
const site = await Site.start(scratchFolder())
await site.create(HOST, nginx, { on_http_request: [], on_http_response: [] })
await site.online(1)
const { port } = new URL(site.ready.ingress_https)
const ca = readFileSync(site.ready.ca_cert)
const target = { host: '127.0.0.1', port: Number(port), servername: HOST, ca }

async function session(): Promise<ClientHttp2Session> {
  const opened = connect(`https://${HOST}:${port}`, {
    createConnection: () => tlsConnect({ ...target, ALPNProtocols: ['h2'] }),
  })
  await once(opened, 'connect')
  return opened
}

const inHttp2 =
  (on: ClientHttp2Session): Ask =>
  async () => {
    const stream = on.request({ ':path': '/', ':authority': HOST })
    stream.resume()
    await once(stream, 'end')
  }

const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE })
const inHttp1: Ask = () =>
  new Promise((resolve, reject) => {
    const request = get({ ...target, agent, headers: { host: HOST } }, (response) => {
      response.resume().on('end', resolve)
    })
    request.on('error', reject)
  })

const one = await session()
const many = await Promise.all(Array.from({ length: AT_ONCE }, session))
const way = (name: string, asks: readonly Ask[]): Way => ({ name, asks, costs: [], rates: [] })
const http1 = way(`HTTP/1.1 over TLS, ${AT_ONCE} connections`, Array(AT_ONCE).fill(inHttp1))
const ways = [
  http1,
  way(`HTTP/2, 1 connection of ${AT_ONCE} streams`, Array(AT_ONCE).fill(inHttp2(one))),
  way(`HTTP/2, ${AT_ONCE} connections of 1 stream`, many.map(inHttp2)),
]

for (let round = 0; round <= ROUNDS; round += 1) {
  for (const each of ways) {
    // The first round warms the compilers up and is not counted.
    progress(`${round === 0 ? 'warm-up' : `round ${round} of ${ROUNDS}`}: ${each.name}`)
    const before = cpuMs(site.gateway.pid)
    const until = Date.now() + MS
    let requests = 0
    await Promise.all(
      each.asks.map(async (ask) => {
        while (Date.now() < until) {
          await ask()
          requests += 1
        }
      }),
    )
    if (round === 0) continue
    each.costs.push(((cpuMs(site.gateway.pid) - before) * 1_000) / requests)
    each.rates.push((requests * 1_000) / MS)
  }
}
progress('')
const base = median(http1.costs)
printTable(
  ['way', 'gateway us/request', 'ratio', 'req/s'],
  ways.map(({ name, costs, rates }) => [
    name,
    median(costs).toFixed(1),
    (median(costs) / base).toFixed(2),
    median(rates).toFixed(0),
  ]),
)
for (const each of [one, ...many]) each.destroy()
agent.destroy()
await site.stop()
process.exit(0)

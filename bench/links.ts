/**
 * Small requests, 10 MB up and down and gRPC over links with a round trip, beside the same transfer
 * over the same link without the tunnel. The round trip is the device's or the visitor's. Ends with 1
 * when a bar of `BARS` is not met.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import {
  LinkSite,
  portOf,
  serviceProgram,
  startService,
  stopService,
} from '../test/links/link-site.ts'
import { enterNamespace, openRig } from '../test/links/open-rig.ts'
import type { Place } from '../test/links/rig.ts'
import type { Target, Task, TaskKind } from './links-client.ts'
import { median, printTable, progress, quantile } from './tools.ts'

await enterNamespace()
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 3)
const RTTS = (process.env.BENCH_RTTS ?? '20,100').split(',').map(Number)
const SMALL = 50
const BYTES = 10_000_000
/** Round trips of the p50 of a small request at 20 ms; HTTP/2 and gRPC as times of HTTP/1.1. */
const BARS = { smallTrips: 1.35, http2: 1.5 }
const MS_AT = 20

const rig = await openRig()
const site = await LinkSite.start(rig)
const near = await startService(serviceProgram('0.0.0.0'))
const [PLAIN, HTTP2, GRPC] = ['plain', 'http2', 'grpc'].map((it) => `${it}.site.localhost`)

await site.createTunnel(PLAIN as string, site.service.port)
await site.createTunnel(HTTP2 as string, site.service.port, { upstream: { http2: true } })
await site.createTunnel(GRPC as string, site.service.grpcPort, { upstream: { http2: true } })
await site.untilOnline(3, 60_000)

/** A visitor's process. */
class VisitorProcess {
  readonly #child: ReturnType<typeof spawn>
  readonly #lines: AsyncIterator<string>

  constructor([file, ...words]: [string, ...string[]]) {
    this.#child = spawn(file, words, { stdio: ['pipe', 'pipe', 'inherit'] })
    const input = this.#child.stdout as NodeJS.ReadableStream
    this.#lines = createInterface({ input })[Symbol.asyncIterator]()
  }

  async run(task: Task): Promise<number[]> {
    this.#child.stdin?.write(`${JSON.stringify(task)}\n`)
    const { value } = await this.#lines.next()
    return JSON.parse(value) as number[]
  }

  async stop(): Promise<void> {
    const ended = once(this.#child, 'exit')
    this.#child.stdin?.end()
    await ended
  }
}

const client = [process.execPath, '--import', 'tsx', join(import.meta.dirname, 'links-client.ts')]
const visitors = {
  device: new VisitorProcess(client as [string]),
  visitor: new VisitorProcess(rig.commandAt('visitor', client)),
}
const ca = readFileSync(site.gateway.ready.ca_cert, 'utf8')
const httpsPort = portOf(site.gateway.ready.ingress_https)
const secure = await rig.across('visitor', { host: rig.hostFor('visitor'), port: httpsPort })

async function directTarget(place: Place, isGrpc: boolean): Promise<Target> {
  const service = place === 'device' ? site.service : near
  const port = isGrpc ? service.grpcPort : service.port
  const host = place === 'device' ? rig.hostAt('device') : rig.hostFor('visitor')
  const { host: address, port: there } = await rig.across(place, { host, port })
  return { address, port: there, host: 'localhost' }
}

const tunnelTarget = (place: Place, host: string): Target =>
  place === 'visitor'
    ? { address: secure.host, port: secure.port, host, ca }
    : { address: '127.0.0.1', port: httpsPort, host, ca }

interface Way {
  readonly name: string
  readonly kind: TaskKind
  readonly host: string | undefined
}

const WAYS: readonly Way[] = [
  { name: 'small requests', kind: 'small', host: PLAIN },
  { name: '10 MB down, HTTP/1.1', kind: 'down', host: PLAIN },
  { name: '10 MB up, HTTP/1.1', kind: 'up', host: PLAIN },
  { name: '10 MB down, HTTP/2', kind: 'http2-down', host: PLAIN },
  { name: '10 MB up, HTTP/2', kind: 'http2-up', host: PLAIN },
  { name: '10 MB down, HTTP/2 to the service', kind: 'http2-down', host: HTTP2 },
  { name: '10 MB up, HTTP/2 to the service', kind: 'http2-up', host: HTTP2 },
  { name: '10 MB both ways, gRPC', kind: 'grpc', host: GRPC },
]

const rows: string[][] = []
let areMet = true
for (const place of ['device', 'visitor'] as const) {
  for (const rttMs of RTTS) {
    rig.shape(place, { rttMs })
    const http1 = new Map<string, number>()
    for (const { name, kind, host = '' } of WAYS) {
      const targets = [
        await directTarget(place, kind === 'grpc'),
        tunnelTarget(place, host),
      ] as const
      const times: [number[], number[]] = [[], []]
      const amount = kind === 'small' ? SMALL : BYTES
      for (let round = 0; round < ROUNDS; round += 1) {
        progress(`${rttMs} ms at the ${place}, ${name}, round ${round + 1} of ${ROUNDS}`)
        for (const index of [0, 1] as const) {
          const target = targets[index]
          times[index].push(...(await visitors[place].run({ kind, target, amount })))
        }
      }
      const [direct, tunnel] = [median(times[0]), median(times[1])]
      const isSmall = kind === 'small'
      if (kind === 'down' || kind === 'up') http1.set(kind, tunnel)
      const base = http1.get(kind.includes('up') ? 'up' : 'down') ?? tunnel
      const bars = isSmall ? BARS.smallTrips : BARS.http2
      const toBar = isSmall ? tunnel / rttMs : kind.includes('http2') ? tunnel / base : undefined
      const isMet =
        toBar === undefined || toBar <= bars || (isSmall && (rttMs !== MS_AT || place !== 'device'))
      areMet &&= isMet
      rows.push([
        `${rttMs} ms, ${place}`,
        name,
        direct.toFixed(0),
        tunnel.toFixed(0),
        isSmall ? quantile(times[1], 0.99).toFixed(0) : '',
        (tunnel / direct).toFixed(2),
        toBar === undefined ? '' : `${toBar.toFixed(2)} ${isSmall ? 'round trips' : 'of HTTP/1.1'}`,
        isMet ? '' : 'NOT MET',
      ])
    }
    rig.shape(place, { rttMs: 0 })
  }
}
progress('')
console.log(`Links: ${rig.kind}.\n`)
printTable(['round trip', 'what', 'direct ms', 'tunnel ms', 'p99', 'ratio', 'beside', ''], rows)
for (const each of Object.values(visitors)) await each.stop()
await stopService(near)
await site.stop()
await rig.stop()
process.exit(areMet ? 0 : 1)

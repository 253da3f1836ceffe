/**
 * A TCP tunnel beside an HTTP tunnel to the same server, in turns within one run; and 1 GiB through
 * it each way, held against its hash.
 */
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { Site } from '../test/helpers/site.ts'
import {
  cpuMs,
  download,
  median,
  printTable,
  progress,
  requirePrograms,
  scratchFolder,
  startNginx,
} from './tools.ts'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 7)
const HOST = 'bench.site.localhost'
const MIB = 1_048_576
const PARTS = 1_024
const HASH_BYTES = 32

requirePrograms({ nginx: 'nginx-light', curl: 'curl' })
const nginx = await startNginx()
const first = 20_000 + (process.pid % 10_000)
const site = await Site.start(scratchFolder(), {
  GATEWAY_TCP_LISTEN: `127.0.0.1:${first}-${first + 39}`,
})
await site.create(HOST, nginx, { on_http_request: [], on_http_response: [] })
const tcp = await openTcp(nginx)
await site.online(2)

interface Route {
  readonly name: string
  readonly url: string
  readonly speeds: number[]
  readonly cpu: number[]
}

const http: Route = {
  name: 'HTTP tunnel',
  url: `${site.ready.ingress_http}/large`,
  speeds: [],
  cpu: [],
}
const bare: Route = { name: 'TCP tunnel', url: `http://${tcp}/large`, speeds: [], cpu: [] }
for (let round = 0; round <= ROUNDS; round += 1) {
  progress(`round ${round} of ${ROUNDS}`)
  // Who comes second finds everything warm.
  for (const route of round % 2 === 0 ? [http, bare] : [bare, http]) {
    const before = cpuMs(site.gateway.pid)
    const speed = await download(route.url, HOST)
    if (round === 0) continue
    route.speeds.push(speed)
    route.cpu.push(cpuMs(site.gateway.pid) - before)
  }
}
progress('')
printTable(
  ['100 MiB down', 'MB/s', 'ratio', 'gateway CPU ms'],
  // Round by round: neighbours take what they take of both.
  [http, bare].map(({ name, speeds, cpu }) => [
    name,
    median(speeds).toFixed(0),
    median(speeds.map((speed, round) => speed / (http.speeds[round] ?? 0))).toFixed(2),
    median(cpu).toFixed(0),
  ]),
)

const chunk = randomBytes(MIB)
const expected = createHash('sha256')
for (let part = 0; part < PARTS; part += 1) expected.update(chunk)
const digest = expected.digest('hex')
printTable(
  ['1 GiB, hashed at its end', 'MB/s', 'intact'],
  [
    ['down', ...(await timed(receive))],
    ['up', ...(await timed(send))],
  ],
)
await site.stop()
process.exit(0)

async function openTcp(port: number): Promise<string> {
  const body = { protocol: 'tcp', forwards_to: `localhost:${port}`, policy: {} }
  const answer = await site.call('POST', '/tunnels', body)
  return ((await answer.json()) as { domain: string }).domain
}

async function timed(transfer: () => Promise<string>): Promise<[string, string]> {
  const startedAt = performance.now()
  const received = await transfer()
  const seconds = (performance.now() - startedAt) / 1_000
  return [((PARTS * MIB) / 1e6 / seconds).toFixed(0), received === digest ? 'yes' : 'no']
}

async function serve(onSocket: (socket: Socket) => Promise<unknown>): Promise<string> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    // The agent's checks connect, too, and take nothing.
    socket.on('error', () => {})
    onSocket(socket).catch(() => {})
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return openTcp((server.address() as AddressInfo).port)
}

function dial(address: string) {
  return connect({ host: '127.0.0.1', port: Number(address.split(':')[1]), allowHalfOpen: true })
}

async function writeAll(socket: Socket): Promise<void> {
  for (let part = 0; part < PARTS; part += 1) {
    if (!socket.write(chunk)) await once(socket, 'drain')
  }
  socket.end()
}

/** An iterator would close the other half, too. */
async function hashOf(socket: Socket): Promise<Buffer> {
  const hash = createHash('sha256')
  socket.on('data', (data) => hash.update(data))
  await once(socket, 'end')
  return hash.digest()
}

/** From the device to the visitor. */
async function receive(): Promise<string> {
  const visitor = dial(await serve(writeAll))
  const hash = await hashOf(visitor)
  visitor.end()
  return hash.toString('hex')
}

/** From the visitor to the device, which answers with the hash when it has read to the end. */
async function send(): Promise<string> {
  const visitor = dial(await serve(async (socket) => socket.end(await hashOf(socket))))
  void writeAll(visitor)
  const answer: Buffer[] = []
  for await (const data of visitor) answer.push(data)
  return Buffer.concat(answer).subarray(0, HASH_BYTES).toString('hex')
}

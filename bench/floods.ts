/**
 * What an HTTP/2 connection that only costs takes of the gateway before it is ended: bytes, processor
 * and memory, one flood after the other against one process, and whether others are served meanwhile.
 */
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { get } from 'node:https'
import { setTimeout } from 'node:timers/promises'
import { type TLSSocket, connect as tlsConnect } from 'node:tls'
import { type Flood, idleFloods, madeReset, rapidReset } from '../test/helpers/http2-floods.ts'
import {
  ACK,
  type Field,
  frame,
  head,
  PREFACE,
  SETTINGS,
  uint32,
} from '../test/helpers/http2-frames.ts'
import { Site } from '../test/helpers/site.ts'
import {
  cpuMs,
  printTable,
  progress,
  requirePrograms,
  residentMb,
  scratchFolder,
  startNginx,
} from './tools.ts'

const HOST = 'bench.site.localhost'
/** What is sent at most before a flood counts as not bounded. */
const MAX_BYTES = 60 * 1_048_576
const SLOW_READERS_MS = 3_000
const GET: readonly Field[] = [
  ...([
    [':method', 'GET'],
    [':scheme', 'https'],
    [':authority', HOST],
  ] as const),
  [':path', '/'],
]

requirePrograms({ nginx: 'nginx-light' })
const nginx = await startNginx()
const site = await Site.start(scratchFolder())
await site.create(HOST, nginx, { on_http_request: [], on_http_response: [] })
await site.online(1)
const { port } = new URL(site.ready.ingress_https)
const ca = readFileSync(site.ready.ca_cert)
const target = { host: '127.0.0.1', port: Number(port), servername: HOST, ca }
const { pid } = site.gateway

const rows: string[][] = []
const floods: [string, Flood][] = [
  ['streams that it resets', rapidReset(GET)],
  ['streams that it has reset', madeReset(GET)],
  ...Object.entries(idleFloods(GET)),
]
await serves()
for (const [name, flood] of floods) {
  progress(name)
  rows.push([name, ...(await costOf(() => run(flood)))])
}
progress('slow readers')
rows.push(['100 streams of 100 MiB, of which it reads nothing', ...(await costOf(readNothing))])
progress('')
printTable(
  [
    'what it sends',
    'sent kB',
    'is ended',
    'gateway CPU ms',
    'gateway MB more',
    'others are served',
  ],
  rows,
)
await site.stop()
process.exit(0)

interface Spent {
  readonly bytes: number
  readonly isEnded: boolean
}

async function costOf(attack: () => Promise<Spent>): Promise<string[]> {
  // The most that is resident is counted from here (proc(5), clear_refs).
  writeFileSync(`/proc/${pid}/clear_refs`, '5')
  const [memory, cpu] = [residentMb(pid), cpuMs(pid)]
  const { bytes, isEnded } = await attack()
  const spent = cpuMs(pid) - cpu
  const more = peakMb() - memory
  return [
    (bytes / 1_000).toFixed(0),
    isEnded ? 'yes' : 'no',
    spent.toFixed(0),
    more.toFixed(0),
    (await serves()) ? 'yes' : 'no',
  ]
}

function peakMb(): number {
  const kb = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  return Number(kb) / 1_024
}

async function open(settings: Buffer): Promise<TLSSocket> {
  const socket = tlsConnect({ ...target, ALPNProtocols: ['h2'] })
  await once(socket, 'secureConnect')
  socket.on('error', () => {}).resume()
  socket.write(Buffer.concat([PREFACE, frame(SETTINGS, 0, 0, settings), frame(SETTINGS, ACK, 0)]))
  return socket
}

async function run(flood: Flood): Promise<Spent> {
  const socket = await open(Buffer.alloc(0))
  const closed = new Promise((resolve) => socket.once('close', resolve))
  let bytes = 0
  for (let n = 0; !socket.destroyed && bytes < MAX_BYTES; n += 1) {
    const piece = flood(n)
    bytes += piece.length
    if (!socket.write(piece)) await Promise.race([once(socket, 'drain'), closed]).catch(() => {})
    else if (n % 64 === 0) await setTimeout(0)
  }
  const isEnded = socket.destroyed
  socket.destroy()
  return { bytes, isEnded }
}

/** Asks for much with a window of nothing, and for a while takes none of it. */
async function readNothing(): Promise<Spent> {
  const socket = await open(Buffer.concat([Buffer.from([0, 4]), uint32(0)]))
  const large = GET.map((field): Field => (field[0] === ':path' ? [':path', '/large'] : field))
  const heads = Array.from({ length: 100 }, (_, n) => head(1 + 2 * n, large))
  const bytes = heads.reduce((sum, { length }) => sum + length, 0)
  socket.write(Buffer.concat(heads))
  await setTimeout(SLOW_READERS_MS)
  const isEnded = socket.destroyed
  socket.destroy()
  return { bytes, isEnded }
}

/** Whether somebody else gets a page. */
function serves(): Promise<boolean> {
  return new Promise((resolve) => {
    const request = get({ ...target, agent: false, headers: { host: HOST } }, (response) => {
      response.resume().on('end', () => resolve(response.statusCode === 200))
    })
    request.on('error', () => resolve(false))
  })
}

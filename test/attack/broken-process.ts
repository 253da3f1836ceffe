/**
 * Breaks off connections in each way in turn, in a process of its own. Arguments: HTTPS port, file of
 * the CA, connections in all. It ends behind the last one.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { constants, setPriority } from 'node:os'
import { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect as tlsConnect } from 'node:tls'
import { ACK, DATA, type Field, frame, head, PREFACE, SETTINGS } from '../helpers/http2-frames.ts'
import { FLOODED } from './flood-kinds.ts'

const AT_ONCE = 50
const LEAVES_MS = 20
const PATIENCE_MS = 200

setPriority(constants.priority.PRIORITY_LOW)
const [port = '', caFile = '', count = ''] = process.argv.slice(2)
const host = '127.0.0.1'
const terms = { servername: FLOODED, ca: readFileSync(caFile), ALPNProtocols: ['h2'] }
const GET: readonly Field[] = [
  [':method', 'GET'],
  [':scheme', 'https'],
  [':authority', FLOODED],
  [':path', '/'],
]
const BEGINNING = Buffer.concat([PREFACE, frame(SETTINGS, 0, 0), frame(SETTINGS, ACK, 0)])

/** The first bytes of a client. */
async function helloOf(): Promise<Buffer> {
  return new Promise((resolve) => {
    const socket = new Duplex({ read() {}, write: (bytes: Buffer) => resolve(bytes) })
    tlsConnect({ ...terms, socket }).on('error', () => {})
  })
}

const hello = await helloOf()

function transport(n: number): Socket {
  // Of several addresses, so that none is beyond its share.
  const socket = connect({ port: Number(port), host, localAddress: `127.0.0.${2 + (n % 50)}` })
  return socket.on('error', () => {})
}

async function secured(n: number): Promise<Socket> {
  const socket = tlsConnect({ ...terms, socket: transport(n) })
  socket.on('error', () => {}).resume()
  await once(socket, 'secureConnect')
  return socket
}

type Way = (n: number) => Promise<Socket>

const saying =
  (...bytes: readonly Buffer[]): Way =>
  async (n) => {
    const socket = await secured(n)
    socket.write(Buffer.concat(bytes))
    return socket
  }

const greeting =
  (...bytes: readonly Buffer[]): Way =>
  async (n) => {
    const socket = transport(n).resume()
    await once(socket, 'connect')
    socket.write(Buffer.concat([hello, ...bytes]))
    return socket
  }

const request = Buffer.concat([BEGINNING, head(1, GET)])
const noise = Buffer.alloc(1_000, 0xff)
/** A frame behind the end of its stream, settings of a stream, no frames, no HTTP/2, half a handshake, no TLS. */
const ways: readonly Way[] = [
  saying(request, frame(DATA, 0, 1, [1])),
  saying(request, frame(SETTINGS, 0, 1)),
  saying(BEGINNING, noise),
  saying(Buffer.from('GET / HTTP/1.1\r\n\r\n')),
  greeting(),
  greeting(noise),
]

let next = 0
async function work(): Promise<void> {
  while (next < Number(count)) {
    const n = next
    next += 1
    const socket = await ways[n % ways.length]?.(n).catch(() => undefined)
    if (!socket) continue
    await sleep(LEAVES_MS)
    socket.end()
    // Half of a handshake gets no answer.
    await Promise.race([socket.closed || once(socket, 'close'), sleep(PATIENCE_MS)])
    socket.destroy()
  }
}
await Promise.all(Array.from({ length: AT_ONCE }, work))

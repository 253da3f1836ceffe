import { createServer } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { turns } from '../../helpers/frame-peer.ts'
import { type IngressSite, startIngressSite } from '../../helpers/ingress-site.ts'
import { RawClient } from '../../helpers/raw-http.ts'
import { seeded } from '../../helpers/seeded.ts'
import { startHandSite } from './hand-device.ts'

const VISITORS = 12
const SEEDS = [40_001, 40_002, 40_003]

/** Bytes that follow from their seed, so that another visitor's bytes show. */
function bytesOf(seed: number, length: number): Buffer {
  const next = seeded(seed)
  return Buffer.from(Uint8Array.from({ length }, () => next() * 256))
}

/** A service that returns the body of each request, and after an upgrade all bytes. */
async function startEcho(): Promise<number> {
  const server = createServer((request, response) => {
    const [, kind, seed, length] = request.url?.split('/') ?? []
    if (kind === 'bytes') response.end(bytesOf(Number(seed), Number(length)))
    else request.pipe(response)
  })
  const upgraded = new Set<Socket>()
  server.on('upgrade', (_request, socket: Socket, head) => {
    upgraded.add(socket)
    socket.on('error', () => {})
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n')
    if (head.length > 0) socket.write(head)
    socket.pipe(socket)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    for (const socket of upgraded) socket.destroy()
    server.closeAllConnections()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

/** Requests of one visitor as bytes, and the bodies of the responses that are due. */
interface Conversation {
  readonly sent: Buffer
  readonly bodies: readonly Buffer[]
  /** What comes back after the switch of the last response. */
  readonly echoed: Buffer | undefined
}

function conversationOf(seed: number): Conversation {
  const next = seeded(seed)
  const random = (bound: number) => Math.floor(next() * bound)
  const sent: Buffer[] = []
  const bodies: Buffer[] = []
  const head = (line: string, ...fields: string[]) =>
    sent.push(Buffer.from([`${line} HTTP/1.1`, 'Host: a.test', ...fields, '', ''].join('\r\n')))
  const sizes = [0, 1, 30, 900, 5_000, 70_000, 400_000]
  for (let index = 0; index < 6; index += 1) {
    const length = sizes[random(sizes.length)] ?? 0
    const own = seed * 100 + index
    const body = bytesOf(own, length)
    bodies.push(body)
    const kind = random(3)
    if (kind === 0) head(`GET /bytes/${own}/${length}`)
    else if (kind === 1) {
      head('POST /', `Content-Length: ${length}`)
      sent.push(body)
    } else {
      head('PUT /', 'Transfer-Encoding: chunked')
      for (let at = 0; at < length; ) {
        const chunk = body.subarray(at, at + 1 + random(40_000))
        sent.push(Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from('\r\n'))
        at += chunk.length
      }
      sent.push(Buffer.from('0\r\n\r\n'))
    }
  }
  const echoed = random(2) === 0 ? bytesOf(seed * 100 + 99, 150_000) : undefined
  if (echoed) {
    head('GET /', 'Connection: upgrade', 'Upgrade: raw')
    sent.push(echoed)
  }
  return { sent: Buffer.concat(sent), bodies, echoed }
}

/** Takes responses apart; fails on anything that is none. */
function bodiesIn(bytes: Buffer, count: number): { bodies: Buffer[]; rest: Buffer } | undefined {
  const bodies: Buffer[] = []
  let at = 0
  while (bodies.length < count) {
    const end = bytes.indexOf('\r\n\r\n', at)
    if (end === -1) return undefined
    const head = bytes.toString('latin1', at, end)
    expect(head).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    at = end + 4
    const length = /content-length: (\d+)/i.exec(head)?.[1]
    if (length !== undefined) {
      if (at + Number(length) > bytes.length) return undefined
      bodies.push(bytes.subarray(at, at + Number(length)))
      at += Number(length)
      continue
    }
    const parts: Buffer[] = []
    for (let size = -1; size !== 0; ) {
      const line = bytes.indexOf('\r\n', at)
      if (line === -1) return undefined
      size = Number.parseInt(bytes.toString('latin1', at, line), 16)
      expect(size).toBeGreaterThanOrEqual(0)
      if (line + 4 + size > bytes.length) return undefined
      parts.push(bytes.subarray(line + 2, line + 2 + size))
      at = line + 4 + size
    }
    bodies.push(Buffer.concat(parts))
  }
  return { bodies, rest: bytes.subarray(at) }
}

/** Sends in pieces of any size, and reads slowly. */
async function converse(site: IngressSite, seed: number): Promise<void> {
  const next = seeded(seed + 1)
  const turn = () => new Promise((resolve) => setImmediate(resolve))
  const { sent, bodies, echoed } = conversationOf(seed)
  const visitor =
    seed % 3 === 0
      ? RawClient.connectTls(site.addresses.https.port, site.caPem)
      : RawClient.connect(site.addresses.http.port)
  const { socket } = visitor
  let isOver = false
  const readSlowly = async () => {
    while (!isOver) {
      socket.pause()
      for (let turns = next() * 20; turns > 0; turns -= 1) await turn()
      socket.resume()
      for (let turns = 1 + next() * 5; turns > 0; turns -= 1) await turn()
    }
  }
  const send = async () => {
    for (let at = 0; at < sent.length; ) {
      const size = 1 + Math.floor(next() ** 4 * 100_000)
      socket.write(sent.subarray(at, at + size))
      at += size
      await turn()
    }
  }
  void readSlowly()
  await send()
  const total = bodies.reduce((sum, { length }) => sum + length, echoed?.length ?? 0)
  const got = await eventually(() => {
    expect(visitor.length).toBeGreaterThanOrEqual(total)
    const found = bodiesIn(visitor.bytes, bodies.length)
    const isEchoed = !echoed || (found && found.rest.length >= echoed.length)
    if (!found || !isEchoed) throw new Error(`${visitor.length} bytes, which are not all`)
    return found
  }, 60_000)
  isOver = true
  for (const [index, body] of bodies.entries()) {
    expect(got.bodies[index]?.equals(body), `response ${index} of visitor ${seed}`).toBe(true)
  }
  if (echoed) expect(got.rest.subarray(-echoed.length).equals(echoed)).toBe(true)
  else expect(got.rest.length).toBe(0)
  socket.destroy()
}

it.each(SEEDS)('mixes no bytes of visitors at once: seed %i', async (seed) => {
  const site = await startIngressSite({ service: await startEcho() })
  await Promise.all(
    Array.from({ length: VISITORS }, (_, index) => converse(site, seed * 50 + index)),
  )
})

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

it('keeps a request that came while the visitor did not read', async () => {
  const { device, site, visit, read } = await startHandSite()
  const client = await visit('GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\n')
  const body = 'x'.repeat(100_000)
  const first = `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`
  device.last.send(first)
  await turns()
  expect(site.endpoint.traffic.active).toBe(0)
  client.send('GET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n')
  await turns()
  expect(site.endpoint.traffic.requests).toBe(1)
  await read(client)
  expect(device.last.text).toContain('GET /2 HTTP/1.1\r\n')
  device.last.send(OK)
  expect(await read(client)).toBe(first + OK)
})

it('keeps bytes behind a switch that the visitor has not read', async () => {
  const { device, visit, read } = await startHandSite()
  const client = await visit(
    'GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n',
  )
  const rest = 'y'.repeat(10_000)
  const switching = 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n'
  device.last.send(`${switching}\r\n${rest}`)
  const text = await read(client)
  expect(text.slice(text.indexOf('\r\n\r\n') + 4)).toBe(rest)
})

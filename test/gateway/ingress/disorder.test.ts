import type { Socket } from 'node:net'
import { expect, it } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { startIngressSite } from '../../helpers/ingress-site.ts'
import { RawClient, startRawService } from '../../helpers/raw-http.ts'
import { seeded } from '../../helpers/seeded.ts'

const SEED = 77_003
const MIN_ROUNDS = 15
const CLIENTS = 20
/** On a busy machine many clients are gone before they are heard; then there are more rounds. */
const MIN_REQUESTS = 100

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
/** What a service may answer; each is cut into pieces at random. */
const ANSWERS = [
  OK,
  OK,
  'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n',
  'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n',
  `HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n${'x'.repeat(100_000)}`,
  'HTTP/1.0 200 OK\r\n\r\nuntil the end',
  'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\nhi',
  'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more than that',
  'HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
  'complete nonsense\r\n\r\n',
]
/** What a client may send. */
const REQUESTS = [
  'GET / HTTP/1.1\r\nHost: a.test\r\n\r\n',
  'GET / HTTP/1.1\r\nHost: a.test\r\n\r\n'.repeat(3),
  'HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\nGET / HTTP/1.0\r\nHost: a.test\r\n\r\n',
  `POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5000\r\n\r\n${'x'.repeat(5_000)}`,
  'PUT / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n',
  'GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\nearly',
  'GET / HTTP/1.1\r\nHost: nobody.test\r\n\r\n',
  'POST / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc',
  'PUT / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\nnonsense',
  'nonsense\r\n\r\n',
]
const ENDINGS: readonly ((socket: Socket) => void)[] = [
  () => {},
  () => {},
  () => {},
  (socket) => socket.end(),
  (socket) => socket.destroy(),
  (socket) => socket.resetAndDestroy(),
]

it('comes out of any disorder with nothing under way and no slot lost', async () => {
  const next = seeded(SEED)
  const random = (bound: number) => Math.floor(next() * bound)
  const pick = <T>(from: readonly T[]) => from[random(from.length)] as T
  const pause = () => new Promise((resolve) => setTimeout(resolve, random(4)))
  /** Writes in pieces, and at times only the first of them. */
  const dribble = async (socket: Socket, text: string) => {
    const pieces = 1 + random(3)
    const isBrokenOff = random(8) === 0
    const size = Math.ceil(text.length / pieces)
    for (let piece = 0; piece < pieces && !(isBrokenOff && piece > 0); piece += 1) {
      if (socket.destroyed || socket.writableEnded) return
      socket.write(text.slice(piece * size, (piece + 1) * size))
      await pause()
    }
    pick(ENDINGS)(socket)
  }

  const port = await startRawService((socket) => {
    socket.on('data', () => {
      if (random(10) > 0) void dribble(socket, pick(ANSWERS))
    })
    socket.on('end', () => socket.end())
  })
  const site = await startIngressSite({ service: port, logLevel: 'debug' })
  const free = site.session.freeSlots

  const { traffic } = site.endpoint
  for (let round = 0; round < MIN_ROUNDS || traffic.requests <= MIN_REQUESTS; round += 1) {
    const clients = Array.from({ length: CLIENTS }, () =>
      RawClient.connect(site.addresses.http.port),
    )
    await Promise.all(clients.map(({ socket }) => dribble(socket, pick(REQUESTS))))
    await new Promise((resolve) => setTimeout(resolve, 50))
    for (const { socket } of clients) socket.destroy()
  }

  await eventually(() => expect(traffic.active).toBe(0))
  site.endpoint.streams.close()
  await eventually(() => expect(site.session.freeSlots).toBe(free))
  expect(site.slots.waiting).toBe(0)
  expect(site.captured.lines.filter(({ level }) => level === 'error')).toEqual([])
  expect(site.captured.lines.filter(({ msg }) => msg === 'exchange').length).toBeGreaterThanOrEqual(
    traffic.requests,
  )
})

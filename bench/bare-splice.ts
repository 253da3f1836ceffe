/**
 * The floor of this design: a gateway that knows one agent and no HTTP. Each connection of a visitor
 * is a stream to the SDK, and bytes go from one to the other. Usage: bare-splice.ts CA-FILE ENDPOINTS;
 * prints where agents connect, and where visitors of each endpoint, in the order of their binding.
 */
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { systemClock } from '../src/base/clock.ts'
import { encodeProxyHeader, StreamType } from '../src/gateway/agents/control-message.ts'

import { echoHeartbeat, HEARTBEAT_STREAM_TYPE } from '../src/muxado/heartbeat.ts'
import { answer, readMessage } from '../src/muxado/rpc.ts'
import { acceptTyped, openTyped, Session } from '../src/muxado/session.ts'
import type { Stream } from '../src/muxado/stream.ts'

import { createTlsFixture } from '../test/helpers/tls-fixture.ts'

const RPC_LIMITS = { maxBytes: 65_536, deadlineMs: 10_000, clock: systemClock }

const [caFile = '', endpoints = '1'] = process.argv.slice(2)
const { caPem, certPem, keyPem } = await createTlsFixture()
writeFileSync(caFile, caPem)
let session: Session | undefined
let bound = 0

const agents = createTlsServer({ cert: certPem, key: keyPem }, (socket) => {
  session = new Session(socket, {
    ...{ role: 'server', acknowledges: true, saysGoodbye: false },
    accept: acceptTyped(serve),
  })
})
const visitors = Array.from({ length: Number(endpoints) }, (_, index) =>
  createServer({ allowHalfOpen: true, noDelay: true }, (socket) => splice(socket, idOf(index))),
)

function idOf(index: number): string {
  return `ep_bare${index}`
}

function serve(type: number, stream: Stream): void {
  if (type === HEARTBEAT_STREAM_TYPE) echoHeartbeat(stream, () => {})
  else void readMessage(stream, RPC_LIMITS).then((message) => answer(stream, reply(type, message)))
}

function reply(type: number, message: unknown): object {
  if (type === StreamType.auth) {
    const names = ['Version', 'Region', 'Cookie', 'AccountName', 'PlanName', 'Banner']
    const extra = Object.fromEntries(names.map((name) => [name, '']))
    return { Version: '3', ClientId: 'bare', Extra: { ...extra, SessionDuration: 0 } }
  }
  if (type !== StreamType.bind) return {}
  const { Proto, Opts } = message as { readonly Proto: string; readonly Opts: object }
  bound += 1
  return { Id: idOf(bound - 1), URL: 'http://bare.localhost', Proto, Opts, Extra: { Token: '' } }
}

function splice(socket: Socket, id: string): void {
  if (session === undefined) throw new Error('no agent is connected')
  const client = `${socket.remoteAddress}:${socket.remotePort}`
  const header = encodeProxyHeader({ id, protocol: 'http' }, client)
  let owed = 0
  let inTurn = 0
  const endTurn = () => {
    if (inTurn > 1) socket.uncork()
    inTurn = 0
  }
  const stream = openTyped(
    session,
    StreamType.proxy,
    {
      onData(chunk) {
        inTurn += 1
        if (inTurn === 1) process.nextTick(endTurn)
        // Frames of 8 KiB come many at a time: one write for all of a turn.
        else if (inTurn === 2) socket.cork()
        if (socket.write(chunk)) stream.release(chunk.length)
        else owed += chunk.length
      },
      onEnd: () => socket.end(),
      onDrain: () => socket.resume(),
      onClose: () => socket.destroy(),
    },
    header,
  )
  socket.on('drain', () => {
    stream.release(owed)
    owed = 0
  })
  socket.on('data', (chunk) => {
    if (!stream.write(chunk)) socket.pause()
  })
  socket.on('end', () => stream.end())
  socket.on('error', () => stream.retire())
}

const ports: number[] = []
for (const server of [agents, ...visitors]) {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  ports.push((server.address() as AddressInfo).port)
}
console.log(JSON.stringify({ agents: `localhost:${ports[0]}`, visitors: ports.slice(1) }))

import { createSocket } from 'node:dgram'
import { Resolver } from 'node:dns/promises'
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { encode, type Packet, streamDecode, streamEncode } from 'dns-packet'
import { describe, expect, it, onTestFinished } from 'vitest'
import { StartError } from '../../../../src/base/app-error.ts'
import { answerDns } from '../../../../src/gateway/certificates/acme/dns-answer.ts'
import { DnsListener } from '../../../../src/gateway/certificates/acme/dns-listener.ts'
import { ChallengeZone } from '../../../../src/gateway/certificates/acme/order-book.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'

const NAME = 'a1.acme.gateway.test'
const QUESTION: Packet = { type: 'query', id: 7, questions: [{ type: 'TXT', name: NAME }] }

async function startListener(values = ['hello']) {
  const zone = new ChallengeZone('acme.gateway.test')
  for (const value of values) zone.publish(NAME, value)
  const clock = new ManualClock()
  const listener = new DnsListener({
    listen: { host: '127.0.0.1', port: 0 },
    answer: (message, transport) => answerDns(message, zone, transport),
    clock,
    log: captureLog().log,
  })
  const { port } = await listener.start()
  onTestFinished(() => listener.stop())
  return { listener, port, clock }
}

async function dial(port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1' })
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  return socket
}

/** A UDP client that collects what comes back. */
async function openUdp(port: number) {
  const socket = createSocket('udp4')
  const replies: Buffer[] = []
  socket.on('message', (message) => replies.push(message))
  socket.connect(port, '127.0.0.1')
  await once(socket, 'connect')
  onTestFinished(() => void socket.close())
  return { replies, send: (message: Buffer) => socket.send(message) }
}

describe('DnsListener', () => {
  it('answers a resolver, over TCP when the answer does not fit into a packet', async () => {
    const many = Array.from({ length: 40 }, (_, index) => `${index}-${'x'.repeat(40)}`)
    for (const values of [['hello'], many]) {
      const { port } = await startListener(values)
      const resolver = new Resolver({ timeout: 60_000, tries: 1 })
      resolver.setServers([`127.0.0.1:${port}`])
      expect((await resolver.resolveTxt(NAME)).flat().sort()).toEqual([...values].sort())
      await expect(resolver.resolveTxt('b2.acme.gateway.test')).rejects.toThrow('ENOTFOUND')
      await expect(resolver.resolveTxt('example.com')).rejects.toThrow('EREFUSED')
    }
  })

  it('answers several questions on one TCP connection, however they are cut', async () => {
    const { port } = await startListener()
    const socket = await dial(port)
    const bytes = Buffer.concat([streamEncode(QUESTION), streamEncode({ ...QUESTION, id: 8 })])
    const received: Buffer[] = []
    socket.on('data', (chunk) => received.push(chunk))
    for (const byte of bytes) socket.write(Buffer.of(byte))
    const first = await eventually(() => streamDecode(Buffer.concat(received)))
    expect(first).toMatchObject({ id: 7, answers: [{ data: [Buffer.from('hello')] }] })
    const length = 2 + Buffer.concat(received).readUInt16BE(0)
    await eventually(() =>
      expect(streamDecode(Buffer.concat(received).subarray(length)).id).toBe(8),
    )
  })

  it.each([
    ['a message that is too long', Buffer.of(2, 1)],
    ['no DNS', Buffer.of(0, 3, 1, 2, 3)],
    ['too many questions', Buffer.concat(Array.from({ length: 33 }, () => streamEncode(QUESTION)))],
  ])('ends a TCP connection with %s', async (_what, bytes) => {
    const { port } = await startListener()
    const socket = await dial(port)
    socket.on('error', () => {})
    socket.write(bytes)
    socket.resume()
    await once(socket, 'close')
  })

  it('sends one address no more than it may, and nothing for long messages', async () => {
    const { port, clock } = await startListener()
    const { replies, send } = await openUdp(port)
    send(Buffer.concat([encode(QUESTION), Buffer.alloc(512)]))
    for (let sent = 0; sent < 150; sent += 1) send(encode(QUESTION))
    await eventually(() => expect(replies.length).toBeGreaterThanOrEqual(50))
    await clock.advance(1_000)
    const before = await eventually(async () => {
      const count = replies.length
      await new Promise((resolve) => setTimeout(resolve, 50))
      expect(replies).toHaveLength(count)
      return count
    })
    expect(before).toBeLessThanOrEqual(150)
    send(encode(QUESTION))
    await eventually(() => expect(replies.length).toBeGreaterThan(before))
  })

  it('stops with connections open, and says where it could not listen', async () => {
    const { listener, port } = await startListener()
    const socket = await dial(port)
    const closed = buffer(socket)
    await listener.stop()
    await closed
    const taken = createServer().listen(port, '127.0.0.1')
    await once(taken, 'listening')
    onTestFinished(() => void taken.close())
    const second = new DnsListener({
      listen: { host: '127.0.0.1', port },
      answer: () => undefined,
      clock: new ManualClock(),
      log: captureLog().log,
    })
    await expect(second.start()).rejects.toThrow(StartError)
  })
})

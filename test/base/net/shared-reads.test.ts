import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { expect, it, onTestFinished } from 'vitest'
import { SharedReads } from '../../../src/base/net/shared-reads.ts'
import { tcpPair, tlsPair } from '../../helpers/connected-pair.ts'
import { eventually } from '../../helpers/eventually.ts'
import { turns } from '../../helpers/frame-peer.ts'

/** Collects what a socket receives, as text, with the memory that each part was in. */
function collect(reads: SharedReads, socket: Duplex) {
  const texts: string[] = []
  const memories = new Set<ArrayBufferLike>()
  const isLent = reads.begin(socket, (bytes) => {
    texts.push(bytes.toString('latin1'))
    memories.add(bytes.buffer)
  })
  return { isLent, memories, text: () => texts.join('') }
}

const becomes = (text: () => string, expected: string) =>
  eventually(() => expect(text()).toBe(expected))

it('finds the way in on this version of Node', () => {
  expect(new SharedReads().isPossible).toBe(true)
})

it.each([
  ['TCP', tcpPair],
  ['TLS', tlsPair],
])('reads connections of a server into the same memory: %s', async (_, connectPair) => {
  const reads = new SharedReads()
  const pairs = [await connectPair(), await connectPair()]
  const memories = new Set<ArrayBufferLike>()
  for (const [index, { client, server }] of pairs.entries()) {
    const collected = collect(reads, server)
    expect(collected.isLent).toBe(true)
    client.write(`hello ${index}`)
    await becomes(collected.text, `hello ${index}`)
    client.write(', and more')
    await becomes(collected.text, `hello ${index}, and more`)
    for (const memory of collected.memories) memories.add(memory)
  }
  expect(memories.size).toBe(1)
})

it.each([
  ['TCP', tcpPair],
  ['TLS', tlsPair],
])(
  'gives nothing while the socket is paused, and all in order after that: %s',
  async (_, connectPair) => {
    const { client, server } = await connectPair()
    const sent = Array.from({ length: 60_000 }, (_unused, at) => `${at},`).join('')
    let received = ''
    let isPaused = false
    new SharedReads().begin(server, (bytes) => {
      expect(isPaused).toBe(false)
      received += bytes.toString('latin1')
      server.pause()
      isPaused = true
      setImmediate(() => {
        isPaused = false
        server.resume()
      })
    })
    client.write(sent)
    await eventually(() => expect(received.length).toBe(sent.length))
    expect(received).toBe(sent)
  },
)

it('gives bytes that were put back before those that come', async () => {
  const { client, server } = await tcpPair()
  server.pause()
  server.unshift(Buffer.from('first, '))
  const { text } = collect(new SharedReads(), server)
  client.write('second')
  server.resume()
  await becomes(text, 'first, second')
})

it('stops a paused TLS connection, also when more was decrypted already', async () => {
  const { client, server } = await tlsPair()
  let received = 0
  let pauses = true
  const sent = 2_000_000
  new SharedReads().begin(server, (bytes) => {
    received += bytes.length
    if (pauses) server.pause()
  })
  // One write of two records: the second comes after the pause.
  client.write(Buffer.alloc(16_484))
  await eventually(() => expect(server.readableLength).toBe(100))
  client.write(Buffer.alloc(sent))
  // Node starts the reads again, up to what a socket holds.
  await eventually(() => expect(server.readableLength).toBeGreaterThan(16_384))
  await turns(200)
  expect(server.readableLength).toBeLessThan(200_000)
  pauses = false
  server.resume()
  await eventually(() => expect(received).toBe(16_484 + sent))
})

it('gives bytes of a read inside a call behind those that wait', async () => {
  const { client, server } = await tlsPair()
  const texts: string[] = []
  new SharedReads().begin(server, (bytes) => {
    texts.push(bytes.toString('latin1', 0, 1))
    if (texts.length > 1) return
    server.pause()
    server.unshift(Buffer.from('b'))
    server.resume()
    // Node reads at an empty write.
    server.write(Buffer.alloc(0))
  })
  client.write('a'.repeat(16_384) + 'c'.repeat(100))
  await eventually(() => expect(texts.join('')).toBe('abc'))
})

it('passes on the end, and a reset', async () => {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const reads = new SharedReads()
  const accept = async (last: (client: Socket) => void): Promise<string> => {
    const accepted = once(server, 'connection')
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1')
    const [socket] = (await accepted) as [Socket]
    onTestFinished(() => void socket.destroy())
    const { text } = collect(reads, socket)
    const ended = new Promise<string>((resolve) => {
      socket.on('end', () => resolve('end'))
      socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'))
    })
    client.write('hello')
    await becomes(text, 'hello')
    last(client)
    return ended
  }
  expect(await accept((client) => client.end())).toBe('end')
  expect(await accept((client) => client.resetAndDestroy())).toBe('ECONNRESET')
})

it('reads as usual where Node keeps the option in another way', async () => {
  const { client, server } = await tcpPair()
  const { isLent, memories, text } = collect(new SharedReads(() => undefined), server)
  expect(isLent).toBe(false)
  client.write('hello')
  await becomes(text, 'hello')
  client.write(', and more')
  await becomes(text, 'hello, and more')
  expect(memories.size).toBe(2)
})

it('reads as usual what is no socket of the system', async () => {
  const duplex = new Duplex({ read() {}, write() {} })
  const { isLent, text } = collect(new SharedReads(), duplex)
  expect(isLent).toBe(false)
  duplex.push('hello')
  await becomes(text, 'hello')
})

import type { Readable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { InternalSocket } from '../../../../src/gateway/ingress/visitor/internal-socket.ts'
import { eventually } from '../../../helpers/eventually.ts'

const FROM = {
  clientIp: '203.0.113.9',
  clientPort: 51_234,
  serverIp: '192.0.2.1',
  serverPort: 443,
  startedAt: 0,
  bytesIn: 0,
  bytesOut: 0,
}

/** All that comes until the end; unlike an iterator it leaves the other direction alone. */
function collect(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = []
  stream.on('data', (chunk: Buffer) => chunks.push(chunk))
  return new Promise((resolve) => stream.on('end', () => resolve(Buffer.concat(chunks))))
}

describe('a connection within the process', () => {
  it('carries bytes both ways, and each direction ends by itself', async () => {
    const { client, gateway } = InternalSocket.pair(FROM)
    client.end('request')
    expect((await collect(gateway)).toString()).toBe('request')
    gateway.write('late ')
    gateway.end('answer')
    expect((await collect(client)).toString()).toBe('late answer')
    await eventually(() => expect([client.destroyed, gateway.destroyed]).toEqual([true, true]))
    expect([gateway.bytesRead, gateway.bytesWritten]).toEqual([7, 11])
  })

  it('comes from where the visitor does', () => {
    const { gateway } = InternalSocket.pair(FROM)
    expect(gateway).toMatchObject({
      remoteAddress: '203.0.113.9',
      remotePort: 51_234,
      localAddress: '192.0.2.1',
      localPort: 443,
    })
  })

  it('delivers nothing within the call that sends it', async () => {
    const { client, gateway } = InternalSocket.pair(FROM)
    const heard: string[] = []
    gateway.on('data', (chunk) => heard.push(String(chunk)))
    client.write('a')
    expect(heard).toEqual([])
    await eventually(() => expect(heard).toEqual(['a']))
  })

  it('waits for who does not read, with a bounded part on the way', async () => {
    const { client, gateway } = InternalSocket.pair(FROM)
    const chunk = Buffer.alloc(16_384)
    let accepted = 0
    for (let index = 0; index < 64; index += 1) {
      client.write(chunk, () => {
        accepted += chunk.length
      })
    }
    await new Promise(setImmediate)
    await new Promise(setImmediate)
    expect(accepted).toBeLessThanOrEqual(4 * chunk.length)
    const whole = collect(gateway)
    client.end()
    expect((await whole).length).toBe(64 * chunk.length)
    expect(accepted).toBe(64 * chunk.length)
  })

  it('is reset by an end that goes before its last byte', async () => {
    const { client, gateway } = InternalSocket.pair(FROM)
    gateway.on('error', () => {})
    const broken = new Promise((resolve) => client.on('close', resolve))
    gateway.write('half')
    gateway.resetAndDestroy()
    await broken
    expect(client.errored).toMatchObject({ code: 'ECONNRESET' })
    expect(client.readableEnded).toBe(false)
  })

  it('fails writes to an end that has read enough and gone', async () => {
    const { client, gateway } = InternalSocket.pair(FROM)
    client.end('request')
    await collect(gateway)
    const failed = new Promise((resolve) => {
      gateway.on('error', resolve)
    })
    // Nobody reads: the write waits, until the other end is gone.
    gateway.write(Buffer.alloc(1_000_000))
    client.destroy()
    expect(await failed).toMatchObject({ code: 'ECONNRESET' })
  })
})

import { setImmediate } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { parseCidr } from '../../../../src/base/net/network.ts'
import { encodeProxyProtocol } from '../../../../src/base/net/proxy-protocol.ts'
import {
  BROKEN_STREAM_PIECES,
  PIECE_LIMITS,
} from '../../../../src/gateway/ingress/syntax/piece-shares.ts'
import type { Stream } from '../../../../src/muxado/stream.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { rapidReset, times } from '../../../helpers/http2-floods.ts'
import { DATA, FrameClient, frame, GET, head, PING, POST } from '../../../helpers/http2-frames.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import { RawClient, startScriptedService } from '../../../helpers/raw-http.ts'

const COSTLY = '203.0.113.9'
const OTHER = '203.0.113.10'

/** Time stands still, so that a debt stays as it is. */
async function siteWith(proxies?: 'forwarding header' | 'PROXY protocol', isAnswering = false) {
  const clock = new ManualClock()
  const service = await startScriptedService('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  const takeAll = (stream: Stream) => {
    stream.handler = { onData() {}, onDrain() {}, onEnd() {}, onClose() {} }
  }
  const networks = [parseCidr('127.0.0.1/32') ?? expect.fail('no CIDR')]
  const sendProxyProtocol = proxies === 'PROXY protocol'
  const site = await startIngressSite({
    service: service.port,
    clock,
    ...(!isAnswering && { serve: takeAll }),
    ...(proxies && { proxies: { networks, sendProxyProtocol } }),
  })
  return { site }
}

const from = (ip: string) => [['x-forwarded-for', ip] as const]
const tinyPieces = (stream: number, count = 4 * PIECE_LIMITS.pieces) =>
  times(count, () => frame(DATA, 0, stream, [1]))

/** Whether the connection is read; another one is meanwhile, many times. */
async function isRead(client: FrameClient, witness: FrameClient): Promise<boolean> {
  client.frames.length = 0
  void client.isAlive().catch(() => {})
  for (let n = 0; n < 20 && client.frames.length === 0; n += 1) {
    witness.frames.length = 0
    expect(await witness.isAlive()).toBe(true)
    await setImmediate()
  }
  return client.frames.length > 0
}

describe('a visitor that costs much', () => {
  it('pays for each stream that it breaks', async () => {
    const { site } = await siteWith()
    const client = new FrameClient(site).begin()
    const young = new FrameClient(site).begin()
    const stranger = new FrameClient(site, '127.0.0.99').begin()
    for (const one of [client, young, stranger]) expect(await one.isAlive()).toBe(true)
    const few = Math.floor(PIECE_LIMITS.pieces / BROKEN_STREAM_PIECES)
    client.send(times(few, rapidReset(GET)))
    expect(await isRead(client, stranger)).toBe(true)
    client.send(rapidReset(GET)(few))
    expect(await isRead(client, stranger)).toBe(false)
    expect(client.isClosed).toBe(false)
    // It is no way around that to have others ready, or to come again.
    expect(await isRead(young, stranger)).toBe(false)
    const again = new FrameClient(site).begin()
    expect(await isRead(again, stranger)).toBe(false)
  })

  it('pays for a connection that is closed for a flood', async () => {
    const { site } = await siteWith()
    const client = new FrameClient(site).begin()
    await client.isAlive()
    client.send(times(10_000, () => frame(PING, 0, 0, Buffer.alloc(8))))
    await client.closed()
    const stranger = new FrameClient(site, '127.0.0.99').begin()
    expect(await stranger.isAlive()).toBe(true)
    expect(await isRead(new FrameClient(site).begin(), stranger)).toBe(false)
  })
})

describe('a visitor that costs much behind a proxy', () => {
  it('holds up no other connection of the proxy, and none of its new ones', async () => {
    const { site } = await siteWith('forwarding header')
    const costly = new FrameClient(site).begin()
    const young = new FrameClient(site).begin()
    const stranger = new FrameClient(site, '127.0.0.99').begin()
    for (const client of [costly, young, stranger]) expect(await client.isAlive()).toBe(true)
    costly.send(head(1, [...POST, ...from(COSTLY)], 0), tinyPieces(1))
    expect(await isRead(costly, stranger)).toBe(false)
    expect(await isRead(young, stranger)).toBe(true)
    const fresh = new FrameClient(site).begin()
    expect(await fresh.isAlive()).toBe(true)
    // Content of others is read, its own is not, on each connection.
    fresh.send(head(1, [...POST, ...from(OTHER)], 0), tinyPieces(1, PIECE_LIMITS.pieces))
    expect(await isRead(fresh, stranger)).toBe(true)
    fresh.send(head(3, [...POST, ...from(COSTLY)], 0), tinyPieces(3))
    expect(await isRead(fresh, stranger)).toBe(false)
  })

  it('pays for the streams that it breaks, also for others than the proxy', async () => {
    const { site } = await siteWith('forwarding header')
    const costly = new FrameClient(site).begin()
    const stranger = new FrameClient(site, '127.0.0.99').begin()
    await costly.isAlive()
    const broken = Math.ceil(PIECE_LIMITS.pieces / BROKEN_STREAM_PIECES) + 1
    costly.send(times(broken, rapidReset([...GET, ...from(COSTLY)])))
    expect(await isRead(costly, stranger)).toBe(false)
    const other = new FrameClient(site).begin()
    expect(await other.isAlive()).toBe(true)
    other.send(times(broken / 2, rapidReset([...GET, ...from(OTHER)])))
    expect(await isRead(other, stranger)).toBe(true)
  })

  it('keeps nobody from the connection on which its request has ended', async () => {
    const { site } = await siteWith('forwarding header', true)
    site.bind('b.test', 'http')
    const client = RawClient.connect(site.addresses.http.port)
    const headOf = (ip: string, more = '') =>
      `POST / HTTP/1.1\r\nHost: b.test\r\nX-Forwarded-For: ${ip}\r\n${more}\r\n`
    const chunks = '1\r\nx\r\n'.repeat(2 * PIECE_LIMITS.pieces)
    client.send(`${headOf(COSTLY, 'Transfer-Encoding: chunked\r\n')}${chunks}0\r\n\r\n`)
    await client.receive('\r\n\r\nok')
    const { length } = client
    client.send(headOf(OTHER, 'Content-Length: 0\r\n'))
    await eventually(() => expect(client.length).toBeGreaterThan(length))
  })

  it('waits by its own address before the handshake, where the PROXY protocol names it', async () => {
    const { site } = await siteWith('PROXY protocol')
    const by = (clientIp: string) =>
      encodeProxyProtocol(2, { clientIp, clientPort: 1, serverIp: '192.0.2.1', serverPort: 443 })
    const connect = (header: Buffer) => new FrameClient(site, undefined, header).begin()
    const costly = connect(by(COSTLY))
    const other = connect(by(OTHER))
    for (const client of [costly, other]) expect(await client.isAlive()).toBe(true)
    costly.send(head(1, POST, 0), tinyPieces(1))
    expect(await isRead(costly, other)).toBe(false)
    expect(await isRead(connect(by(COSTLY)), other)).toBe(false)
    expect(await connect(by(OTHER)).isAlive()).toBe(true)
    // Where it names nobody, nobody is known to have caused that.
    const [unknown, young] = [0, 1].map(() => connect(Buffer.from('PROXY UNKNOWN\r\n'))) as [
      FrameClient,
      FrameClient,
    ]
    for (const client of [unknown, young]) expect(await client.isAlive()).toBe(true)
    unknown.send(head(1, POST, 0), tinyPieces(1))
    expect(await isRead(unknown, other)).toBe(false)
    expect(await isRead(young, other)).toBe(true)
    expect(await connect(Buffer.from('PROXY UNKNOWN\r\n')).isAlive()).toBe(true)
  })
})

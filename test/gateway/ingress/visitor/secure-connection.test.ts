import { once } from 'node:events'
import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import {
  capturedHello,
  extension,
  handshakeRecord,
  helloMessage,
} from '../../../helpers/client-hello.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import { RawClient, startScriptedService } from '../../../helpers/raw-http.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const GET = 'GET / HTTP/1.1\r\nHost: a.test\r\n\r\n'

async function startSite() {
  const clock = new ManualClock()
  const service = await startScriptedService(OK)
  const site = await startIngressSite({ clock, service: service.port })
  const visit = async () => {
    const socket = connect({ port: site.addresses.https.port, host: '127.0.0.1' })
    socket.setNoDelay(true)
    const client = new RawClient(socket)
    await once(socket, 'connect')
    return client
  }
  return { clock, site, visit }
}

describe('a connection that has still to say whom it wants', () => {
  it.each([
    [
      'more than 16 kB',
      [handshakeRecord(helloMessage(extension(21, Buffer.alloc(16_384))).subarray(0, 4))],
    ],
    [
      'records without an end',
      Array.from({ length: 2_731 }, () => handshakeRecord(Buffer.from([1]))),
    ],
  ])('is closed without TLS for %s', async (_what, pieces) => {
    const { site, visit } = await startSite()
    const client = await visit()
    for (const piece of pieces) client.socket.write(piece)
    await eventually(() => expect(client.ending).toBeDefined())
    expect(client.length).toBe(0)
    expect(site.serverNames).toEqual([])
  })

  it('is closed when that takes too long, whatever comes now and then', async () => {
    const { clock, site, visit } = await startSite()
    const client = await visit()
    const hello = await capturedHello('a.test')
    for (let second = 0; second < 14; second += 1) {
      client.socket.write(hello.subarray(second, second + 1))
      await clock.advance(1_000)
    }
    expect(client.ending).toBeUndefined()
    await eventually(async () => {
      await clock.advance(1_000)
      expect(client.ending).toBeDefined()
    })
    expect(site.serverNames).toEqual([])
  })

  it('is closed when its client ends, or says what is no TLS', async () => {
    const { site, visit } = await startSite()
    const early = await visit()
    early.socket.end((await capturedHello('a.test')).subarray(0, 20))
    await eventually(() => expect(early.ending).toBeDefined())
    expect(site.serverNames).toEqual([])
    const plain = await visit()
    plain.send(GET)
    await eventually(() => expect(plain.ending).toBeDefined())
    expect(plain.text).not.toContain('HTTP/')
  })

  it('is closed when its client ends in the middle of the handshake', async () => {
    const { site, visit } = await startSite()
    const client = await visit()
    client.socket.write(await capturedHello('a.test'))
    await eventually(() => expect(client.length).toBeGreaterThan(0))
    expect(site.serverNames).toEqual(['a.test'])
    client.socket.end()
    await eventually(() => expect(client.ending).toBeDefined())
  })

  it('is served although the gateway stops, when it goes on', async () => {
    const { clock, site, visit } = await startSite()
    const silent = await visit()
    const client = RawClient.connectTls(site.addresses.https.port, site.caPem)
    await once(client.socket, 'connect')
    const stopped = site.ingress.stop(60_000)
    client.send(GET)
    await client.receive('ok')
    await eventually(async () => {
      await clock.advance(1_000)
      expect([client.ending, silent.ending]).not.toContain(undefined)
    })
    await stopped
  })
})

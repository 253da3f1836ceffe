import { createHash } from 'node:crypto'
import type { Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { startIngressSite } from '../../helpers/ingress-site.ts'
import { RawClient, startRawService } from '../../helpers/raw-http.ts'
import { settled } from '../../helpers/settled.ts'

const GET = 'GET / HTTP/1.1\r\nHost: a.test\r\n\r\n'
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

/** A service that only listens. */
async function startSilentService() {
  const sockets: Socket[] = []
  const ended: Socket[] = []
  const port = await startRawService((socket) => {
    sockets.push(socket)
    socket.on('data', () => {})
    socket.on('end', () => {
      ended.push(socket)
      socket.end()
    })
  })
  return { port, sockets, ended }
}

describe('a client that goes away', () => {
  it.each([
    ['closes its side', (client: RawClient) => client.socket.end()],
    ['resets the connection', (client: RawClient) => client.socket.resetAndDestroy()],
  ])('and %s while a response is due ends the request at the service', async (_how, leave) => {
    const service = await startSilentService()
    const site = await startIngressSite({ service: service.port })
    const free = site.session.freeSlots
    const client = RawClient.connect(site.addresses.http.port)
    client.send(GET)
    await eventually(() => expect(service.sockets).toHaveLength(1))
    leave(client)
    await eventually(() => expect(service.ended).toHaveLength(1))
    await eventually(() => expect(site.session.freeSlots).toBe(free))
  })

  it('in the middle of its body ends the request at the service', async () => {
    const service = await startSilentService()
    const site = await startIngressSite({ service: service.port })
    const free = site.session.freeSlots
    const client = RawClient.connect(site.addresses.http.port)
    client.send('POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\nabc')
    await eventually(() => expect(service.sockets).toHaveLength(1))
    client.socket.end()
    await eventually(() => expect(service.ended).toHaveLength(1))
    await eventually(() => expect(site.session.freeSlots).toBe(free))
  })

  it('in the middle of a download frees the stream', async () => {
    const port = await startRawService((socket) => {
      socket.once('data', () => {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n${'x'.repeat(10_000)}`)
        const timer = setInterval(() => socket.write('x'.repeat(10_000)), 5)
        socket.on('end', () => socket.end())
        socket.on('close', () => clearInterval(timer))
      })
    })
    const site = await startIngressSite({ service: port })
    const free = site.session.freeSlots
    const client = RawClient.connect(site.addresses.http.port)
    client.send(GET)
    await client.receive('xxx')
    client.socket.resetAndDestroy()
    await eventually(() => expect(site.session.freeSlots).toBe(free))
    await eventually(() => expect(site.sdk.connections).toBe(0))
  })

  it('while it waits for a stream leaves the line', async () => {
    const service = await startSilentService()
    const site = await startIngressSite({
      service: service.port,
      sessionLimits: { openStreams: 1 },
    })
    const first = RawClient.connect(site.addresses.http.port)
    first.send(GET)
    await eventually(() => expect(service.sockets).toHaveLength(1))
    const second = RawClient.connect(site.addresses.http.port)
    second.send(GET)
    await eventually(() => expect(site.slots.waiting).toBe(1))
    second.socket.destroy()
    await eventually(() => expect(site.slots.waiting).toBe(0))
  })

  it('hundreds of times leaves no slot behind', async () => {
    const service = await startSilentService()
    const site = await startIngressSite({ service: service.port })
    const free = site.session.freeSlots
    for (let round = 0; round < 3; round += 1) {
      const clients = Array.from({ length: 200 }, () => {
        const client = RawClient.connect(site.addresses.http.port)
        client.send(GET)
        return client
      })
      await eventually(() => expect(site.sdk.connections).toBe(200))
      for (const client of clients) client.socket.destroy()
      await eventually(() => expect(site.session.freeSlots).toBe(free))
      await eventually(() => expect(site.sdk.connections).toBe(0))
    }
    expect(site.endpoint.traffic).toMatchObject({ requests: 600, active: 0 })
  })
})

describe('a service that hangs up in the middle of its answer', () => {
  it.each([
    ['counted', 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart'],
    ['chunked', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n'],
  ])('leaves a %s body that the client sees is broken', async (_how, answer) => {
    const port = await startRawService((socket) => {
      socket.once('data', () => socket.end(answer))
    })
    const site = await startIngressSite({ service: port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(GET)
    expect(await client.end()).toBe('ECONNRESET')
  })

  it('breaks a TLS connection off as well', async () => {
    const port = await startRawService((socket) => {
      socket.once('data', () => {
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart')
        setTimeout(() => socket.end(), 20)
      })
    })
    const site = await startIngressSite({ service: port })
    const client = RawClient.connectTls(site.addresses.https.port, site.caPem)
    client.send(GET)
    await client.receive('part')
    await client.end()
    expect(client.text).toMatch(/part$/)
  })

  it('sends a malformed chunk: the client sees that as well', async () => {
    let goOn = () => {}
    const port = await startRawService((socket) => {
      socket.once('data', () => {
        socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart')
        goOn = () => socket.write('x\r\n0\r\n\r\n')
      })
    })
    const site = await startIngressSite({ service: port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(GET)
    // Another node would answer 502 in place of a response of which it has seen nothing yet.
    await client.receive('part')
    goOn()
    expect(await client.end()).toBe('ECONNRESET')
  })
})

describe('who does not keep up', () => {
  const TOTAL = 24 * 1_048_576

  it('a reader stops its own download alone, and gets all of it later', async () => {
    const content = Buffer.alloc(TOTAL, 'download')
    const port = await startRawService((socket) => {
      socket.on('data', (chunk: Buffer) => {
        if (!String(chunk).startsWith('GET /big')) {
          socket.write(OK)
          return
        }
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${TOTAL}\r\n\r\n`)
        socket.write(content)
      })
    })
    const site = await startIngressSite({ service: port })
    const slow = RawClient.connect(site.addresses.http.port)
    slow.socket.pause()
    slow.send(GET.replace('GET /', 'GET /big'))
    const quick = RawClient.connect(site.addresses.http.port)
    for (let round = 1; round <= 50; round += 1) {
      quick.send(GET)
      await eventually(() => expect(quick.length).toBe(OK.length * round))
    }
    // What the socket buffers of the system and one window hold, and nothing near the whole.
    const { traffic } = site.endpoint
    expect(await settled(() => traffic.bytesOut)).toBeLessThan(TOTAL)
    slow.socket.resume()
    await eventually(() => expect(slow.length).toBeGreaterThan(TOTAL))
    const body = slow.bytes.subarray(slow.bytes.indexOf('\r\n\r\n') + 4)
    expect(hash(body)).toBe(hash(content))
  })

  it('a service stops the upload that it does not read', async () => {
    const content = Buffer.alloc(TOTAL, 'upload')
    let wake: (() => void) | undefined
    const received: Buffer[] = []
    const port = await startRawService((socket) => {
      socket.pause()
      wake = () => {
        socket.on('data', (chunk: Buffer) => {
          received.push(chunk)
          if (received.reduce((sum, { length }) => sum + length, 0) > TOTAL) socket.write(OK)
        })
        socket.resume()
      }
    })
    const site = await startIngressSite({ service: port })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(`POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: ${TOTAL}\r\n\r\n`)
    client.socket.write(content)
    await eventually(() => expect(wake).toBeDefined())
    const before = await settled(() => site.endpoint.traffic.bytesIn)
    expect(before).toBeLessThan(TOTAL)
    wake?.()
    await client.receive('ok')
    const all = Buffer.concat(received)
    expect(hash(all.subarray(all.indexOf('\r\n\r\n') + 4))).toBe(hash(content))
  })

  it('a reader gets what a device sends byte by byte, in order', async () => {
    const content = Buffer.from(Array.from({ length: 200_000 }, (_, index) => index % 251))
    const site = await startIngressSite({
      service: 1,
      serve(stream) {
        let sent = -1
        const send = () => {
          while (sent < content.length) {
            sent += 1
            if (!stream.write(content.subarray(sent - 1, sent))) return
          }
        }
        const onData = () => {
          if (sent >= 0) return
          sent = 0
          stream.write(Buffer.from(`HTTP/1.1 200 OK\r\nContent-Length: ${content.length}\r\n\r\n`))
          send()
        }
        stream.handler = { onData, onEnd() {}, onDrain: send, onClose() {} }
      },
    })
    const client = RawClient.connect(site.addresses.http.port)
    client.socket.pause()
    client.send(GET)
    await settled(() => site.endpoint.traffic.bytesOut)
    client.socket.resume()
    await eventually(() => expect(client.length).toBeGreaterThan(content.length))
    const body = client.bytes.subarray(client.bytes.indexOf('\r\n\r\n') + 4)
    expect(body.equals(content)).toBe(true)
  })

  it('a client that pipelines and does not read is not served ahead', async () => {
    let answered = 0
    const port = await startRawService((socket) => {
      socket.on('data', () => {
        answered += 1
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n${'x'.repeat(200_000)}`)
      })
    })
    const site = await startIngressSite({ service: port })
    const client = RawClient.connect(site.addresses.http.port)
    client.socket.pause()
    client.send(GET.repeat(200))
    const served = await settled(() => answered)
    expect(served).toBeLessThan(100)
    client.socket.resume()
    await eventually(() => expect(answered).toBe(200))
  })
})

function hash(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

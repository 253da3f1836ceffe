import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { eventually } from '../../../helpers/eventually.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { ManualClock } from '../../../helpers/manual-clock.ts'
import { RawClient, startRawService } from '../../../helpers/raw-http.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const GET = 'GET / HTTP/1.1\r\nHost: a.test\r\n\r\n'
const SLOW_POST = 'POST / HTTP/1.1\r\nHost: no.test\r\nContent-Length: 9\r\n\r\nx'
const PLACES = 4
/** Another address of this machine. */
const CROWD = '127.0.0.2'

/** A listener with few places, and a service that answers when it is told to. */
async function startSite() {
  const due: (() => void)[] = []
  const service = await startRawService((socket) => {
    socket.on('data', () => due.push(() => socket.write(OK)))
    socket.on('end', () => socket.end())
  })
  const site = await startIngressSite({ service, limits: { connections: PLACES } })
  const { port } = site.addresses.http
  const openFrom = (localAddress: string, bytes: string) => {
    const client = new RawClient(connect({ port, host: '127.0.0.1', localAddress }))
    client.send(bytes)
    return client
  }
  const crowd = async (count: number, bytes = '', localAddress = CROWD) => {
    const clients = Array.from({ length: count }, () => openFrom(localAddress, bytes))
    await eventually(() => expect(clients.every(({ socket }) => !socket.connecting)).toBe(true))
    return clients
  }
  const answer = async (count: number) => {
    await eventually(() => expect(due).toHaveLength(count))
    for (const answerOne of due.splice(0)) answerOne()
  }
  const visit = async () => {
    const client = openFrom('127.0.0.1', GET)
    await answer(1)
    await client.receive('ok')
    return client
  }
  return { site, visit, crowd, answer, openFrom }
}

describe('a full listener', () => {
  it.each([
    ['nothing', '', CROWD],
    ['half a head', 'GET / HT', CROWD],
    ['half a body', SLOW_POST, CROWD],
    ['nothing, from the same address', '', '127.0.0.1'],
  ])('has a place for a newcomer while others send %s', async (_what, bytes, from) => {
    const { visit, crowd } = await startSite()
    const clients = await crowd(PLACES, bytes, from)
    if (bytes === SLOW_POST) await Promise.all(clients.map((it) => it.receive('ERR_NGROK_3200')))
    await visit()
    await eventually(() => expect(clients.filter(({ ending }) => ending)).toHaveLength(1))
  })

  it('keeps the connection that waits for its next request from a crowd', async () => {
    const { visit, crowd, answer } = await startSite()
    const client = await visit()
    await crowd(3 * PLACES)
    client.send(GET)
    await answer(1)
    await eventually(() => expect(client.text).toBe(OK.repeat(2)))
  })

  it('closes of one address what has been unused for longest', async () => {
    const clock = new ManualClock()
    const site = await startIngressSite({ service: 1, clock, limits: { connections: 2 } })
    const { port } = site.addresses.http
    const NOBODY = 'GET / HTTP/1.1\r\nHost: no.test\r\n\r\n'
    const used = RawClient.connect(port)
    const ask = async (times: number) => {
      used.send(NOBODY)
      await eventually(() => expect(used.text.match(/ERR_NGROK_3200\)/g)).toHaveLength(times))
    }
    await ask(1)
    const unused = RawClient.connect(port)
    unused.send(NOBODY)
    await unused.receive('ERR_NGROK_3200')
    await clock.advance(1_000)
    await ask(2)
    const late = RawClient.connect(port)
    late.send(NOBODY)
    await late.receive('ERR_NGROK_3200')
    expect(await unused.end()).toBe('end')
    await ask(3)
  })

  it('drops newcomers unheard while all others are served, and lets those end', async () => {
    const { openFrom, site, answer } = await startSite()
    const busy = Array.from({ length: PLACES }, () => openFrom(CROWD, GET))
    await eventually(() => expect(site.endpoint.traffic.active).toBe(PLACES))
    const late = openFrom('127.0.0.1', GET)
    await late.end()
    expect(late.text).toBe('')
    await answer(PLACES)
    await Promise.all(busy.map((client) => client.receive('ok')))
  })

  it('over TLS is no different', async () => {
    const { site } = await startSite()
    const { port } = site.addresses.https
    const silent = Array.from({ length: PLACES }, () => RawClient.connect(port))
    await eventually(() => expect(silent.every(({ socket }) => !socket.connecting)).toBe(true))
    const client = RawClient.connectTls(port, site.caPem)
    client.send('GET / HTTP/1.1\r\nHost: no.test\r\n\r\n')
    await client.receive('ERR_NGROK_3200')
  })
})

/** Counts the rests of connections: nothing else waits for 10 ms, or for a part of a millisecond. */
class RestClock extends ManualClock {
  rests = 0

  override sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (ms === 10 || !Number.isInteger(ms)) this.rests += 1
    return super.sleep(ms, signal)
  }
}

describe('a connection with tiny chunks', () => {
  const UPLOAD = 'POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n'

  async function startUploads() {
    const clock = new RestClock()
    const service = await startRawService((socket) => {
      socket.on('data', (chunk) => {
        if (chunk.toString('latin1').endsWith('0\r\n\r\n')) socket.write(OK)
      })
    })
    const site = await startIngressSite({ service, clock })
    const client = RawClient.connect(site.addresses.http.port)
    client.send(UPLOAD)
    return { clock, client }
  }

  it('is not read for a while when they exceed its share, and then gets its answer', async () => {
    const { clock, client } = await startUploads()
    client.send('1\r\nx\r\n'.repeat(20_000))
    await eventually(() => expect(clock.rests).toBe(1))
    client.send('0\r\n\r\n')
    expect(client.ending).toBeUndefined()
    expect(client.length).toBe(0)
    for (let n = 0; n < 5; n += 1) await clock.advance(6_000)
    await client.receive('ok')
  })

  it('is read on when its chunks are few, or large', async () => {
    const { clock, client } = await startUploads()
    client.send('1\r\nx\r\n'.repeat(1_000))
    client.send(`400\r\n${'x'.repeat(1_024)}\r\n`.repeat(2_000))
    client.send('0\r\n\r\n')
    await client.receive('ok')
    expect(clock.rests).toBe(0)
  })
})

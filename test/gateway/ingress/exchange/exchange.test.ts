import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../../../src/base/deferred.ts'
import { CONTINUE, type Outcome } from '../../../../src/policy/exchange/outcome.ts'
import type { PolicyExchange } from '../../../../src/policy/exchange/policy-exchange.ts'
import { turns } from '../../../helpers/frame-peer.ts'
import type { MemorySite } from '../../../helpers/memory-site.ts'
import { fieldsOf } from '../../../helpers/raw-http.ts'
import { startHandSite } from '../hand-device.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const HALF = 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345'
const SWITCHING = 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'
const UPGRADE = 'Connection: upgrade\r\nUpgrade: x\r\n'
const TOO_SLOW = 'ERR_GATEWAY_TOO_SLOW'
const get = (more = '') => `GET / HTTP/1.1\r\nHost: a.test\r\n${more}\r\n`
const post = (bytes: number) =>
  `POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: ${bytes}\r\n\r\n`
type Judge = (exchange: PolicyExchange) => Outcome | Promise<Outcome>
const onResponse = (onHttpResponse: Judge, onHttpRequest: Judge = () => CONTINUE) => ({
  hasResponseRules: true,
  onHttpRequest,
  onHttpResponse,
})
/** The exchange that has a stream, as the pool knows it. */
function userOf(site: MemorySite) {
  const [stream] = site.endpoint.streams.busy
  if (!stream?.user) throw new Error('nobody has a stream')
  return stream.user
}
const messages = (site: MemorySite, msg: string) =>
  site.captured.lines.filter((line) => line.msg === msg)

describe('the line of an exchange at debug level', () => {
  it('tells how long it took and what it moved', async () => {
    const { device, site, visit, read } = await startHandSite({ logLevel: 'debug' })
    const client = await visit(`${post(5)}12345`)
    await site.clock.advance(1_234)
    device.last.send(OK)
    await read(client)
    expect(messages(site, 'exchange')).toEqual([
      expect.objectContaining({
        method: 'POST',
        status: 200,
        bytesIn: 5,
        bytesOut: OK.length,
        ms: 1_234,
        clientIp: '192.0.2.7',
      }),
    ])
  })

  it('counts what an upgrade has moved', async () => {
    const { device, site, visit, read } = await startHandSite({ logLevel: 'debug' })
    const client = await visit(get(UPGRADE))
    device.last.send(`${SWITCHING}hello`)
    const head = (await read(client)).slice(0, -5)
    client.send('hi')
    await turns()
    device.last.end()
    client.finish()
    await read(client)
    expect(client.ending).toBe('end')
    expect(messages(site, 'exchange')).toEqual([
      expect.objectContaining({ status: 101, bytesIn: 2, bytesOut: head.length + 5 }),
    ])
    expect(site.endpoint.traffic).toMatchObject({ active: 0, bytesOut: head.length + 5 })
    expect(site.endpoint.traffic.bytesIn).toBe(device.last.text.length)
  })

  it('is not there at other levels', async () => {
    const { device, site, visit, read } = await startHandSite({ logLevel: 'info' })
    const client = await visit(get())
    device.last.send(OK)
    await read(client)
    expect(site.captured.lines).toEqual([])
  })
})

describe('the end of a request', () => {
  const NONE = [0, 0, 0, 0, 0, 0]

  it('counts by status, and by the time since its head', async () => {
    const { device, site, visit, read } = await startHandSite({ logLevel: 'info' })
    const { traffic } = site.endpoint
    const client = await visit(get())
    await site.clock.advance(400)
    expect(traffic.stats).toBeUndefined()
    device.last.send(OK)
    await read(client)
    expect(traffic.stats?.classes).toEqual([0, 0, 1, 0, 0, 0])
    expect(traffic.stats?.buckets).toEqual([0, 0, 0, 0, 1, ...NONE])
    expect(traffic.stats?.sumSeconds).toBe(0.4)
  })

  it('counts what has no response, and an upgrade without its duration', async () => {
    const { device, site, visit, read } = await startHandSite({ logLevel: 'info' })
    const left = await visit(get())
    left.finish()
    await read(left)
    const upgraded = await visit(get(UPGRADE))
    device.last.send(SWITCHING)
    await read(upgraded)
    device.last.end()
    upgraded.finish()
    await read(upgraded)
    const { stats } = site.endpoint.traffic
    expect(stats?.classes).toEqual([1, 1, 0, 0, 0, 0])
    expect(stats?.buckets).toEqual([...NONE, 0, 0, 0, 0, 0])
  })

  it('counts an answer of the gateway like one of the device', async () => {
    const { device, site, visit, read } = await startHandSite({ logLevel: 'info' })
    const client = await visit(get())
    device.last.send('nonsense\r\n\r\n')
    expect(await read(client)).toMatch(/^HTTP\/1\.1 502 /)
    expect(site.endpoint.traffic.stats?.classes).toEqual([0, 0, 0, 0, 0, 1])
  })
})

describe('a client that closes its side', () => {
  it('is let go cleanly before its response has begun, and the device with it', async () => {
    const { device, site, free, visit, read } = await startHandSite()
    const client = await visit(get())
    client.finish()
    expect(await read(client)).toBe('')
    expect(client.ending).toBe('end')
    expect(device.last.isEnded).toBe(true)
    expect(site.session.freeSlots).toBe(free)
    expect(site.endpoint.traffic).toMatchObject({ active: 0, refused: 0 })
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ abandoned: 1, answered: 0 })
  })

  it('sees that a response is cut that had begun', async () => {
    const { device, site, free, visit, read } = await startHandSite()
    const client = await visit(get())
    device.last.send(HALF)
    expect(await read(client)).toBe(HALF)
    client.finish()
    await read(client)
    expect(client.ending).toBe('reset')
    expect(site.session.freeSlots).toBe(free)
    expect(site.endpoint.traffic.active).toBe(0)
  })

  it('ends cleanly when it has its response, whatever is left of its body', async () => {
    const { device, visit, read } = await startHandSite()
    const client = await visit(`${post(100)}12345`)
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    client.finish()
    await read(client)
    expect(client.ending).toBe('end')
  })

  it('is not asked for by a policy any more', async () => {
    const verdict = createDeferred<Outcome>()
    const ends: unknown[] = []
    const { device, site, visit, read } = await startHandSite({
      policy: onResponse(
        () => verdict.promise,
        (exchange) => {
          exchange.whenUpstreamEnds((status) => ends.push(status))
          return CONTINUE
        },
      ),
    })
    const client = await visit(get())
    client.finish()
    await read(client)
    // That the gateway did not wait is no fault of the device.
    expect(ends).toEqual([499])
    const second = await visit(get())
    device.last.send(OK)
    await turns()
    second.finish()
    await read(second)
    expect(second.ending).toBe('end')
    expect(ends).toEqual([499, 200])
    verdict.resolve(CONTINUE)
    await turns()
    expect(await read(second)).toBe('')
    expect(site.captured.lines).toEqual([])
  })
})

describe('a client that is gone', () => {
  it.each([
    ['waits', '', { abandoned: 1, answered: 0 }],
    ['reads', HALF, { abandoned: 0, answered: 1 }],
  ])('while it %s leaves nothing behind', async (_what, answer, counts) => {
    const { device, site, free, visit, read } = await startHandSite()
    const client = await visit(get())
    device.last.send(answer)
    await read(client)
    client.reset()
    await turns()
    expect(device.last.isEnded).toBe(true)
    expect(site.session.freeSlots).toBe(free)
    expect(site.endpoint.traffic).toMatchObject({ active: 0, requests: 1, refused: 0 })
    expect(site.endpoint.traffic.outcomes).toMatchObject({ waiting: 0, counts })
    expect(site.connections.size).toBe(0)
  })

  it('leaves nothing of what changes its body or its response', async () => {
    const pipes: PassThrough[] = []
    const transform = {
      isWhole: false,
      create: () => {
        pipes.push(new PassThrough())
        return pipes.at(-1) as PassThrough
      },
    }
    const { device, site, visit, read } = await startHandSite({
      policy: onResponse(
        (exchange) => {
          exchange.transformResponse(transform)
          return CONTINUE
        },
        (exchange) => {
          if (exchange.request?.method === 'POST') exchange.transformRequest(transform)
          return CONTINUE
        },
      ),
    })
    const preparing = await visit(`${post(10)}12345`)
    const reading = await visit(get())
    device.last.send(HALF)
    expect(await read(reading)).toContain('12345')
    expect(pipes.map(({ destroyed }) => destroyed)).toEqual([false, false])
    for (const client of [preparing, reading]) client.reset()
    await turns()
    expect(pipes.map(({ destroyed }) => destroyed)).toEqual([true, true])
    expect(site.endpoint.traffic.active).toBe(0)
  })

  it('does not wait for a name any more', async () => {
    const { site, visit } = await startHandSite()
    site.registry.suspend(site.endpoint, { credentialId: 'cr_a' })
    const client = await visit(get())
    expect(site.registry.held.size).toBe(1)
    client.finish()
    await turns()
    expect(site.registry.held.size).toBe(0)
  })
})

describe('an exchange that has to give up its stream', () => {
  it('is answered with 503 and the connection goes on, before anything was answered', async () => {
    const { device, site, free, visit, read } = await startHandSite()
    const client = await visit(get())
    userOf(site).evict()
    const answer = await read(client)
    expect(answer).toMatch(/^HTTP\/1\.1 503 .*ERR_GATEWAY_SATURATED/s)
    expect(fieldsOf(answer)).not.toHaveProperty('connection')
    expect(site.session.freeSlots).toBe(free)
    client.send(get())
    await turns()
    device.last.send(OK)
    expect((await read(client)).slice(answer.length)).toBe(OK)
    expect([...site.endpoint.traffic.errors]).toEqual([['ERR_GATEWAY_SATURATED', 1]])
    // The gateway's own limits say nothing about the service.
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ answered: 1, abandoned: 0 })
  })

  it.each([
    ['behind the begin of a response', get(), HALF],
    ['as an upgraded connection', get(UPGRADE), `${SWITCHING}hello`],
  ])('is broken off %s', async (_what, text, answer) => {
    const { device, site, free, visit, read } = await startHandSite()
    const client = await visit(text)
    device.last.send(answer)
    const begun = await read(client)
    userOf(site).evict()
    expect(await read(client)).toBe(begun)
    expect(client.ending).toBe('reset')
    expect([...site.endpoint.traffic.errors]).toEqual([[TOO_SLOW, 1]])
    expect(site.session.freeSlots).toBe(free)
    expect(site.endpoint.traffic).toMatchObject({ active: 0, refused: 1 })
  })
})

describe('the pace of an exchange', () => {
  it('is what both sides have moved in ten seconds', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(post(100_000))
    expect(userOf(site).pace).toEqual({ rate: undefined, isHeldUp: false })
    // Looked at for the first time.
    await site.advance(1_000)
    client.send('x'.repeat(5_000))
    await turns()
    device.last.send(`HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n${'x'.repeat(2_957)}`)
    expect(await read(client)).toHaveLength(3_000)
    await site.advance(9_000)
    expect(userOf(site).pace.rate).toBeUndefined()
    await site.advance(1_000)
    expect(userOf(site).pace).toEqual({ rate: 800, isHeldUp: false })
  })

  it('is held up by a client that does not read', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(get())
    device.last.send(`HTTP/1.1 200 OK\r\nContent-Length: 100001\r\n\r\n${'x'.repeat(100_000)}`)
    await turns()
    expect(userOf(site).pace.isHeldUp).toBe(true)
    await read(client)
    expect(userOf(site).pace.isHeldUp).toBe(false)
  })
})

describe('what waits', () => {
  it('of a response that is judged is on the account of its client', async () => {
    const verdict = createDeferred<Outcome>()
    const { device, site, visit, read } = await startHandSite({
      policy: onResponse(() => verdict.promise),
    })
    const client = await visit(get())
    device.last.send('HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n')
    device.last.send('x'.repeat(20_000))
    await turns()
    expect(site.buffers.bytes).toBe(20_000)
    expect(site.endpoint.streams.buffers.bytes).toBe(20_000)
    device.last.send('x'.repeat(30_000))
    await turns()
    expect(site.buffers.bytes).toBe(50_000)
    verdict.resolve(CONTINUE)
    expect((await read(client)).endsWith('x'.repeat(50_000))).toBe(true)
    await site.advance(1_000)
    expect(site.buffers.bytes).toBe(0)
  })

  it('of a response that is changed as a whole is, too', async () => {
    const { device, site, visit } = await startHandSite({
      policy: onResponse((exchange) => {
        const create = () => new PassThrough({ transform: (_chunk, _encoding, done) => done() })
        exchange.transformResponse({ isWhole: true, create })
        return CONTINUE
      }),
    })
    await visit(get())
    device.last.send(`HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n${'x'.repeat(20_000)}`)
    await site.advance(1_000)
    expect(site.buffers.bytes).toBe(20_000)
  })

  it('of an upgraded connection is, too', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(get(UPGRADE))
    device.last.send(SWITCHING)
    await read(client)
    device.isDeaf = true
    for (let at = 0; at < 10; at += 1) client.send('x'.repeat(50_000))
    await turns(30)
    expect(site.buffers.bytes).toBeGreaterThan(0)
    client.reset()
    await turns()
    expect(site.buffers.bytes).toBe(0)
  })
})

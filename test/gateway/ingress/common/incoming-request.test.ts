import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { createDeferred } from '../../../../src/base/deferred.ts'
import { CONTINUE, type Outcome, respond } from '../../../../src/policy/exchange/outcome.ts'
import type {
  BodyTransform,
  PolicyExchange,
} from '../../../../src/policy/exchange/policy-exchange.ts'
import type { CompiledPolicy } from '../../../../src/policy/policy.ts'
import { turns } from '../../../helpers/frame-peer.ts'
import { fieldsOf } from '../../../helpers/raw-http.ts'
import { startHandSite } from '../hand-device.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const GO_ON = 'HTTP/1.1 100 Continue\r\n\r\n'
const EXPECT = 'Expect: 100-continue\r\n'
const WHO = { credentialId: 'cr_a' }
const HEAD_BYTES = 2_048
const PIECE_BYTES = 65_536

const request = (method: string, more = '', host = 'a.test') =>
  `${method} / HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`
const post = (bytes: number, more = '', host = 'a.test') =>
  request('POST', `Content-Length: ${bytes}\r\n${more}`, host)

const onRequest = (
  onHttpRequest: (exchange: PolicyExchange) => Outcome | Promise<Outcome>,
): Partial<CompiledPolicy> => ({ hasRequestRules: true, onHttpRequest })

/** A policy that puts a body through what changes nothing. */
const passing = onRequest((exchange) => {
  const transform: BodyTransform = { isWhole: true, create: () => new PassThrough() }
  exchange.transformRequest(transform)
  return CONTINUE
})

describe('what a request may keep in memory while it waits for a device', () => {
  async function heldBytesOf(text: string): Promise<number> {
    const { site, visit } = await startHandSite()
    site.registry.suspend(site.endpoint, WHO)
    const client = await visit(text)
    expect(site.registry.held.size).toBe(1)
    const { bytes } = site.registry.held
    client.reset()
    await turns()
    expect(site.registry.held).toMatchObject({ size: 0, bytes: 0 })
    return bytes
  }
  const FIELDS = 'Hosta.test'.length

  it('is what a head costs, and its fields', async () => {
    expect(await heldBytesOf(request('GET'))).toBe(HEAD_BYTES + FIELDS)
    const more = `${'n'.repeat(100)}: ${'v'.repeat(1_000)}\r\n`
    expect(await heldBytesOf(request('GET', more))).toBe(HEAD_BYTES + FIELDS + 1_100)
  })

  it('is a piece of a body as well, where one is due', async () => {
    const fields = FIELDS + 'Content-Length70000'.length
    expect(await heldBytesOf(post(70_000))).toBe(HEAD_BYTES + fields + PIECE_BYTES)
    expect(await heldBytesOf(request('POST', 'Content-Length: 0\r\n'))).toBe(
      HEAD_BYTES + FIELDS + 'Content-Length0'.length,
    )
  })

  it.each([
    ['no more than a body that has come', 5],
    ['all of a body that was read for a policy', 200_000],
  ])('is %s', async (_what, length) => {
    const { site, visit } = await startHandSite({
      policy: onRequest(async ({ request: asked }) => {
        await asked?.readBody(1_000_000)
        return { kind: 'forward', url: 'http://cam.internal' }
      }),
    })
    site.registry.suspend(site.bind('cam.internal'), WHO)
    await visit(post(length) + 'x'.repeat(length))
    expect(site.registry.held.bytes).toBe(
      HEAD_BYTES + FIELDS + `Content-Length${length}`.length + length,
    )
  })
})

describe('the turn of a client', () => {
  async function stageOf(text: string, isDeaf = false) {
    const { device, site, visit, read } = await startHandSite()
    device.isDeaf = isDeaf
    const client = await visit(text)
    const [connection] = site.connections
    return { device, site, client, read, stage: () => connection?.stage }
  }

  it('is while its body is due', async () => {
    const { client, stage } = await stageOf(`${post(10)}12345`)
    expect(stage()).toBe('awaited')
    client.send('67890')
    await turns()
    expect(stage()).toBe('busy')
  })

  it('is not without a body, nor before its body is asked for', async () => {
    expect((await stageOf(request('GET'))).stage()).toBe('busy')
    const { device, client, stage } = await stageOf(post(10, EXPECT))
    expect(stage()).toBe('busy')
    // It may begin without being asked, and then it goes on.
    client.send('12345')
    await turns()
    expect(stage()).toBe('awaited')
    expect(device.last.text).toMatch(/12345$/)
  })

  it('begins when the device asks for the body', async () => {
    const { device, client, read, stage } = await stageOf(post(10, EXPECT))
    device.last.send(GO_ON)
    expect(await read(client)).toBe(GO_ON)
    expect(stage()).toBe('awaited')
  })

  it('is not while the device takes no more', async () => {
    const { client, stage } = await stageOf(post(1_000_000), true)
    for (let at = 0; at < 10; at += 1) client.send('x'.repeat(50_000))
    await turns(30)
    expect(stage()).toBe('busy')
  })
})

describe('a 100', () => {
  it('is passed on once, however often the device says it', async () => {
    const { device, visit, read } = await startHandSite()
    const client = await visit(post(2, EXPECT))
    device.last.send(GO_ON + GO_ON)
    expect(await read(client)).toBe(GO_ON)
    client.send('hi')
    await turns()
    device.last.send(OK)
    expect(await read(client)).toBe(GO_ON + OK)
  })

  it('is not passed on to a client of HTTP/1.0', async () => {
    const { device, visit, read } = await startHandSite()
    const client = await visit('POST / HTTP/1.0\r\nHost: a.test\r\nContent-Length: 2\r\n\r\n')
    device.last.send(GO_ON)
    expect(await read(client)).toBe('')
  })

  it('comes from the gateway, once, where a policy reads the body', async () => {
    const { device, visit, read } = await startHandSite({
      policy: onRequest(async ({ request: asked }) => {
        await asked?.readBody(1)
        await asked?.readBody(100)
        return CONTINUE
      }),
    })
    const client = await visit(post(2, EXPECT))
    expect(await read(client)).toBe(GO_ON)
    client.send('hi')
    await turns()
    // Nobody has to wait for one any more: the body is here.
    expect(fieldsOf(device.last.text)).not.toHaveProperty('expect')
    expect(device.last.text).toMatch(/\r\n\r\nhi$/)
    device.last.send(GO_ON + OK)
    expect(await read(client)).toBe(GO_ON + OK)
  })

  it('comes from the gateway where a policy changes the body', async () => {
    const { visit, read } = await startHandSite({ policy: passing })
    expect(await read(await visit(post(2, EXPECT)))).toBe(GO_ON)
  })

  it.each([
    ['nobody waits for it', post(2)],
    ['there is no body', request('GET', EXPECT)],
  ])('does not come from the gateway where %s', async (_what, text) => {
    for (const policy of [
      passing,
      onRequest(async ({ request: asked }) => {
        expect(await asked?.readBody(100)).toHaveLength(text.startsWith('GET') ? 0 : 2)
        return CONTINUE
      }),
    ]) {
      const { visit, read } = await startHandSite({ policy })
      const client = await visit(text)
      client.send(text.startsWith('GET') ? '' : 'hi')
      expect(await read(client)).not.toContain(' 100 ')
    }
  })

  it('is left to the device where no policy looks at the body', async () => {
    const { device, visit, read } = await startHandSite({ policy: onRequest(() => CONTINUE) })
    const client = await visit(post(2, EXPECT))
    expect(fieldsOf(device.last.text)).toMatchObject({ expect: '100-continue' })
    expect(await read(client)).toBe('')
  })
})

describe('a head', () => {
  it('reaches the device byte by byte', async () => {
    const { device, visit } = await startHandSite()
    await visit(request('GET', 'X-Name: \xe9\xff\r\n'))
    expect(device.last.text).toContain('X-Name: \xe9\xff\r\n')
  })
})

describe('the body of a request without one', () => {
  it('is empty for a policy, and nothing is asked of the client', async () => {
    const seen: unknown[] = []
    const { visit, read } = await startHandSite({
      policy: onRequest(async ({ request: asked }) => {
        seen.push(await asked?.readBody(10))
        return respond({ status: 204, headers: [], body: '' })
      }),
    })
    expect(await read(await visit(request('GET')))).toMatch(/^HTTP\/1\.1 204 /)
    expect(seen).toEqual([Buffer.alloc(0)])
  })
})

describe('the connection of a client whose body is not wanted', () => {
  const limits = { discardedBytes: 1_000 }
  const nobody = (text: string) => text.replace('a.test', 'nobody.test')

  it.each([
    ['goes on behind one as long as is dropped', nobody(post(1_000)), true],
    ['ends before a longer one', nobody(post(1_001)), false],
    [
      'goes on before one in chunks, which may be short',
      nobody(request('POST', 'Transfer-Encoding: chunked\r\n')),
      true,
    ],
    [
      'ends where the client waits for a 100, and may send it or not',
      nobody(post(10, EXPECT)),
      false,
    ],
    ['goes on where there is none, whatever is expected', nobody(request('GET', EXPECT)), true],
  ])('%s', async (_what, text, goesOn) => {
    const { visit, read } = await startHandSite({ limits })
    const client = await visit(text)
    const answer = await read(client)
    expect(answer).toMatch(/^HTTP\/1\.1 404 /)
    expect(fieldsOf(answer).connection).toBe(goesOn ? undefined : 'close')
    expect(client.ending).toBe(goesOn ? undefined : 'end')
  })

  it.each([
    ['ends where that waits for a 100', '', 'close'],
    ['goes on where that has begun to send it', '123', undefined],
  ])('%s and has its answer', async (_what, begin, connection) => {
    const { device, visit, read } = await startHandSite({ limits })
    const client = await visit(post(5, EXPECT))
    client.send(begin)
    await turns()
    device.last.send(OK)
    expect(fieldsOf(await read(client)).connection).toBe(connection)
  })

  it('goes on where the device has asked for it', async () => {
    const { device, visit, read } = await startHandSite({ limits })
    const client = await visit(post(5, EXPECT))
    device.last.send(GO_ON + OK)
    expect(await read(client)).toBe(GO_ON + OK)
    client.send(`12345${request('GET')}`)
    await turns()
    expect(device.streams).toHaveLength(2)
  })
})

describe('a body that a policy changes', () => {
  it('goes to the device as a whole, whatever its fields said of its length', async () => {
    const { device, visit, read } = await startHandSite({ policy: passing })
    const chunked = 'Transfer-Encoding: chunked\r\nX-Kept: 1\r\n'
    const client = await visit(request('PUT', `${chunked}X-Name: \xe9\r\n${EXPECT}`))
    expect(await read(client)).toBe(GO_ON)
    client.send('3\r\nabc\r\n')
    await turns()
    expect(device.streams).toEqual([])
    client.send('2\r\nde\r\n0\r\n\r\n')
    await turns()
    expect(device.last.text).toMatch(/^PUT \/ HTTP\/1\.1\r\n.*\r\n\r\nabcde$/s)
    const fields = fieldsOf(device.last.text)
    expect(fields).toMatchObject({ 'x-kept': '1', 'x-name': '\xe9', 'content-length': '5' })
    expect(fields).not.toHaveProperty('transfer-encoding')
    expect(fields).not.toHaveProperty('expect')
    device.last.send(OK)
    expect(await read(client)).toBe(GO_ON + OK)
  })

  it('is told of its length once', async () => {
    const { device, visit } = await startHandSite({ policy: passing })
    await visit(`${post(3)}abc`)
    expect(device.last.text.match(/content-length/gi)).toHaveLength(1)
  })

  it('is on the account of its client until the exchange is over', async () => {
    const { device, site, visit, read } = await startHandSite({ policy: passing })
    const client = await visit(post(300_000))
    // More than a pipe takes at once: it is asked for again.
    for (let at = 0; at < 300_000; at += 100_000) {
      expect(site.buffers.bytes).toBe(at)
      client.send('x'.repeat(100_000))
      await turns(8)
    }
    expect(device.last.text).toHaveLength(device.last.text.indexOf('\r\n\r\n') + 4 + 300_000)
    await site.advance(1_000)
    expect(site.buffers.bytes).toBe(300_000)
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    await site.advance(1_000)
    expect(site.buffers.bytes).toBe(0)
  })

  it('waits for what changes it in its own time, and goes on', async () => {
    const policy = onRequest((exchange) => {
      const create = () =>
        new PassThrough({
          transform: (chunk, _encoding, done) => void setImmediate(() => done(null, chunk)),
        })
      exchange.transformRequest({ isWhole: true, create })
      return CONTINUE
    })
    const { device, visit } = await startHandSite({ policy })
    const client = await visit(post(300_000))
    for (let at = 0; at < 300_000; at += 50_000) client.send('x'.repeat(50_000))
    await turns(60)
    expect(device.last.text.endsWith(`\r\n\r\n${'x'.repeat(300_000)}`)).toBe(true)
  })

  it('is counted as it came while it is changed, and as it goes on afterwards', async () => {
    const goOn = createDeferred()
    class Shrinking extends PassThrough {
      override _transform(_chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
        done()
      }
      override _flush(done: (error: null, rest: string) => void): void {
        void goOn.promise.then(() => done(null, 'short'))
      }
    }
    const { device, site, visit } = await startHandSite({
      policy: onRequest((exchange) => {
        exchange.transformRequest({ isWhole: true, create: () => new Shrinking() })
        return CONTINUE
      }),
    })
    await visit(post(10_000) + 'x'.repeat(10_000))
    await site.advance(1_000)
    expect(site.buffers.bytes).toBe(10_000)
    goOn.resolve()
    await turns()
    expect(device.last.text).toMatch(/\r\n\r\nshort$/)
    await site.advance(1_000)
    expect(site.buffers.bytes).toBe(5)
  })
})

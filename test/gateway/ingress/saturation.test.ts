import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import type { Stream } from '../../../src/muxado/stream.ts'
import { compilePolicy } from '../../../src/policy/policy.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { turns } from '../../helpers/frame-peer.ts'
import {
  type MemorySite,
  type MemorySiteOptions,
  startMemorySite,
} from '../../helpers/memory-site.ts'

const STREAMS = 24
const GREEDY = '192.0.2.1'
const SECOND = '192.0.2.2'
const HONEST = '192.0.2.3'
const RESTLESS = '192.0.2.4'
const BODY_BYTES = 400_000
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const LARGE = `HTTP/1.1 200 OK\r\nContent-Length: ${BODY_BYTES}\r\n\r\n${'x'.repeat(BODY_BYTES)}`
const PART = LARGE.replace(`${BODY_BYTES}`, `${BODY_BYTES + 1}`)
const SWITCH = 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'

const replacing = (phase: string, type: string) =>
  compilePolicy(
    { [phase]: [{ actions: [{ type, config: { replacements: [{ from: 'a', to: 'b' }] } }] }] },
    { clock: systemClock, log: captureLog().log },
  )

/** A device: `/large` and `/` are answered, of `/part` the end is missing, `/switch` changes the protocol, `/hang` is not. */
function serve(stream: Stream): void {
  let heard = ''
  stream.handler = {
    onData(chunk) {
      heard += chunk.toString('latin1')
      stream.release(chunk.length)
      if (!heard.endsWith('\r\n\r\n')) return
      if (heard.includes('GET /large ')) stream.write(Buffer.from(LARGE))
      else if (heard.includes('GET /part ')) stream.write(Buffer.from(PART))
      else if (heard.includes('GET /switch ')) stream.write(Buffer.from(SWITCH))
      else if (!heard.includes(' /hang ')) stream.write(Buffer.from(OK))
      heard = ''
    },
    onEnd: () => stream.end(),
    onDrain() {},
    onClose() {},
  }
}

async function startSite(options: Partial<MemorySiteOptions> = {}) {
  const site = await startMemorySite({ serve, openStreams: STREAMS, ...options })
  const ask = async (address: string, path: string, host = 'a.test', more = '') => {
    const socket = site.visit(address)
    socket.send(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`)
    await turns(5)
    return { socket, text: () => Buffer.concat(socket.received).toString('latin1') }
  }
  const askMany = async (count: number, ...asked: Parameters<typeof ask>) => {
    const all: Awaited<ReturnType<typeof ask>>[] = []
    while (all.length < count) all.push(await ask(...asked))
    return all
  }
  return { site, ask, askMany }
}

/** Moves the time in steps in which the device and its answers move, too. */
async function pass(site: MemorySite, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 500) {
    await site.advance(500)
    await turns(5)
  }
}

/** What a client that reads gets in the end. */
async function readAll({
  socket,
  text,
}: Awaited<ReturnType<Awaited<ReturnType<typeof startSite>>['ask']>>) {
  while (socket.consume(1_000_000) > 0) await turns(3)
  return text()
}

describe('a device whose streams are taken', () => {
  it.each(['/hang', '/large'])('answers others at once, whoever holds %s', async (path) => {
    const { site, ask, askMany } = await startSite()
    await askMany(2 * STREAMS, GREEDY, path)
    expect(site.slots.waiting).toBeGreaterThan(0)
    for (const host of ['b.test', 'a.test']) {
      expect(await readAll(await ask(HONEST, '/', host))).toContain('200 OK')
    }
    // From the same address, too: what is reserved is for endpoints that hold few.
    expect(await readAll(await ask(GREEDY, '/', 'b.test'))).toContain('200 OK')
    await site.close()
  })

  it('says so within 8 s, with a code of its own and a time to come back', async () => {
    const { site, askMany } = await startSite()
    const all = await askMany(2 * STREAMS, GREEDY, '/hang')
    const waiting = site.slots.waiting
    await pass(site, 7_500)
    const texts = await Promise.all(all.map(readAll))
    const refused = texts.filter((text) => text !== '')
    expect(refused).toHaveLength(waiting)
    for (const text of refused) {
      expect(text).toMatch(/^HTTP\/1\.1 503 /)
      expect(text).toContain('ngrok-error-code: ERR_GATEWAY_SATURATED\r\n')
      expect(text).toMatch(/\r\nretry-after: [1-9]/)
    }
    expect(site.endpoint.traffic.errors.get('ERR_GATEWAY_SATURATED')).toBe(waiting)
    await site.close()
  })

  it('counts a request that was given up until the device lets go of it', async () => {
    const site = await startMemorySite({
      serve: (stream) => {
        // Deaf: neither answers nor ends.
        stream.handler = { onData() {}, onEnd() {}, onDrain() {}, onClose() {} }
      },
      openStreams: STREAMS,
    })
    for (let count = 0; count < 2 * STREAMS; count += 1) {
      const socket = site.visit(GREEDY)
      socket.send('GET / HTTP/1.1\r\nHost: a.test\r\n\r\n')
      await turns(3)
      socket.reset()
      await turns(3)
    }
    expect(site.connections.size).toBe(0)
    expect(site.session.freeSlots).toBe(site.slots.reserved)
    expect(site.endpoint.streams.holding.held).toBe(STREAMS - site.session.freeSlots)
    const socket = site.visit(HONEST)
    socket.send('GET / HTTP/1.1\r\nHost: b.test\r\n\r\n')
    await turns(5)
    expect(site.plain.streams.holding.held).toBe(1)
    await site.close()
  })
})

/** All streams that an endpoint may have are held by two clients, long enough to be judged. */
async function crowd(path: string, more = '') {
  const { site, ask, askMany } = await startSite()
  const held = [
    ...(await askMany(STREAMS, GREEDY, path, 'a.test', more)),
    ...(await askMany(STREAMS, SECOND, path, 'a.test', more)),
  ]
  await pass(site, 30_000)
  return { site, ask, held }
}

describe('while somebody else waits for a stream', () => {
  it('a reader that takes nothing is broken off', async () => {
    const { site, ask, held } = await crowd('/large')
    const isCut = () => held.filter(({ socket }) => socket.ending === 'reset').length
    // Those that wait belong to those who hold: equals do not drive each other out.
    const before = isCut()
    await pass(site, 10_000)
    expect(isCut()).toBe(before)
    const honest = await ask(HONEST, '/')
    const isServed = () => honest.socket.consume(1_000) > 0
    for (let seconds = 0; seconds < 5 && !isServed(); seconds += 1) await pass(site, 1_000)
    expect(honest.text()).toContain('200 OK')
    await site.close()
  })

  it('a request that hangs is answered, with as many more as its client holds', async () => {
    const { site, ask, held } = await crowd('/hang')
    const busy = site.endpoint.streams.holding.held
    const honest = await ask(HONEST, '/')
    const isServed = () => honest.socket.consume(1_000) > 0
    for (let seconds = 0; seconds < 5 && !isServed(); seconds += 1) await pass(site, 1_000)
    expect(honest.text()).toContain('200 OK')
    const texts = await Promise.all(held.map(readAll))
    const hanging = texts.filter((text) => text === '')
    expect(hanging.length).toBeLessThan(busy)
    expect(hanging.length).toBeGreaterThan(busy - 5)
    for (const text of texts) if (text !== '') expect(text).toContain('ERR_GATEWAY_SATURATED')
    await site.close()
  })

  it('who comes and goes all the time does not keep others from a stream', async () => {
    const { site, ask } = await crowd('/large')
    const poll = await ask(HONEST, '/hang')
    await pass(site, 5_000)
    const honest = await ask(HONEST, '/')
    expect(site.slots.waiting).toBe(1)
    // It has a stream already, so whoever has none comes first, time and again.
    const isServed = () => honest.socket.consume(1_000) > 0
    for (let seconds = 0; seconds < 6 && !isServed(); seconds += 1) {
      const restless = await ask(RESTLESS, '/hang')
      await pass(site, 1_000)
      restless.socket.reset()
    }
    expect(honest.text()).toContain('200 OK')
    expect(await readAll(poll)).toBe('')
    await site.close()
  })

  it('a WebSocket of a client that has no other goes on', async () => {
    const { site, ask } = await startSite()
    const sockets: Awaited<ReturnType<typeof ask>>[] = []
    for (let count = 0; count < STREAMS; count += 1) {
      const upgrade = 'Connection: upgrade\r\nUpgrade: x\r\n'
      sockets.push(await ask(`192.0.2.${100 + count}`, '/switch', 'a.test', upgrade))
    }
    await pass(site, 30_000)
    const texts = await Promise.all(sockets.map(readAll))
    const open = texts.filter((text) => text.includes(' 101 ')).length
    expect(open).toBeGreaterThan(STREAMS / 2)
    const honest = await ask(HONEST, '/')
    expect(site.slots.waiting).toBe(1)
    await pass(site, 8_000)
    expect(await readAll(honest)).toContain('503')
    expect(site.endpoint.traffic.active).toBe(open)
    await site.close()
  })

  it('nobody is ended where nobody waits', async () => {
    const { site, askMany } = await startSite()
    const all = await askMany(5, GREEDY, '/large')
    await pass(site, 60_000)
    expect(all.map(({ socket }) => socket.ending)).toEqual(Array(5).fill(undefined))
    await site.close()
  })
})

describe('the budget', () => {
  it('holds no more than it may for readers that take nothing, and quick ones get all', async () => {
    const budget = 1_000_000
    const { site, ask, askMany } = await startSite({ bufferBytes: budget })
    const limit = site.endpoint.streams.buffers.limitBytes
    let most = 0
    const slow: Awaited<ReturnType<typeof askMany>> = []
    for (let count = 0; count < 12; count += 1) {
      slow.push(...(await askMany(1, GREEDY, '/large')))
      most = Math.max(most, site.buffers.bytes)
      await pass(site, 1_000)
    }
    expect(most).toBeGreaterThan(limit / 2)
    expect(most).toBeLessThanOrEqual(limit)
    expect(slow.filter(({ socket }) => socket.ending === 'reset').length).toBeGreaterThan(5)
    expect(site.endpoint.traffic.errors.get('ERR_GATEWAY_TOO_SLOW')).toBeGreaterThan(5)
    const honest = await ask(HONEST, '/large')
    expect((await readAll(honest)).length).toBe(LARGE.length)
    expect(honest.socket.ending).toBeUndefined()
    await site.close()
  })

  it('counts what is written, and what was taken no longer', async () => {
    const { site, ask } = await startSite()
    const { buffers } = site
    const reader = await ask(GREEDY, '/large')
    const held = buffers.bytes
    expect(held).toBeGreaterThan(200_000)
    expect([site.endpoint.streams.buffers.bytes, site.slots.buffers.bytes]).toEqual([held, held])
    await readAll(reader)
    expect(buffers.bytes).toBe(0)
    const gone = await ask(GREEDY, '/large', 'b.test')
    expect(site.plain.streams.buffers.bytes).toBeGreaterThan(200_000)
    gone.socket.reset()
    await turns(5)
    expect(buffers.bytes).toBe(0)
    await site.close()
  })

  it.each([
    ['heads that do not end', '/', `X: ${'x'.repeat(60_000)}`],
    ['heads of requests that wait', '/hang', `X: ${'x'.repeat(60_000)}\r\n`],
  ])('counts %s', async (_what, path, more) => {
    const budget = 1_000_000
    const { site, ask } = await startSite({ bufferBytes: budget })
    let most = 0
    const sockets: Awaited<ReturnType<typeof ask>>['socket'][] = []
    for (let count = 0; count < 25; count += 1) {
      const socket = site.visit(GREEDY)
      socket.send(`GET ${path} HTTP/1.1\r\nHost: a.test\r\n${more}${path === '/' ? '' : '\r\n'}`)
      await turns(5)
      sockets.push(socket)
      most = Math.max(most, site.buffers.bytes)
    }
    expect(most).toBeGreaterThan(400_000)
    expect(most).toBeLessThanOrEqual(budget)
    expect(sockets.filter(({ ending }) => ending === 'reset').length).toBeGreaterThan(5)
    expect(await readAll(await ask(HONEST, '/', 'b.test'))).toContain('200 OK')
    for (const socket of sockets) socket.reset()
    await turns(5)
    expect(site.buffers.bytes).toBe(0)
    await site.close()
  })

  it('counts the body of a request that a policy rewrites, while there is a copy of it', async () => {
    const policy = replacing('on_http_request', 'request-body-find-replace')
    const { site } = await startSite({ policy })
    const socket = site.visit(GREEDY)
    const half = 'x'.repeat(400_000)
    socket.send('POST /hang HTTP/1.1\r\nHost: a.test\r\nContent-Length: 800000\r\n\r\n')
    socket.send(half)
    await turns(20)
    expect(site.buffers.bytes).toBeGreaterThanOrEqual(half.length)
    expect(site.buffers.bytes).toBeLessThan(half.length + 100_000)
    socket.send(half)
    await eventually(() => expect(site.endpoint.streams.holding.held).toBe(1))
    expect(site.buffers.bytes).toBeGreaterThanOrEqual(2 * half.length)
    socket.reset()
    await turns(5)
    expect(site.buffers.bytes).toBe(0)
    await site.close()
  })

  it('counts the body of a response that a policy rewrites', async () => {
    const policy = replacing('on_http_response', 'response-body-find-replace')
    const { site, ask } = await startSite({ policy })
    const reader = await ask(GREEDY, '/part')
    await turns(50)
    expect(site.buffers.bytes).toBe(BODY_BYTES)
    reader.socket.reset()
    await turns(5)
    expect(site.buffers.bytes).toBe(0)
    const honest = await ask(HONEST, '/large')
    await eventually(async () => {
      expect((await readAll(honest)).endsWith('x'.repeat(BODY_BYTES))).toBe(true)
    })
    expect(site.buffers.bytes).toBe(0)
    await site.close()
  })
})

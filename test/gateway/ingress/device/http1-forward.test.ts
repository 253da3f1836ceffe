import { describe, expect, it } from 'vitest'
import { ErrorCode } from '../../../../src/muxado/error-code.ts'
import { turns } from '../../../helpers/frame-peer.ts'
import { startHandSite } from '../hand-device.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const BROKEN = 'ERR_NGROK_3004'
const STALE = 'ERR_GATEWAY_STALE_CONNECTION'
const IDLE_TIMEOUT =
  'HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n'

const request = (method = 'GET', more = '') => `${method} / HTTP/1.1\r\nHost: a.test\r\n${more}\r\n`
const post = (content: string, bytes = content.length) =>
  request('POST', `Content-Length: ${bytes}\r\n`) + content

/** A client with one request that was answered; the stream of it is kept. */
async function served() {
  const parts = await startHandSite()
  const { device, visit, read } = parts
  const client = await visit(request())
  device.last.send(OK)
  expect(await read(client)).toBe(OK)
  /** Sends one more request, and answers what came behind what was there. */
  const ask = async (text: string) => {
    client.send(text)
    await turns()
  }
  const more = async () => (await read(client)).slice(OK.length)
  return { ...parts, client, ask, more }
}

describe('a stream whose service closed it before the request came', () => {
  it.each(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE', 'PROPFIND', 'REPORT', 'SEARCH'])(
    'is replaced for %s, which may be repeated',
    async (method) => {
      const { device, site, free, ask, more } = await served()
      const [first] = device.streams
      await ask(request(method))
      expect(first?.text).toContain(`${method} / HTTP/1.1`)
      first?.end()
      await turns()
      expect(device.streams).toHaveLength(2)
      expect(device.last.text).toBe(first?.text.slice(first.text.lastIndexOf(`${method} /`)))
      device.last.send(method === 'HEAD' ? OK.slice(0, -2) : OK)
      expect(await more()).toMatch(/^HTTP\/1\.1 200 OK/)
      // The new one is kept, of the old one nothing is left.
      expect(site.session.freeSlots).toBe(free - 1)
      expect(site.endpoint.traffic).toMatchObject({ requests: 2, active: 0, refused: 0 })
      await site.close()
    },
  )

  it('is replaced when it was reset, too', async () => {
    const { device, ask, more } = await served()
    await ask(request())
    device.last.reset()
    await turns()
    expect(device.streams).toHaveLength(2)
    device.last.send(OK)
    expect(await more()).toBe(OK)
  })

  it.each([
    ['POST', request('POST')],
    ['PATCH', request('PATCH')],
    ['LOCK', request('LOCK')],
    ['a POST with a body', post('x')],
    [
      'a PUT with a long body',
      `${request('PUT', 'Content-Length: 70000\r\n')}${'x'.repeat(70_000)}`,
    ],
  ])('is not for %s, whose visitor is told the reason', async (_what, text) => {
    const { device, site, free, ask, more } = await served()
    await ask(text)
    device.last.end()
    await turns()
    expect(device.streams).toHaveLength(1)
    const answer = await more()
    expect(answer).toContain(STALE)
    expect(answer).toContain('closed the connection while it was being reused')
    expect(site.session.freeSlots).toBe(free)
    // It says nothing of the service's answers: none came.
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ garbage: 0, unreachable: 0 })
  })

  it.each([
    ['whole', 'Content-Length: 4\r\n', ['body'], 'body'],
    ['in pieces', 'Content-Length: 4\r\n', ['bo', 'dy'], 'body'],
    [
      'in chunks',
      'Transfer-Encoding: chunked\r\n',
      ['4\r\nbo', 'dy\r\n', '0\r\n\r\n'],
      '4\r\nbody\r\n0\r\n\r\n',
    ],
  ])('is replaced for a PUT whose body came %s', async (_how, field, pieces, body) => {
    const { device, site, client, ask, more } = await served()
    await ask(request('PUT', field))
    // The last piece comes when the first stream is gone.
    for (const piece of pieces.slice(0, -1)) await ask(piece)
    device.last.end()
    await turns()
    expect(device.streams).toHaveLength(2)
    client.send(pieces.at(-1) as string)
    await turns()
    expect(device.last.text.split('\r\n\r\n').slice(1).join('\r\n\r\n')).toBe(body)
    device.last.send(OK)
    expect(await more()).toBe(OK)
    expect(site.buffers.bytes).toBe(0)
  })

  it.each(['GET', 'PUT'])('is replaced for %s at a 408 that ends it', async (method) => {
    const { device, ask, more } = await served()
    await ask(method === 'PUT' ? `${request('PUT', 'Content-Length: 1\r\n')}x` : request())
    device.last.send(IDLE_TIMEOUT)
    await turns()
    expect(device.streams).toHaveLength(2)
    device.last.send(OK)
    expect(await more()).toBe(OK)
  })

  it.each([
    ['on a new stream', false, IDLE_TIMEOUT],
    ['that does not end it', true, IDLE_TIMEOUT.replace('Connection: close\r\n', '')],
  ])('is not at a 408 %s', async (_what, isReused, answer) => {
    const { device, visit, client, ask, read } = await served()
    const other = isReused ? client : await visit(request())
    if (isReused) await ask(request())
    else await visit(request())
    const before = device.streams.length
    device.last.send(answer)
    await turns()
    expect(device.streams).toHaveLength(before)
    if (isReused) expect(await read(other)).toContain('HTTP/1.1 408 ')
  })

  it.each(['Keep-Alive: timeout=3', 'Keep-Alive: max=9, timeout=3'])(
    'is not reused when less than a second is left of %s',
    async (field) => {
      const { device, site, visit } = await startHandSite()
      await visit(request())
      device.last.send(OK.replace('\r\n\r\n', `\r\nConnection: keep-alive\r\n${field}\r\n\r\n`))
      await turns()
      for (let ms = 0; ms < 1_500; ms += 500) await site.clock.advance(500)
      await turns()
      expect(device.last.isEnded).toBe(false)
      await site.clock.advance(500)
      await turns()
      expect(device.last.isEnded).toBe(true)
    },
  )

  it('is avoided for a POST after a GET has met one', async () => {
    const { device, ask, more } = await served()
    await ask(request())
    device.last.end()
    await turns()
    device.last.send(OK)
    await ask(post('x'))
    expect(device.streams).toHaveLength(3)
    device.last.send(OK)
    expect(await more()).toBe(OK.repeat(2))
  })

  it('costs no memory once the service answers', async () => {
    const { device, site, ask, more } = await served()
    await ask(`${request('PUT', 'Content-Length: 9000\r\n')}${'x'.repeat(8_000)}`)
    await site.advance(1_000)
    expect(site.buffers.bytes).toBeGreaterThanOrEqual(8_000)
    device.last.send('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no')
    await turns()
    await site.advance(1_000)
    expect(site.buffers.bytes).toBeLessThan(8_000)
    device.last.send('k')
    await more()
  })

  it('is avoided for a POST after an unused one was closed, for a minute', async () => {
    const { device, ask, more, site } = await served()
    device.last.end()
    await turns()
    await ask(request())
    device.last.send(OK)
    await turns()
    expect(device.streams).toHaveLength(2)
    await ask(post('x'))
    expect(device.streams).toHaveLength(3)
    device.last.send(OK)
    expect(await more()).toBe(OK.repeat(2))
    for (let tick = 0; tick < 140; tick += 1) {
      await ask(request())
      device.streams
        .filter((s) => !s.isEnded)
        .at(-1)
        ?.send(OK)
      await site.clock.advance(500)
      await turns(2)
    }
    const before = device.streams.length
    await ask(post('x'))
    expect(device.streams).toHaveLength(before)
  })

  it('is replaced once', async () => {
    const { device, ask, more } = await served()
    await ask(request())
    device.last.end()
    await turns()
    device.last.end()
    expect(await more()).toContain(BROKEN)
    expect(device.streams).toHaveLength(2)
  })

  it('is not when a part of an answer has come', async () => {
    const { device, ask, more } = await served()
    await ask(request())
    device.last.send('H')
    device.last.end()
    expect(await more()).toContain(BROKEN)
    expect(device.streams).toHaveLength(1)
  })

  it('is not when it was a new one', async () => {
    const { device, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.end()
    expect(await read(client)).toContain(BROKEN)
    expect(device.streams).toHaveLength(1)
  })
})

describe('what is no HTTP', () => {
  it.each(['SSH-2.0-OpenSSH', 'H2', 'h', '\n', 'HTTP2'])(
    'is refused at its first bytes: %j',
    async (bytes) => {
      const { device, site, free, visit, read } = await startHandSite()
      const client = await visit(request())
      device.last.send(bytes)
      expect(await read(client)).toContain(BROKEN)
      expect(device.last.isEnded).toBe(true)
      expect(site.session.freeSlots).toBe(free)
      expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ garbage: 1, answered: 0 })
    },
  )

  it('is not a head that comes in pieces, wherever they are cut', async () => {
    for (const at of [1, 4, 5, 8, 20, OK.length - 3]) {
      const { device, visit, read } = await startHandSite()
      const client = await visit(request())
      device.last.send(OK.slice(0, at))
      await turns()
      device.last.send(OK.slice(at))
      expect(await read(client)).toBe(OK)
    }
  })

  it('nor the begin of a head behind an interim response', async () => {
    const { device, visit, read } = await startHandSite()
    const hints = 'HTTP/1.1 103 Early Hints\r\n\r\n'
    const client = await visit(request())
    device.last.send(`${hints}HTT`)
    await turns()
    device.last.send(OK.slice(3))
    expect(await read(client)).toBe(hints + OK)
  })

  it('does not stand before the answer to the next request', async () => {
    const { device, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.send('HTTP/1.1 200 OK\r\nContent-Le')
    device.last.end()
    const refusal = await read(client)
    expect(refusal).toContain(BROKEN)
    client.send(request())
    await turns()
    device.last.send(OK)
    expect((await read(client)).slice(refusal.length)).toBe(OK)
  })
})

describe('interim responses', () => {
  const HINTS = 'HTTP/1.1 103 Early Hints\r\n\r\n'

  it('are passed on, 32 of them', async () => {
    const { device, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.send(HINTS.repeat(31))
    device.last.send(HINTS)
    device.last.send(OK)
    expect(await read(client)).toBe(HINTS.repeat(32) + OK)
  })

  it('are no answer when they do not end', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.send(HINTS.repeat(33))
    expect(await read(client)).toMatch(/^(HTTP\/1\.1 103 Early Hints\r\n\r\n){32}HTTP\/1\.1 502 /)
    expect(site.endpoint.traffic.errors.get(BROKEN)).toBe(1)
  })
})

describe('the window of a stream', () => {
  it('is whole again for each exchange, whatever the one before it has used', async () => {
    const { device, visit, read } = await startHandSite()
    const client = await visit(request())
    const field = `X: ${'x'.repeat(60_000)}\r\n`
    const hints = `HTTP/1.1 103 Early Hints\r\n${field}\r\n`
    const body = 'x'.repeat(100_000)
    const answers = [
      `${hints}HTTP/1.1 200 OK\r\n${field}Content-Length: 100000\r\n\r\n${body}`,
      `HTTP/1.1 204 No Content\r\n${field}\r\n`,
      `${hints}HTTP/1.1 200 OK\r\n${field}Transfer-Encoding: chunked\r\n\r\n186a0\r\n${body}\r\n0\r\n\r\n`,
    ]
    let expected = ''
    for (let round = 0; round < 9; round += 1) {
      const answer = answers[round % answers.length] as string
      expected += answer
      // In pieces, each of them an onData of its own.
      for (let at = 0; at < answer.length; at += 25_000) {
        device.last.send(answer.slice(at, at + 25_000))
        await turns(2)
      }
      expect((await read(client)) === expected).toBe(true)
      client.send(request())
      await turns()
    }
    expect(device.streams).toHaveLength(1)
  })

  it('opens while a head comes that is longer than it', async () => {
    const { device, visit, read } = await startHandSite()
    const client = await visit(request())
    const head = `HTTP/1.1 103 Early Hints\r\nX: ${'x'.repeat(60_000)}\r\n\r\n`
    for (let count = 0; count < 10; count += 1) {
      device.last.send(head.slice(0, 30_000))
      await turns(2)
      device.last.send(head.slice(30_000))
      await turns(2)
    }
    device.last.send(OK)
    expect((await read(client)).endsWith(OK)).toBe(true)
  })

  it('stays shut while the client does not read, and opens with it', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(request())
    const total = 2_000_000
    device.last.send(`HTTP/1.1 200 OK\r\nContent-Length: ${total}\r\n\r\n`)
    device.last.send('x'.repeat(total))
    await turns(50)
    expect(site.endpoint.traffic.bytesOut).toBeGreaterThan(100_000)
    expect(site.endpoint.traffic.bytesOut).toBeLessThan(700_000)
    const text = await read(client)
    expect(text.length).toBe(total + text.indexOf('\r\n\r\n') + 4)
    client.send(request())
    await turns()
    expect(device.streams).toHaveLength(1)
  })

  it('never grows, however the heads before have come', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(request())
    const answer = OK.replace('\r\n\r\n', `\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`)
    for (let count = 0; count < 20; count += 1) {
      device.last.send(answer.slice(0, 10_000))
      await turns(2)
      device.last.send(answer.slice(10_000))
      await read(client)
      client.send(request())
      await turns()
    }
    const before = site.endpoint.traffic.bytesOut
    device.last.send(`HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n${'x'.repeat(2_000_000)}`)
    await turns(50)
    expect(site.endpoint.traffic.bytesOut - before).toBeLessThan(500_000)
  })

  it('of the device makes the client wait, and lets it go on', async () => {
    const { device, site, visit, read } = await startHandSite()
    device.isDeaf = true
    const total = 1_000_000
    const client = await visit(post('', total))
    for (let at = 0; at < total; at += 50_000) client.send('x'.repeat(50_000))
    await turns(50)
    const sent = device.last.text.length
    expect(sent).toBeLessThan(300_000)
    expect(client.bytesRead).toBeLessThan(total)
    expect(site.buffers.bytes).toBeGreaterThan(0)
    await turns(20)
    expect(device.last.text.length).toBe(sent)
    device.isDeaf = false
    device.last.listen()
    await turns(50)
    expect(device.last.text.endsWith('x'.repeat(total))).toBe(true)
    await site.advance(1_000)
    expect(site.buffers.bytes).toBe(0)
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
  })
})

describe('a stream is kept for the next exchange', () => {
  /** How many streams two requests took, one after the other. */
  async function streamsOf(answer: string, text = request(), rest = '') {
    const { device, site, free, visit, read } = await startHandSite()
    const client = await visit(text)
    device.last.send(answer)
    await read(client)
    client.send(rest)
    await turns()
    expect(site.session.freeSlots).toBe(device.last.isEnded ? free : free - 1)
    client.send(request())
    const next = await visit(request('GET', 'X-Next: 1\r\n'))
    await turns()
    next.reset()
    client.reset()
    await turns()
    // Nothing of what was said before may stand before an answer of a later request.
    return device.streams.length
  }

  it('when the response ended where its bytes end', async () => {
    expect(await streamsOf(OK)).toBe(2)
    expect(await streamsOf('HTTP/1.1 204 No Content\r\n\r\n')).toBe(2)
    expect(await streamsOf(OK, post('hello'))).toBe(2)
  })

  it.each([
    ['something comes behind a body', `${OK}HTTP/1.1 200 OK\r\n`, undefined],
    ['something comes behind a head', 'HTTP/1.1 204 No Content\r\n\r\nx', undefined],
    [
      'the service wants it closed',
      OK.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'),
      undefined,
    ],
    ['the request has not ended', OK, post('he', 5)],
  ])('not when %s', async (_what, answer, text) => {
    expect(await streamsOf(answer, text, text ? 'llo' : '')).toBe(3)
  })
})

describe('a response that ends with its connection', () => {
  const HEAD = 'HTTP/1.1 200 OK\r\nX: y\r\n\r\n'

  it.each([
    ['ends', (stream: { end(): void }) => stream.end(), 'end'],
    ['is reset', (stream: { reset(): void }) => stream.reset(), 'reset'],
  ] as const)('when that %s', async (_what, how, ending) => {
    const { device, site, free, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.send(`${HEAD}part`)
    expect(await read(client)).toMatch(/4\r\npart\r\n$/)
    how(device.last)
    const text = await read(client)
    expect(site.endpoint.traffic.errors.get(BROKEN)).toBe(ending === 'end' ? undefined : 1)
    // Only what is whole has a last chunk, and leaves the visitor's connection open.
    expect(text.endsWith('\r\n0\r\n\r\n')).toBe(ending === 'end')
    expect(client.ending).toBe(ending === 'end' ? undefined : 'reset')
    expect(site.session.freeSlots).toBe(free)
  })

  it('is broken off with its session', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.send(`${HEAD}part`)
    await turns()
    await site.session.goAway(ErrorCode.none, 'bye')
    await read(client)
    expect(client.ending).toBe('reset')
    expect(site.endpoint.traffic.errors.get('ERR_NGROK_3210')).toBe(1)
  })
})

describe('a request for which no stream is free', () => {
  it('is 503 after a while, and the connection goes on', async () => {
    const { device, site, visit, read } = await startHandSite({ openStreams: 4 })
    const others: Awaited<ReturnType<typeof visit>>[] = []
    while (site.slots.waiting === 0) others.push(await visit(request()))
    const client = others.at(-1)
    if (!client) throw new Error('nobody waits')
    await site.advance(6_000)
    expect(await read(client)).toBe('')
    await site.advance(2_000)
    const answer = await read(client)
    expect(answer).toMatch(/^HTTP\/1\.1 503 .*ERR_GATEWAY_SATURATED/s)
    expect(answer).not.toContain('connection: close')
    expect(site.slots.waiting).toBe(0)
    expect([...site.endpoint.traffic.errors]).toEqual([['ERR_GATEWAY_SATURATED', 1]])
    others[0]?.reset()
    await turns()
    client.send(request())
    await turns()
    device.last.send(OK)
    expect((await read(client)).slice(answer.length)).toBe(OK)
  })
})

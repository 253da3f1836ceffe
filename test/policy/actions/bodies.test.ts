// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { once } from 'node:events'
import { Readable, type Transform } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import {
  brotliCompressSync,
  brotliDecompressSync,
  deflateSync,
  gunzipSync,
  gzipSync,
  inflateSync,
} from 'node:zlib'
import { describe, expect, it } from 'vitest'
import type { BodyTransform } from '../../../src/policy/exchange/policy-exchange.ts'
import { FairScheduler, SchedulerMember } from '../../../src/policy/limit/fair-scheduler.ts'
import { eventually } from '../../helpers/eventually.ts'
import {
  type ExchangeParts,
  onRequest,
  onResponse,
  PolicyBench,
  replyOf,
} from '../../helpers/policy-exchange.ts'

/** What comes out when a body goes through the transforms in pieces. */
function through(
  transforms: readonly BodyTransform[],
  body: Buffer,
  pieceBytes = 1_000,
): Promise<Buffer> {
  const pieces: Buffer[] = []
  for (let at = 0; at < body.length; at += pieceBytes)
    pieces.push(body.subarray(at, at + pieceBytes))
  const streams = transforms.map((transform) => transform.create())
  const last = streams.reduce<NodeJS.ReadableStream>((source, stream) => {
    source.on('error', (error) => stream.destroy(error))
    return source.pipe(stream)
  }, Readable.from(pieces))
  return buffer(last)
}

describe('work on whole bodies', () => {
  it.each(['request', 'response'])('waits for its turn: %s', async (side) => {
    const config = { replacements: [{ from: 'a', to: 'b' }] }
    const lane = new FairScheduler()
    const isRequest = side === 'request'
    const rules = isRequest
      ? onRequest('request-body-find-replace', config)
      : onResponse('response-body-find-replace', config)
    const policy = new PolicyBench(rules, { lane })
    let before = 0
    const other = new SchedulerMember(lane, 'long').inTurn(() => (before += 1))
    const parts: ExchangeParts = { method: 'POST', body: 'aaa' }
    if (isRequest) {
      const { exchange } = await policy.request(parts)
      expect([before, exchange.requestTransforms.length]).toEqual([1, 1])
    } else {
      const { exchange } = await policy.response(parts)
      const changed = await through(exchange.responseTransforms, Buffer.from('aaa'))
      expect([before, changed.toString()]).toEqual([1, 'bbb'])
    }
    await other
  })
})

describe('compress-response', () => {
  const plain = Buffer.from('hello world, '.repeat(2_000))

  async function compress(
    accepted: string | undefined,
    parts: ExchangeParts = {},
    config?: unknown,
  ) {
    const { outcome, exchange } = await new PolicyBench(
      onResponse('compress-response', config),
    ).response({
      ...parts,
      headers: [
        ...(parts.headers ?? []),
        ...(accepted === undefined ? [] : ['Accept-Encoding', accepted]),
      ],
    })
    expect(outcome.kind).toBe('continue')
    return {
      exchange,
      headers: exchange.response?.headers,
      result: exchange.results.get('compress'),
    }
  }

  it.each([
    ['gzip', 'gzip', gunzipSync],
    ['deflate', 'deflate', inflateSync],
    ['br', 'br', brotliDecompressSync],
    ['gzip, deflate, br', 'gzip', gunzipSync],
    ['gzip;q=0.5, br;q=0.9', 'br', brotliDecompressSync],
    ['*', 'gzip', gunzipSync],
    ['gzip;q=0, *', 'deflate', inflateSync],
    ['GZIP', 'gzip', gunzipSync],
  ] as const)('for %j uses %s', async (accepted, algorithm, decompress) => {
    const { exchange, headers, result } = await compress(accepted, {
      responseHeaders: ['Content-Length', String(plain.length), 'ETag', '"abc"', 'Vary', 'Origin'],
    })
    expect(headers?.get('content-encoding')).toBe(algorithm)
    expect(headers?.has('content-length')).toBe(false)
    expect(headers?.all('vary')).toEqual(['Origin', 'Accept-Encoding'])
    expect(headers?.get('etag')).toBe('W/"abc"')
    expect(result).toEqual({ already_compressed: false, negotiated_algorithm: algorithm })
    const compressed = await through(exchange.responseTransforms, plain)
    expect(compressed.length).toBeLessThan(plain.length / 10)
    expect(decompress(compressed).equals(plain)).toBe(true)
    // RFC 7932 9.1: a first bit of 0 is a window of 64 KiB, and so is the encoder's memory.
    if (algorithm === 'br') expect((compressed[0] ?? 1) & 1).toBe(0)
  })

  it.each([
    ['the client accepts nothing', undefined, {}],
    ['the client accepts only what we have not', 'zstd, compress', {}],
    ['the client refuses', 'gzip;q=0, br;q=0, deflate;q=0', {}],
    ['it is a HEAD request', 'gzip', { method: 'HEAD' }],
    ['there is no body', 'gzip', { status: 204 }],
    ['it is a part', 'gzip', { status: 206 }],
    ['another protocol begins', 'gzip', { status: 101 }],
  ])('leaves the body as it is when %s', async (_, accepted, parts) => {
    const { exchange, headers, result } = await compress(accepted, parts)
    expect(exchange.responseTransforms).toEqual([])
    expect(headers?.has('content-encoding')).toBe(false)
    expect(result).toEqual({ already_compressed: false, negotiated_algorithm: '' })
  })

  it('leaves what the upstream or the client wants left as it is', async () => {
    const untouched = { already_compressed: false, negotiated_algorithm: '' }
    for (const value of ['no-transform', 'public, No-Transform', 'no-transform,max-age=5']) {
      const { exchange, headers, result } = await compress('br', {
        responseHeaders: ['Cache-Control', value],
      })
      expect(exchange.responseTransforms).toEqual([])
      expect([headers?.fields, result]).toEqual([['Cache-Control', value], untouched])
    }
    const asked = ['cache-control', 'no-transform']
    expect((await compress('br', { headers: asked })).result).toEqual(untouched)
    const other = { responseHeaders: ['cache-control', 'x-no-transform, no-transforms'] }
    expect((await compress('br', other)).result).toMatchObject({ negotiated_algorithm: 'br' })
  })

  it('compresses a bounded number of responses at once, and sends the others as they are', async () => {
    const bench = new PolicyBench(onResponse('compress-response'))
    const respond = async () => {
      const { exchange } = await bench.response({ headers: ['accept-encoding', 'br'] })
      return exchange.responseTransforms.map((transform) => transform.create())
    }
    const running: Transform[] = []
    for (let index = 0; index < 64; index += 1) running.push(...(await respond()))
    expect(running).toHaveLength(64)
    expect(await respond()).toEqual([])
    const ended = running[7] as Transform
    const closed = once(ended, 'close')
    ended.destroy()
    await closed
    running.push(...(await respond()))
    expect(running).toHaveLength(65)
    for (const transform of running) transform.destroy()
  })

  it('leaves what is compressed already', async () => {
    const { exchange, result } = await compress('gzip', {
      responseHeaders: ['Content-Encoding', 'br'],
    })
    expect(exchange.responseTransforms).toEqual([])
    expect(result).toEqual({ already_compressed: true, negotiated_algorithm: '' })
  })

  it('uses only algorithms that are listed, the first of equals', async () => {
    const { headers } = await compress('gzip, br', {}, { algorithms: ['br', 'gzip'] })
    expect(headers?.get('content-encoding')).toBe('br')
    const { exchange } = await compress('gzip', {}, { algorithms: ['br'] })
    expect(exchange.responseTransforms).toEqual([])
  })

  it('does not say Vary twice', async () => {
    const { headers } = await compress('gzip', { responseHeaders: ['Vary', 'accept-encoding'] })
    expect(headers?.all('vary')).toEqual(['accept-encoding'])
  })

  it.each(['gzip', 'deflate', 'br'])('sends events on at once with %s', async (algorithm) => {
    const { exchange } = await compress(algorithm)
    const stream = exchange.responseTransforms[0]?.create()
    if (!stream) throw new Error('there is no transform')
    stream.write('data: one\n\n')
    await once(stream, 'readable')
    const first = stream.read() as Buffer
    expect(first.length).toBeGreaterThan(0)
    stream.destroy()
  })
})

describe('response-body-find-replace', () => {
  const config = {
    replacements: [
      { from: 'http://', to: 'https://' },
      { from: 'secret-([0-9]+)', to: '[$1 from ${req.host}]' },
      { from: 'gone' },
    ],
  }

  async function replaced(body: Buffer, parts: ExchangeParts = {}) {
    const { outcome, exchange } = await new PolicyBench(
      onResponse('response-body-find-replace', config),
    ).response(parts)
    expect(outcome.kind).toBe('continue')
    return { exchange, body: await through(exchange.responseTransforms, body) }
  }

  it('replaces every match, wherever the body is cut', async () => {
    const text = 'http://a secret-12 gone gone http://b ü'.repeat(100)
    for (const pieceBytes of [1, 7, 100_000]) {
      const { exchange } = await replaced(Buffer.from(text))
      const body = await through(exchange.responseTransforms, Buffer.from(text), pieceBytes)
      expect(body.toString()).toBe(
        'https://a [12 from device.example.com]   https://b ü'.repeat(100),
      )
    }
  })

  it('takes away what would not be true any more', async () => {
    const responseHeaders = [
      'Content-Length',
      '5',
      'ETag',
      '"a"',
      'Content-MD5',
      'x',
      'Server',
      's',
    ]
    const { exchange } = await replaced(Buffer.from('x'), { responseHeaders })
    expect(exchange.response?.headers.fields).toEqual(['Server', 's'])
    expect(exchange.responseTransforms[0]?.isWhole).toBe(true)
  })

  it.each([
    ['gzip', gzipSync],
    ['deflate', deflateSync],
    ['br', brotliCompressSync],
  ] as const)('reads bodies in %s', async (encoding, compress) => {
    const { exchange, body } = await replaced(compress(Buffer.from('gone http://a')), {
      responseHeaders: ['Content-Encoding', encoding],
    })
    expect(body.toString()).toBe(' https://a')
    expect(exchange.response?.headers.has('content-encoding')).toBe(false)
  })

  it.each([
    ['an encoding that it does not know', { responseHeaders: ['Content-Encoding', 'zstd'] }],
    ['an answer without a body', { status: 304 }],
    ['a switch to another protocol', { status: 101 }],
    ['a HEAD request', { method: 'HEAD' }],
  ])('leaves %s alone', async (_, parts) => {
    const { exchange } = await replaced(Buffer.from('x'), parts)
    expect(exchange.responseTransforms).toEqual([])
  })

  it('leaves bodies that are no text', async () => {
    const image = Buffer.from([0xff, 0xd8, 0xff, 0x00])
    expect((await replaced(image)).body.equals(image)).toBe(true)
  })

  it.each([
    'image/png',
    'application/octet-stream',
    'application/zip',
    'multipart/x-mixed-replace; boundary=frame',
    'text/event-stream; charset=utf-8',
    'video/mp4',
  ])('leaves %s alone', async (type) => {
    const responseHeaders = ['Content-Type', type, 'Content-Length', '4', 'ETag', '"a"']
    const { exchange } = await replaced(Buffer.from('gone'), { responseHeaders })
    expect(exchange.responseTransforms).toEqual([])
    expect(exchange.response?.headers.fields).toEqual(responseHeaders)
  })

  it.each([
    'text/html; charset=utf-8',
    'application/json',
    'application/hal+json',
    'image/svg+xml',
  ])('changes %s', async (type) => {
    const parts = { responseHeaders: ['Content-Type', type] }
    expect((await replaced(Buffer.from('gone x'), parts)).body.toString()).toBe(' x')
  })

  it.each([
    ['130 kB in lines', 'see http://a and secret-7\n', 5_000],
    ['1.5 MB in lines', 'see http://a and secret-7 ü\n', 50_000],
  ])('changes a body of %s, plain and packed', async (_what, line, count) => {
    const text = Buffer.from(line.repeat(count))
    const changed = line
      .replace('http:', 'https:')
      .replace('secret-7', '[7 from device.example.com]')
    const responseHeaders = ['Content-Type', 'text/plain', 'Content-Encoding', 'gzip']
    const plain = await replaced(text, {})
    expect(plain.body.equals(Buffer.from(changed.repeat(count)))).toBe(true)
    const packed = await replaced(gzipSync(text), { responseHeaders })
    expect(packed.body.equals(plain.body)).toBe(true)
    expect(packed.exchange.response?.headers.has('content-encoding')).toBe(false)
  })

  it('changes a line of 1.5 MB in parts, between its characters', async () => {
    const { body } = await replaced(Buffer.from('http://ü'.repeat(150_000)))
    // A match that stands at the end of a part is not seen.
    expect(body.toString().match(/http:/g)?.length ?? 0).toBeLessThan(40)
    expect(body.toString().replaceAll('https:', 'http:')).toBe('http://ü'.repeat(150_000))
  })

  it('delivers a body that does not end, line by line after a second', async () => {
    const bench = new PolicyBench(onResponse('response-body-find-replace', config))
    const { exchange } = await bench.response()
    const stream = exchange.responseTransforms[0]?.create() ?? expect.fail('no transform')
    let received = ''
    stream.setEncoding('utf8').on('data', (text: string) => {
      received += text
    })
    stream.write('gone http://a\nsecret-')
    await bench.clock.advance(999)
    expect(received).toBe('')
    await bench.clock.advance(1)
    await eventually(() => expect(received).toBe(' https://a\n'))
    stream.write('1 x\nhttp://')
    await eventually(() => expect(received).toBe(' https://a\n[1 from device.example.com] x\n'))
    stream.end('b')
    await once(stream, 'end')
    expect(received).toBe(' https://a\n[1 from device.example.com] x\nhttps://b')
  })

  it('breaks off a body that is damaged', async () => {
    const parts = { responseHeaders: ['Content-Encoding', 'gzip'] }
    await expect(replaced(Buffer.from('no gzip'), parts)).rejects.toThrow('incorrect header')
    const cut = gzipSync(Buffer.from('gone'.repeat(9_000))).subarray(0, -9)
    await expect(replaced(cut, parts)).rejects.toThrow('unexpected end of file')
  })

  it('breaks off a replacement that makes too much of it', async () => {
    const bench = new PolicyBench(
      onResponse('response-body-find-replace', {
        replacements: [{ from: 'x', to: 'y'.repeat(60_000) }],
      }),
    )
    const { exchange } = await bench.response()
    await expect(through(exchange.responseTransforms, Buffer.alloc(1_000, 'x'))).rejects.toThrow(
      'produces more than 1048576 characters',
    )
  })
})

describe('request-body-find-replace', () => {
  const bench = () =>
    new PolicyBench(
      onRequest('request-body-find-replace', {
        replacements: [
          { from: 'absent', to: 'x' },
          { from: 'pass=([a-z]+)', to: 'pass=***' },
        ],
      }),
    )

  it('replaces in the body that goes upstream', async () => {
    const body = 'user=me&pass=secret&pass=other'
    const { exchange } = await bench().request({ body, headers: ['Content-Length', '30'] })
    const sent = await through(exchange.requestTransforms, Buffer.from(body), 3)
    expect(sent.toString()).toBe('user=me&pass=***&pass=***')
    expect(exchange.request?.headers.has('content-length')).toBe(false)
    expect(exchange.results.get('request_body_find_replace')).toEqual({
      replacements: [{ replacement_index: 1n, matched_content: 'pass=secret' }],
    })
  })

  it.each([
    ['nothing matches', 'user=me', []],
    ['there is no body', '', []],
    ['it is encoded in a way that it does not know', 'pass=x', ['Content-Encoding', 'zstd']],
    ['it is no text', 'pass=x', ['Content-Type', 'image/jpeg']],
  ])('leaves the request as it is when %s', async (_, body, headers) => {
    const { outcome, exchange } = await bench().request({
      body,
      headers: [...headers, 'Content-Length', '7'],
    })
    expect(outcome.kind).toBe('continue')
    expect([exchange.requestTransforms, exchange.request?.headers.get('content-length')]).toEqual([
      [],
      '7',
    ])
  })

  it('refuses a body that it cannot look through', async () => {
    const { outcome } = await bench().request({ body: 'x'.repeat(1_048_577) })
    expect(replyOf(outcome).status).toBe(413)
  })

  it('answers 500 to a damaged body', async () => {
    const { outcome } = await bench().request({
      body: 'pass=x',
      headers: ['Content-Encoding', 'gzip'],
    })
    expect(replyOf(outcome).status).toBe(500)
  })
})

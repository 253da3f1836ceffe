import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import { HEAD_LIMITS, HeadScanner } from '../../../../src/gateway/ingress/syntax/head-scanner.ts'
import { parseRequestHead } from '../../../../src/gateway/ingress/syntax/request-head.ts'
import { parseResponseHead } from '../../../../src/gateway/ingress/syntax/response-head.ts'
import { seeded } from '../../../helpers/seeded.ts'
import { Llhttp, trimBlanks } from './llhttp.ts'
import { parseWithOurs } from './our-parser.ts'

/** Another seed and more rounds look further. */
const SEED = Number(process.env.FUZZ_SEED ?? 20_291)
const ROUNDS = Number(process.env.FUZZ_ROUNDS ?? 12_000)
/** After so many heads, the scanner knows all bytes of the next one. */
const REPEATS = 5

const REQUESTS = [
  'GET / HTTP/1.1\r\nHost: a.example\r\n\r\n',
  'GET /a?b=c HTTP/1.1\r\nHost: a.example:8080\r\nAccept: */*\r\nUser-Agent: x y\r\n\r\n',
  'POST /p HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello',
  'POST /p HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n',
  'PUT /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: a\r\n\r\n' +
    'a;x=1;y\r\n0123456789\r\n00\r\nX-Sum: 1\r\n\r\n',
  'GET http://a.example/x?y HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\n',
  'OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n',
  'DELETE /x HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok',
]
const RESPONSES = [
  'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok',
  'HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n',
  'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n',
  'HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n',
  'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok',
  'HTTP/1.0 200 OK\r\nServer: x\r\n\r\nuntil the end',
  'HTTP/1.1 304\r\nETag: "x"\r\n\r\n',
]
const FRAGMENTS = [
  '\r',
  '\n',
  '\r\n',
  '\r\n\r\n',
  ' ',
  '\t',
  '\0',
  '\x0b',
  '\x7f',
  '\x80',
  '\xff',
  ':',
  ';',
  '=',
  ',',
  '"',
  '0',
  '1',
  '-',
  '+',
  'f',
  'F',
  'x',
  '0x5',
  '\r\n ',
  '\r\nHost: b.example\r\n',
  'Content-Length: 5\r\n',
  'Content-Length: 05\r\n',
  'Content-Length: 5, 5\r\n',
  'Content-Length: +5\r\n',
  'Content-Length : 5\r\n',
  'content-length:\t5 \r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding: gzip, chunked\r\n',
  'transfer-encoding:\tChunked\r\n',
  'Transfer-Encoding: xchunked\r\n',
  'Transfer-Encoding: chunked, identity\r\n',
  'Connection: close\r\n',
  'Expect: 100-continue\r\n',
  '0\r\n\r\n',
  '1;a="b"\r\n',
  'FFFFFFFFFFFFFFFFF\r\n',
  'HTTP/1.1',
  'HTTP/1.2',
  'HTTP/2.0',
  'http://a.example',
  'GET ',
]

/** Whole numbers below a bound. */
function below(seed: number): (bound: number) => number {
  const random = seeded(seed)
  return (bound) => Math.floor(random() * bound)
}

function mutate(bytes: string, random: (below: number) => number): string {
  let text = bytes
  for (let left = random(4); left > 0; left -= 1) {
    const at = random(text.length + 1)
    const length = random(3) === 0 ? random(12) : 0
    const fragment = FRAGMENTS[random(FRAGMENTS.length)] ?? ''
    switch (random(4)) {
      case 0:
        text = text.slice(0, at) + text.slice(at + 1 + length)
        break
      case 1:
        text = text.slice(0, at) + text.slice(at, at + 8 + length) + text.slice(at)
        break
      case 2:
        text = lineStart(text, at, fragment)
        break
      default:
        text = text.slice(0, at) + fragment + text.slice(at + length)
    }
  }
  return text
}

/** Puts `fragment` behind the line break before `at`. */
function lineStart(text: string, at: number, fragment: string): string {
  const begin = text.lastIndexOf('\r\n', at) + 2
  return text.slice(0, begin) + fragment + text.slice(begin)
}

function cut(bytes: Buffer, random: (below: number) => number): Buffer[] {
  const chunks: Buffer[] = []
  for (let at = 0; at < bytes.length; ) {
    const end = at + 1 + random(random(4) === 0 ? bytes.length : 9)
    chunks.push(bytes.subarray(at, end))
    at = end
  }
  return chunks
}

/**
 * Differences that are known and do no harm. Ours may always be stricter; it is looser only here.
 */
const KNOWN_DIFFERENCES = [
  // llhttp takes a TAB behind a length or a transfer coding for a part of it. We drop the blanks
  // around a value before it goes on, so nobody behind us sees that TAB.
  /(?:transfer-encoding|content-length):[^\r\n]*\t *\r\n/i,
  // llhttp reads a body behind an interim response that has a length; RFC 9112 6.3 knows none, and
  // such a length does not go on.
  /HTTP\/1\.\d 1(?!00)\d\d/,
]
/**
 * Of a response we take two equal lengths, lines that end with LF alone, and blanks before a colon;
 * llhttp takes none of them. They do not go on.
 */
const LOOSER_RESPONSES = [/content-length.*content-length/is, /(?:^|[^\r])\n/, /\n[^\s:]+[ \t]+:/]

describe.each([
  ['request' as const, REQUESTS],
  ['response' as const, RESPONSES],
])('%s parser', (kind, templates) => {
  const llhttp = new Llhttp()

  it('accepts only what llhttp accepts, and understands it alike', () => {
    const random = below(SEED)
    let accepted = 0
    for (let round = 0; round < ROUNDS; round += 1) {
      const pick = () => templates[random(templates.length)] ?? ''
      const text = mutate(random(3) === 0 ? pick() + pick() : pick(), random)
      if (KNOWN_DIFFERENCES.some((pattern) => pattern.test(text))) continue
      if (kind === 'response' && LOOSER_RESPONSES.some((pattern) => pattern.test(text))) continue
      const bytes = Buffer.from(text, 'latin1')
      const ours = parseWithOurs(kind, [bytes])
      const theirs = kind === 'request' ? llhttp.parseRequests(bytes) : llhttp.parseResponses(bytes)
      const where = `round ${round}: ${JSON.stringify(text)}`
      for (const [index, message] of ours.messages.entries()) {
        const other = theirs.messages[index]
        // Ours knows no list of methods; what is read of such a request is compared below.
        if (!other && /^(Invalid method|Expected space after method)/.test(theirs.error ?? ''))
          break
        expect(other, `${where} refused by llhttp: ${theirs.error}`).toBeDefined()
        expect(message.line, where).toBe(other?.line)
        expect(message.minorVersion, where).toBe(other?.minorVersion)
        expect(message.body, where).toBe(other?.body)
        const fields = other?.fields.slice(0, message.fields.length)
        expect(message.fields.map(trimBlanks), where).toEqual(fields)
        accepted += 1
      }
    }
    // A parser that refuses everything would pass the comparison.
    expect(accepted).toBeGreaterThan(ROUNDS / 5)
  })

  it('understands bytes alike however they are cut', () => {
    const random = below(SEED + 1)
    for (let round = 0; round < ROUNDS / 3; round += 1) {
      const text = mutate(templates[random(templates.length)] ?? '', random)
      const bytes = Buffer.from(text, 'latin1')
      const whole = parseWithOurs(kind, [bytes])
      expect(parseWithOurs(kind, cut(bytes, random)), JSON.stringify(text)).toEqual(whole)
    }
  })

  it('understands bytes alike behind messages with the same fields', () => {
    const random = below(SEED + 3)
    const repeatable = templates.filter((text) => {
      const { messages, error } = parseWithOurs(kind, [Buffer.from(text + text, 'latin1')])
      return error === undefined && messages.length === 2
    })
    expect(repeatable.length).toBeGreaterThan(2)
    for (let round = 0; round < ROUNDS / 3; round += 1) {
      const template = repeatable[random(repeatable.length)] ?? ''
      const before = Array.from({ length: REPEATS }, () => Buffer.from(template, 'latin1'))
      const text = mutate(template, random) + template
      const bytes = Buffer.from(text, 'latin1')
      const parts = random(2) === 0 ? [bytes] : cut(bytes, random)
      const { messages, error } = parseWithOurs(kind, [...before, ...parts])
      const alone = parseWithOurs(kind, [bytes])
      expect({ messages: messages.slice(REPEATS), error }, JSON.stringify(text)).toEqual(alone)
    }
  })

  it('understands bytes alike behind the messages of other connections of the sender', () => {
    const random = below(SEED + 4)
    const sender = {}
    for (let round = 0; round < ROUNDS / 3; round += 1) {
      const template = templates[random(templates.length)] ?? ''
      const text = random(3) === 0 ? mutate(template, random) : template
      const bytes = Buffer.from(text + template, 'latin1')
      const parts = random(2) === 0 ? [bytes] : cut(bytes, random)
      const alone = parseWithOurs(kind, [bytes])
      expect(parseWithOurs(kind, parts, sender), JSON.stringify(text)).toEqual(alone)
    }
  })

  it('knows the fields that another scanner of the sender has kept', () => {
    const sender = {}
    const take = (id: number, of = sender, scanner = new HeadScanner(HEAD_LIMITS, kind)) => {
      const bytes = Buffer.from(`GET /a HTTP/1.1\r\nHost: a\r\nX-Id: ${id}\r\n\r\n`)
      expect(scanner.scan(bytes, 0, of)).toBe(bytes.length)
      return scanner.takeHead()
    }
    const heads = Array.from({ length: 4 }, () => take(1))
    expect(heads.map(({ recurs }) => recurs)).toEqual([false, false, true, true])
    expect(heads[3]?.fields).toBe(heads[2]?.fields)
    expect(take(1, {}).recurs).toBe(false)
    expect(take(2).fields).toEqual(['Host', 'a', 'X-Id', '2'])
    expect([take(2), take(2)].map(({ recurs }) => recurs)).toEqual([true, true])
    const own = new HeadScanner(HEAD_LIMITS, kind)
    const first = Array.from({ length: 3 }, () => take(2, sender, own))
    expect(first[2]).toBe(first[1])
    // Another one keeps fields in place of its own, which it has to compare first.
    for (const id of [3, 3, 3]) take(id)
    expect(take(2, sender, own)).toBe(first[1])
    expect(take(3, sender, own)).toMatchObject({ recurs: true, fields: ['Host', 'a', 'X-Id', '3'] })
    // It goes on keeping fields for all, however often they change.
    for (let id = 4; id < 10; id += 1) {
      take(id, sender, own)
      for (const scanner of [undefined, undefined, own]) take(id, sender, scanner)
    }
    expect([0, 0].map((id) => take(id, sender, own).recurs)).toEqual([false, true])
  })

  it('reads fields with the same bytes once, behind any start line', () => {
    const scanner = new HeadScanner(HEAD_LIMITS, kind)
    const fields = 'Host: a\r\nX: \xe4\r\n\r\n'
    const lines = ['GET /a HTTP/1.1', 'GET /b HTTP/1.1', 'PUT /c HTTP/1.0', 'GET /d HTTP/1.1']
    const heads = lines.map((line) => {
      const bytes = Buffer.from(`${line}\r\n${fields}`, 'latin1')
      expect(scanner.scan(bytes, 0)).toBe(bytes.length)
      return scanner.takeHead()
    })
    expect(heads.map(({ line }) => line)).toEqual(lines)
    expect(heads.map(({ recurs }) => recurs)).toEqual([false, false, true, true])
    expect(heads[3]?.fields).toBe(heads[2]?.fields)
    expect(heads[3]?.fields).toEqual(['Host', 'a', 'X', '\xe4'])
    const withoutLine = Buffer.from(`\r\n${fields}`, 'latin1')
    expect(scanner.scan(withoutLine, 0)).toBe(withoutLine.length)
    expect(scanner.takeHead().line).toBe('Host: a')
    const repeated = Buffer.from(`GET /d HTTP/1.1\r\n${fields}`, 'latin1')
    scanner.scan(repeated, 0)
    scanner.reset()
    scanner.scan(Buffer.from('GET /e HTTP/1.1\r\n\r\n'), 0)
    expect(scanner.takeHead()).toMatchObject({ line: 'GET /e HTTP/1.1', fields: [] })
    const bounded = new HeadScanner({ ...HEAD_LIMITS, maxBytes: 40 }, kind)
    for (const path of ['', '', '']) {
      bounded.scan(Buffer.from(`GET /${path} HTTP/1.1\r\nHost: a\r\n\r\n`), 0)
      bounded.takeHead()
    }
    const tooLong = Buffer.from(`GET /${'x'.repeat(20)} HTTP/1.1\r\nHost: a\r\n\r\n`)
    expect(() => bounded.scan(tooLong, 0)).toThrow('more than 40 bytes')
    const long = Buffer.from(`GET / HTTP/1.1\r\nHost: a\r\nX: ${'y'.repeat(1_024)}\r\n\r\n`)
    const take = (bytes: Buffer) => {
      scanner.scan(bytes, 0)
      return scanner.takeHead().recurs
    }
    expect([long, long, long, long].map(take)).toEqual([false, false, false, false])
    const short = Buffer.from(`GET / HTTP/1.1\r\nHost: a\r\n\r\n`)
    expect([short, short, short].map(take)).toEqual([false, false, true])
    scanner.forget()
    expect([short, short, short].map(take)).toEqual([false, false, true])
  })

  it('returns the same head for the same bytes, until one of them differs', () => {
    const scanner = new HeadScanner(HEAD_LIMITS, kind)
    const take = (line: string, fields = 'Host: a\r\n\r\n') => {
      const bytes = Buffer.from(`${line}\r\n${fields}`, 'latin1')
      expect(scanner.scan(bytes, 0)).toBe(bytes.length)
      const head = scanner.takeHead()
      expect(head.line).toBe(line)
      return head
    }
    const line = 'GET /a HTTP/1.1'
    const first = Array.from({ length: 6 }, () => take(line))
    expect(first.map(({ repeats = false }) => repeats)).toEqual([
      false,
      false,
      false,
      true,
      true,
      true,
    ])
    expect(first[5]).toBe(first[3])
    expect(take('GET /b HTTP/1.1')).toMatchObject({ recurs: true, repeats: false })
    expect(take('GET /aa HTTP/1.1')).toMatchObject({ recurs: true, repeats: false })
    expect(take(line)).toBe(first[3])
    expect(take(line, 'Host: b\r\n\r\n').fields).toEqual(['Host', 'b'])
    expect(take(line)).toBe(first[3])
    const others = Array.from({ length: 6 }, () => take(line, 'Host: c\r\n\r\n'))
    expect(others.map(({ fields }) => fields.join())).toEqual(Array(6).fill('Host,c'))
    expect(others[5]).toBe(others[4])
    scanner.forget()
    expect([1, 2, 3].map(() => take(line).repeats ?? false)).toEqual([false, false, false])
    expect(take(line)).not.toBe(first[3])
    const long = `GET /${'x'.repeat(1_024)} HTTP/1.1`
    expect([1, 2, 3].some(() => take(long).repeats)).toBe(false)
  })

  it('keeps no long start line, and no part of the memory that Node shares', async () => {
    setFlagsFromString('--expose-gc')
    const collect = runInNewContext('gc') as () => void
    const bytesNow = async () => {
      // Memory of buffers is given back after the collection that found them unused.
      for (let times = 0; times < 3; times += 1) {
        collect()
        await new Promise((resolve) => setImmediate(resolve))
      }
      const { heapUsed: heap, arrayBuffers: buffers } = process.memoryUsage()
      return { heap, buffers }
    }
    const COUNT = 500
    const kept = async (path: string) => {
      const before = await bytesNow()
      const scanners = Array.from({ length: COUNT }, () => new HeadScanner(HEAD_LIMITS, kind))
      for (const scanner of scanners) {
        const fields = `Host: a${'x'.repeat(900)}\r\n\r\n`
        const bytes = Buffer.from(`GET /${path} HTTP/1.1\r\n${fields}`, 'latin1')
        for (let times = 0; times < REPEATS; times += 1) {
          scanner.scan(bytes, 0)
          // What a gateway takes from the pool in between.
          Buffer.allocUnsafe(2_000)
          expect(scanner.takeHead().fields).toHaveLength(2)
        }
      }
      const { heap, buffers } = await bytesNow()
      expect(scanners).toHaveLength(COUNT)
      return { heap: (heap - before.heap) / COUNT, buffers: (buffers - before.buffers) / COUNT }
    }
    await kept('')
    // The heap is that of all tests of this file: it moves by some kilobytes for each scanner.
    expect((await kept('')).buffers).toBeLessThan(4_000)
    expect((await kept('y'.repeat(60_000))).heap).toBeLessThan(30_000)
  })

  it('keeps no fields that only have the same length, and stops comparing', () => {
    const scanner = new HeadScanner(HEAD_LIMITS, kind)
    const take = (id: number) => {
      scanner.scan(Buffer.from(`GET / HTTP/1.1\r\nHost: a\r\nX-Id: ${id}\r\n\r\n`), 0)
      return scanner.takeHead().recurs
    }
    expect([1, 2, 3, 4, 5, 6, 7, 8].some(take)).toBe(false)
    expect([9, 9, 9].some(take)).toBe(false)
  })
})

describe('a repeated head', () => {
  it('of a response ends without a body after HEAD, and with one after GET', () => {
    const fields = ['Content-Length', '12']
    const scanned = { line: 'HTTP/1.1 200 OK', fields, recurs: true, repeats: true }
    const framings = ['GET', 'HEAD', 'GET', 'POST'].map(
      (method) => parseResponseHead(scanned, method).framing,
    )
    expect(framings).toEqual([12, 0, 12, 12])
    expect(parseResponseHead(scanned, 'GET')).toBe(parseResponseHead(scanned, 'POST'))
  })

  it('of a request is parsed once', () => {
    const fields = ['Host', 'a']
    const scanned = { line: 'GET /a HTTP/1.1', fields, recurs: true, repeats: true }
    expect(parseRequestHead(scanned)).toBe(parseRequestHead(scanned))
    const other = { ...scanned, line: 'GET /b HTTP/1.1', repeats: false }
    expect(parseRequestHead(other).target).toBe('/b')
  })
})

describe.each([
  ['whose lines end with LF alone', (head: string) => head.replaceAll('\r\n', '\n')],
  ['with blanks before its colons', (head: string) => head.replaceAll(/(\n[\w-]+):/g, '$1 \t:')],
])('a response %s', (_name, loosen) => {
  it('is understood like one in strict form', () => {
    const random = below(SEED + 2)
    let accepted = 0
    for (let round = 0; round < ROUNDS / 3; round += 1) {
      const text = mutate(RESPONSES[random(RESPONSES.length)] ?? '', random)
      const end = text.indexOf('\r\n\r\n') + 4
      const head = text.slice(0, end)
      // Only a request may begin with an empty line (RFC 9112 2.2).
      if (end < 4 || head.startsWith('\r\n')) continue
      if (head.includes('\r\r') || /(?:^|[^\r])\n/.test(head)) continue
      const bare = loosen(head) + text.slice(end)
      const [strict] = parseWithOurs('response', [Buffer.from(text, 'latin1')]).messages
      const [loose] = parseWithOurs('response', cut(Buffer.from(bare, 'latin1'), random)).messages
      if (!strict) continue
      expect(loose, JSON.stringify(bare)).toEqual(strict)
      accepted += 1
    }
    expect(accepted).toBeGreaterThan(ROUNDS / 15)
  })
})

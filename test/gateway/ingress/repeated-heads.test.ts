import type { ClientHttp2Session, OutgoingHttpHeaders } from 'node:http2'
import { connect, type Socket } from 'node:net'
import { connect as tlsConnect } from 'node:tls'
import { gunzipSync } from 'node:zlib'
import { expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../src/base/clock.ts'
import { type CompiledPolicy, compilePolicy } from '../../../src/policy/policy.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { answerOf, connectHttp2, openStream } from '../../helpers/http2-visitor.ts'
import { type IngressSite, startIngressSite } from '../../helpers/ingress-site.ts'
import { startRawService } from '../../helpers/raw-http.ts'
import { seeded } from '../../helpers/seeded.ts'

const SEED = 70_001
/** Of each visitor, under each policy. */
const REQUESTS = 16

const computed = (expression: string) => `\${${expression}}`
const headers = (fields: Record<string, string>) => ({
  type: 'add-headers',
  config: { headers: fields },
})
const without = (...names: string[]) => ({ type: 'remove-headers', config: { headers: names } })

type Rules = Readonly<Record<string, readonly object[]>>

/** A policy that a round may have: the same heads mean something else under each. */
const POLICIES: readonly Rules[] = [
  {},
  {
    on_http_request: [
      { expressions: ["req.url.query == 'a=12'"], actions: [headers({ 'x-first': 'chosen' })] },
      { actions: [headers({ 'x-in': 'one', 'x-more': 'two' })] },
    ],
    on_http_response: [{ actions: [headers({ 'x-out': 'one' })] }],
  },
  {
    on_http_request: [{ actions: [headers({ 'x-in': 'two' }), headers({ host: 'b.test' })] }],
    on_http_response: [{ actions: [headers({ 'x-out': 'two' }), without('server')] }],
  },
  {
    on_http_response: [{ actions: [{ type: 'compress-response' }, headers({ 'x-out': 'one' })] }],
  },
  {
    on_http_request: [
      { actions: [{ type: 'url-rewrite', config: { from: '/200/', to: '/404/' } }] },
      { actions: [headers({ 'x-query': computed('req.url.query'), 'x-in': 'one' })] },
      { actions: [without('x-twin', 'accept-encoding')] },
    ],
  },
  {
    on_http_request: [
      {
        expressions: ["req.url.query == 'deny'"],
        actions: [{ type: 'deny', config: { status_code: 451 } }],
      },
      {
        expressions: ["req.headers['cookie'].exists(c, c.contains('made'))"],
        actions: [
          { type: 'custom-response', config: { status_code: 202, body: 'made by a policy' } },
        ],
      },
    ],
    on_http_response: [
      { expressions: ['res.status_code == 404'], actions: [headers({ 'x-out': 'missing' })] },
      { actions: [headers({ 'x-end': 'of all' })] },
    ],
  },
]

function compiled(rules: Rules): CompiledPolicy {
  const { log } = captureLog()
  return compilePolicy(rules, { clock: systemClock, log, hasInternal: () => true })
}

/** What a visitor asks. The service's answer follows from `target`. */
interface Ask {
  readonly method: 'GET' | 'HEAD' | 'POST'
  /** `/status/kind/length?query`. */
  readonly target: string
  readonly fields: readonly (readonly [name: string, value: string])[]
  readonly body: string | undefined
}

/** What a visitor gets, without what differs between any two exchanges. */
interface Got {
  readonly status: number
  readonly fields: readonly string[]
  readonly body: string
  readonly interims: readonly number[]
}

const NONCE = /^x-nonce: /i

/** What the service sends for a request: what it has seen, up to a length, and fields by the target. */
function answerTo(head: string, body: string): string {
  const [line = '', ...fields] = head.split('\r\n')
  const [method = '', target = ''] = line.split(' ')
  const [, status = '', kind = '', length = ''] = target.split('?')[0]?.split('/') ?? []
  const nonce = fields.find((field) => NONCE.test(field))
  const seen = [line, ...fields.filter((field) => !NONCE.test(field))].join('|')
  const text = `${seen}|${body.length}|`.padEnd(Number(length), `${target}.`)
  const lines = [`HTTP/1.1 ${status} ${kind === 'odd' ? 'Odd reason' : 'OK'}`, 'Server: raw']
  if (nonce) lines.push(nonce)
  const hasBody = method !== 'HEAD' && status !== '204' && status !== '304'
  let content = hasBody ? text : ''
  if (kind === 'hop')
    lines.push('Connection: keep-alive, X-Hop', 'X-Hop: secret', 'Keep-Alive: timeout=9')
  if (kind === 'not')
    lines.push('Connection: keep-alive, X-Pop', 'X-Hop: secret', 'Keep-Alive: timeout=9')
  if (kind === 'chunked' || kind === 'trailing') {
    lines.push('Trailer: x-sum', 'Transfer-Encoding: chunked')
    const trailer = kind === 'trailing' ? 'X-Sum: 12\r\n' : ''
    const half = content.length >> 1
    const chunk = (part: string) => (part ? `${part.length.toString(16)}\r\n${part}\r\n` : '')
    content = hasBody
      ? `${chunk(content.slice(0, half))}${chunk(content.slice(half))}0\r\n${trailer}\r\n`
      : ''
  } else if (kind !== 'bare') {
    lines.push(`Content-Length: ${text.length}`)
  } else if (hasBody) {
    lines.push('Connection: close')
  }
  const early = kind === 'early' ? 'HTTP/1.1 103 Early Hints\r\nServer: raw\r\n\r\n' : ''
  return `${early}${lines.join('\r\n')}\r\n\r\n${content}`
}

/** Answers each request as a whole, in pieces now and then. */
function startService(next: () => number): Promise<number> {
  return startRawService((socket: Socket) => {
    let pending = ''
    let isBusy = false
    const take = async () => {
      if (isBusy) return
      isBusy = true
      for (;;) {
        const end = pending.indexOf('\r\n\r\n')
        if (end === -1) break
        const head = pending.slice(0, end)
        const length = Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1] ?? 0)
        if (/\r\ntransfer-encoding: chunked/i.test(head)) {
          const rest = pending.slice(end + 4)
          const last = rest.startsWith('0\r\n\r\n') ? 0 : rest.indexOf('\r\n0\r\n\r\n') + 2
          if (last === 1) break
          pending = rest.slice(last + 5)
          await answer(head, 'x'.repeat(7))
          continue
        }
        if (pending.length < end + 4 + length) break
        const body = pending.slice(end + 4, end + 4 + length)
        pending = pending.slice(end + 4 + length)
        await answer(head, body)
      }
      isBusy = false
    }
    const answer = async (head: string, body: string) => {
      const bytes = Buffer.from(answerTo(head, body), 'latin1')
      if (next() < 0.7) socket.write(bytes)
      else {
        for (let at = 0; at < bytes.length; ) {
          const size = 1 + Math.floor(next() ** 3 * 900)
          socket.write(bytes.subarray(at, at + size))
          at += size
          await turn()
        }
      }
      if (bytes.includes('Connection: close')) socket.end()
    }
    socket.setNoDelay(true)
    socket.on('data', (chunk: Buffer) => {
      pending += chunk.toString('latin1')
      void take()
    })
    socket.on('end', () => socket.end())
  })
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

/** Sends requests one after the other, on one connection as long as it lasts. */
interface Visitor {
  ask(asks: readonly Ask[]): Promise<Got[]>
  close(): void
}

const PASSING = new Set(['date', 'content-length', 'transfer-encoding'])

/** Comparable: the time is left out, and how a compressed body is framed. */
function gotOf(
  status: number,
  raw: readonly (readonly [string, string])[],
  body: Buffer,
  interims: readonly number[],
): Got {
  const isCompressed = raw.some(
    ([name, value]) => /^content-encoding$/i.test(name) && value === 'gzip',
  )
  const fields = raw
    .filter(([name]) => !/^(x-nonce|date)$/i.test(name))
    .filter(([name]) => !isCompressed || !PASSING.has(name.toLowerCase()))
    .map(([name, value]) => `${name}: ${value}`)
  const plain = isCompressed && body.length > 0 ? gunzipSync(body) : body
  // An error page has an id of its own.
  const text = plain.toString('latin1').replaceAll(/[0-9a-f]{16,}/g, 'ID')
  return { status, fields, body: text, interims }
}

interface Parsed {
  readonly got: Got
  readonly end: number
  readonly isLast: boolean
}

/** The response at `from`; undefined while it is not all there. */
function parseAt(
  bytes: Buffer,
  from: number,
  method: string,
  isEnded: boolean,
): Parsed | undefined {
  const interims: number[] = []
  for (let at = from; ; ) {
    const headEnd = bytes.indexOf('\r\n\r\n', at)
    if (headEnd === -1) return undefined
    const [line = '', ...lines] = bytes.toString('latin1', at, headEnd).split('\r\n')
    if (!/^HTTP\/1\.1 \d{3} /.test(line)) throw new Error(`no status line: ${line.slice(0, 200)}`)
    at = headEnd + 4
    const status = Number(line.split(' ')[1])
    if (status < 200) {
      interims.push(status)
      continue
    }
    const fields = lines.map((text) => {
      const colon = text.indexOf(':')
      return [text.slice(0, colon), text.slice(colon + 2)] as const
    })
    const fieldOf = (name: string) => fields.find(([it]) => it.toLowerCase() === name)?.[1]
    const isLast = fieldOf('connection') === 'close'
    const reason = ['reason', line.slice(13)] as const
    const done = (
      body: Buffer,
      end: number,
      trailers: readonly (readonly [string, string])[] = [],
    ) => ({
      got: gotOf(status, [reason, ...fields, ...trailers], body, interims),
      end,
      isLast,
    })
    if (method === 'HEAD' || status === 204 || status === 304) return done(Buffer.alloc(0), at)
    const length = fieldOf('content-length')
    if (length !== undefined) {
      const end = at + Number(length)
      return end > bytes.length ? undefined : done(bytes.subarray(at, end), end)
    }
    if (fieldOf('transfer-encoding') === undefined) {
      return isEnded ? done(bytes.subarray(at), bytes.length) : undefined
    }
    const parts: Buffer[] = []
    for (;;) {
      const lineEnd = bytes.indexOf('\r\n', at)
      if (lineEnd === -1) return undefined
      const size = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16)
      if (size === 0) {
        const end = bytes.indexOf('\r\n\r\n', lineEnd)
        if (end === -1) return undefined
        const text = bytes.toString('latin1', lineEnd + 2, end)
        const trailers = end > lineEnd ? [['trailer', text] as const] : []
        return done(Buffer.concat(parts), end + 4, trailers)
      }
      if (lineEnd + 4 + size > bytes.length) return undefined
      parts.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + size))
      at = lineEnd + 4 + size
    }
  }
}

function encoded({ method, target, fields, body }: Ask, version: string): string {
  const lines = fields.map(([name, value]) => `${name}: ${value}\r\n`).join('')
  const keep = version === '1.0' ? 'Connection: keep-alive\r\n' : ''
  const isChunked = fields.some(([name]) => name === 'Transfer-Encoding')
  const content = isChunked ? `7\r\nxxxxxxx\r\n0\r\n\r\n` : (body ?? '')
  const length = body !== undefined && !isChunked ? `Content-Length: ${body.length}\r\n` : ''
  return `${method} ${target} HTTP/${version}\r\nHost: a.test\r\n${keep}${lines}${length}\r\n${content}`
}

/** HTTP/1: several requests at once, cut anywhere. */
function visitorByHttp1(
  site: IngressSite,
  version: '1.0' | '1.1',
  isSecure: boolean,
  next: () => number,
): Visitor {
  let socket: Socket | undefined
  let received = Buffer.alloc(0)
  let isEnded = false
  let wake = () => {}
  const open = () => {
    const { http, https } = site.addresses
    const opened = isSecure
      ? tlsConnect({ port: https.port, host: '127.0.0.1', servername: 'localhost', ca: site.caPem })
      : connect({ port: http.port, host: '127.0.0.1' })
    received = Buffer.alloc(0)
    isEnded = false
    opened.on('data', (chunk: Buffer) => {
      received = Buffer.concat([received, chunk])
      wake()
    })
    const end = () => {
      if (socket !== opened) return
      isEnded = true
      wake()
    }
    opened.on('end', end)
    opened.on('error', end)
    opened.on('close', end)
    socket = opened
    return opened
  }
  const close = () => {
    socket?.destroy()
    socket = undefined
  }
  onTestFinished(close)
  /** The responses until the connection ends. */
  const send = async (asks: readonly Ask[]): Promise<Got[]> => {
    const to = socket ?? open()
    const bytes = asks.map((ask) => encoded(ask, version)).join('')
    for (let at = 0; at < bytes.length; ) {
      const size = next() < 0.5 ? bytes.length : 1 + Math.floor(next() ** 2 * 400)
      to.write(bytes.slice(at, at + size), 'latin1')
      at += size
      if (at < bytes.length) await turn()
    }
    const got: Got[] = []
    for (const { method } of asks) {
      let parsed = parseAt(received, 0, method, isEnded)
      while (!parsed) {
        if (isEnded) {
          close()
          return got
        }
        await new Promise<void>((resolve) => {
          wake = resolve
        })
        parsed = parseAt(received, 0, method, isEnded)
      }
      received = received.subarray(parsed.end)
      got.push(parsed.got)
      if (parsed.isLast || (isEnded && received.length === 0)) {
        close()
        return got
      }
    }
    if (version !== '1.0') expect(received.length).toBe(0)
    return got
  }
  const ask = async (asks: readonly Ask[]) => {
    const got: Got[] = []
    for (let tries = 0; got.length < asks.length; tries += 1) {
      if (tries > 2 * asks.length + 2)
        throw new Error(`no response to ${JSON.stringify(asks[got.length])}`)
      const count = version === '1.0' ? 1 : asks.length
      got.push(...(await send(asks.slice(got.length, got.length + count))))
    }
    return got
  }
  return { ask, close }
}

/** HTTP/2: all at once. */
function visitorByHttp2(site: IngressSite): Visitor {
  let session: ClientHttp2Session | undefined
  const one = async (
    to: ClientHttp2Session,
    { method, target, fields, body }: Ask,
  ): Promise<Got> => {
    const own: OutgoingHttpHeaders = { ':method': method, ':path': target }
    for (const [name, value] of fields) {
      if (name === 'Connection' || name === 'Transfer-Encoding') continue
      own[name.toLowerCase()] = value
    }
    const stream = openStream(to, own, body === undefined)
    if (body !== undefined) stream.end(body)
    const { status = 0, headers: got, body: content, trailers, interims } = await answerOf(stream)
    const raw: [string, string][] = []
    for (const [name, value] of Object.entries(got)) {
      if (!name.startsWith(':')) raw.push([name, String(value)])
    }
    if (Object.keys(trailers).length > 0) raw.push(['trailer', JSON.stringify(trailers)])
    return gotOf(status, raw, content, interims as number[])
  }
  const ask = async (asks: readonly Ask[]) => {
    session ??= await connectHttp2(site)
    const to = session
    return Promise.all(asks.map((it) => one(to, it)))
  }
  const close = () => {
    session?.destroy()
    session = undefined
  }
  return { ask, close }
}

const KINDS = ['http/1.1', 'https/1.1', 'http/1.0', 'h2'] as const
type Kind = (typeof KINDS)[number]
const VISITORS: readonly Kind[] = [...KINDS, 'http/1.1', 'h2']

function visitorBy(kind: Kind, site: IngressSite, next: () => number): Visitor {
  if (kind === 'h2') return visitorByHttp2(site)
  return visitorByHttp1(site, kind === 'http/1.0' ? '1.0' : '1.1', kind === 'https/1.1', next)
}

function pick<T>(next: () => number, items: readonly T[]): T {
  return items[Math.floor(next() * items.length)] as T
}

/** A request, and others that differ from it in one thing each: their heads are the same in part. */
function relatedAsks(next: () => number): Ask[] {
  const body = (method: Ask['method']) => (method === 'POST' ? 'xxxxxxx' : undefined)
  const build = (change: Partial<Parts> = {}): Ask => {
    const { method, status, kind, query, cookie } = { ...parts, ...change }
    const target = `/${status}/${kind}/${parts.length}${query}`
    return { method, target, fields: [...more, ['Cookie', cookie]], body: body(method) }
  }
  const parts: Parts = {
    method: pick(next, ['GET', 'GET', 'POST']),
    status: pick(next, ['200', '404']),
    kind: pick(next, ['plain', 'plain', 'odd', 'hop', 'early', 'chunked', 'trailing', 'bare']),
    length: pick(next, [600, 9_000]),
    query: '?a=12',
    cookie: 'mode=1',
  }
  const more = (
    [
      ['X-Twin', 'a'],
      ['Accept-Encoding', 'gzip'],
      ['TE', 'trailers'],
      ['Connection', pick(next, ['X-Twin', 'X-Twit'])],
    ] as const
  ).filter(() => next() < 0.4)
  return [
    build(),
    build({ method: 'HEAD' }),
    build({ status: pick(next, ['204', '304', parts.status === '200' ? '404' : '200']) }),
    build({ kind: parts.kind === 'hop' ? 'not' : 'hop' }),
    build({ query: pick(next, ['?a=21', '?a=21', '?deny']) }),
    build({ cookie: 'made=1' }),
  ]
}

interface Parts {
  readonly method: Ask['method']
  readonly status: string
  readonly kind: string
  readonly length: number
  readonly query: string
  readonly cookie: string
}

it('answers repeated heads like the first ones of a connection', async () => {
  const next = seeded(SEED)
  const site = await startIngressSite({ service: await startService(seeded(SEED + 1)) })
  const endpoint = site.endpoint as { policy: CompiledPolicy }
  const model = new Map<string, Got>()
  let nonce = 0
  let compared = 0
  const visitors = VISITORS.map((kind, at) => ({
    kind,
    visitor: visitorBy(kind, site, seeded(SEED * 100 + at)),
  }))
  for (const [round, rules] of POLICIES.entries()) {
    const asks = relatedAsks(next)
    endpoint.policy = compiled(rules)
    const modelOf = async (kind: Kind, ask: Ask): Promise<Got> => {
      const key = JSON.stringify([kind, ask, rules])
      const known = model.get(key)
      if (known) return known
      nonce += 1
      const fresh = visitorBy(kind, site, () => 0)
      const fields = [...ask.fields, ['X-Nonce', `n${nonce}`] as const]
      const [got] = await fresh.ask([{ ...ask, fields }])
      fresh.close()
      if (!got) throw new Error('no response')
      model.set(key, got)
      return got
    }
    for (const kind of KINDS) for (const ask of asks) await modelOf(kind, ask)
    await Promise.all(
      visitors.map(async ({ kind, visitor }, at) => {
        const own = seeded(SEED * 1_000 + round * 10 + at)
        for (let left = REQUESTS; left > 0; ) {
          const batch: Ask[] = []
          const size = Math.min(left, 1 + Math.floor(own() * 6))
          while (batch.length < size) {
            const ask = pick(own, asks)
            for (let times = 1 + own() * 5; times > 0 && batch.length < size; times -= 1)
              batch.push(ask)
          }
          left -= size
          const got = await visitor.ask(batch)
          for (const [index, ask] of batch.entries()) {
            expect(got[index], `${kind} ${JSON.stringify([ask, rules])}`).toEqual(
              await modelOf(kind, ask),
            )
            compared += 1
          }
        }
      }),
    )
  }
  expect(compared).toBe(POLICIES.length * VISITORS.length * REQUESTS)
})

import { once } from 'node:events'
import { connect } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { keepCaller } from '../../src/http/caller.ts'
import { type BodyPace, FairSemaphore, jsonBody, largeJsonBody } from '../../src/http/json-body.ts'
import { eventually } from '../helpers/eventually.ts'
import { appWith, sendBytes, sendRequest, serveHttp } from '../helpers/serve-http.ts'

const JSON_TYPE = { 'content-type': 'application/json' }
const echo = () =>
  appWith((app) => app.post('/', jsonBody, (request, response) => void response.json(request.body)))

async function post(body: string | Buffer, headers: Record<string, string> = JSON_TYPE) {
  const { at } = await serveHttp(echo())
  return sendRequest(at, { method: 'POST', headers, body })
}

describe('jsonBody', () => {
  it.each([
    'application/json',
    'application/json; charset=utf-8',
    'Application/JSON;charset="UTF-8"',
  ])('reads %s', async (type) => {
    expect((await post('{"a":[1,"ü"]}', { 'content-type': type })).json).toEqual({ a: [1, 'ü'] })
  })

  it.each([
    ['no type', {}],
    ['text/plain', { 'content-type': 'text/plain' }],
    ['a form', { 'content-type': 'application/x-www-form-urlencoded' }],
    ['another charset', { 'content-type': 'application/json; charset=utf-16' }],
    ['a type that only begins alike', { 'content-type': 'application/json-seq' }],
    ['a compressed body', { ...JSON_TYPE, 'content-encoding': 'gzip' }],
  ])('refuses %s with 415', async (_title, headers) => {
    const { status, json } = await post('{}', headers as Record<string, string>)
    expect([status, json.code]).toEqual([415, 'not-json'])
  })

  it.each([
    ['', 'The body is empty.'],
    [' \n', 'The body is empty.'],
    ['{"a": 1,\n "b": }', 'The body is not valid JSON at line 2, column 7.'],
    ['{"a": 1', 'The body is not valid JSON at line 1, column 8.'],
    [`{'a': 1}`, 'The body is not valid JSON at line 1, column 2.'],
    [Buffer.from([0x22, 0xff, 0x22]), 'The body is not UTF-8.'],
    ['['.repeat(40) + ']'.repeat(40), 'The body is nested more than 32 levels deep.'],
    ['['.repeat(32_000) + ']'.repeat(32_000), 'The body is nested more than 32 levels deep.'],
  ])('refuses %j', async (body, detail) => {
    const { status, json } = await post(body)
    expect([status, json.code, json.detail]).toEqual([400, 'invalid-json', detail])
  })

  it('accepts 64 KiB and refuses one byte more, whether or not the length was announced', async () => {
    const largest = `"${'x'.repeat(64 * 1024 - 2)}"`
    expect((await post(largest)).status).toBe(200)
    const { status, json } = await post(`${largest} `)
    expect([status, json.code]).toEqual([413, 'body-too-large'])

    const chunked = await post(`${largest} `, { ...JSON_TYPE, 'transfer-encoding': 'chunked' })
    expect(chunked.status).toBe(413)
  })

  it('refuses an announced length without waiting for the bytes', async () => {
    const { at } = await serveHttp(echo())
    const head =
      'POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n'
    const answer = await sendBytes(at, `${head}content-length: 99999999\r\n\r\n`)
    expect(answer).toMatch('HTTP/1.1 413 ')
  })

  it('takes a body that ends too early for the mistake of the caller', async () => {
    const { at, lines } = await serveHttp(echo())
    const head = 'POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n'
    const socket = connect((at as { port: number }).port, '127.0.0.1').resume()
    socket.end(`${head}content-length: 10\r\n\r\n{`)
    await once(socket, 'close')
    expect(lines.filter((line) => line.level === 'error')).toEqual([])
  })
})

describe('largeJsonBody', () => {
  const MAX_BYTES = 4 * 1024 * 1024
  const PLACES = 4
  const SLOW = { graceMs: 60_000, leastRate: 0, leastRateAwaited: 0 }

  /** The caller is the one that the header `x-caller` names. */
  async function serve(pace: Partial<BodyPace>) {
    const { at } = await serveHttp(
      appWith((app) => {
        app.use((request, response, next) => {
          const name = request.get('x-caller') ?? ''
          const actor = { kind: 'token', id: name, name } as const
          keepCaller(response, { actor, scope: 'write' }, () => {})
          next()
        })
        const body = largeJsonBody(MAX_BYTES, { ...SLOW, ...pace })
        app.post('/', body, (request, response) => void response.json(request.body))
      }),
    )
    return at
  }

  /** Sends a head and the beginning of a body; answers the socket and what came back on it. */
  async function begin(at: { port: number }, caller: string) {
    const socket = connect(at.port, '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    const answer = { text: '' }
    socket.setEncoding('utf8').on('data', (text: string) => {
      answer.text += text
    })
    socket.on('error', () => {})
    socket.write(
      `POST / HTTP/1.1\r\nhost: a\r\nx-caller: ${caller}\r\n` +
        'content-type: application/json\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n[',
    )
    await eventually(() => expect(answer.text).toContain(' 100 '))
    return { socket, answer }
  }

  const ask = (at: Parameters<typeof sendRequest>[0], caller: string) =>
    sendRequest(at, {
      method: 'POST',
      headers: { ...JSON_TYPE, 'x-caller': caller },
      body: '[1]',
    })

  it('leaves places for others, however many bodies of one caller are on their way', async () => {
    const at = await serve({})
    for (let n = 0; n < 2 * PLACES; n += 1) await begin(at as { port: number }, 'greedy')
    expect((await ask(at, 'other')).json).toEqual([1])
  })

  it('refuses a body that arrives too slowly with 408, and closes its connection', async () => {
    const at = await serve({ graceMs: 20, leastRate: 1_024 })
    const { socket, answer } = await begin(at as { port: number }, 'slow')
    await once(socket, 'close')
    expect(answer.text).toMatch(/HTTP\/1\.1 408 .*request-timeout/s)
    expect((await ask(at, 'slow')).json).toEqual([1])
  })

  it('expects more of a body while other callers wait for its place', async () => {
    const at = await serve({ graceMs: 20, leastRateAwaited: 1_000_000 })
    const slow = []
    for (let n = 0; n < PLACES; n += 1) slow.push(await begin(at as { port: number }, `slow ${n}`))
    expect((await ask(at, 'other')).json).toEqual([1])
    expect(slow.some(({ answer }) => answer.text.includes('408'))).toBe(true)
  })
})

/** Work that ends when it is told to; `begun` are the keys in the order in which their work began. */
function startWork(semaphore: FairSemaphore) {
  const begun: string[] = []
  const ends: (() => void)[] = []
  const work = (key: string) =>
    semaphore.run(key, () => {
      begun.push(key)
      return new Promise<void>((resolve) => ends.push(resolve))
    })
  return { begun, ends, work }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

describe('FairSemaphore', () => {
  it('runs as much as there are places, and of one key no more than its share', async () => {
    const semaphore = new FairSemaphore({ limit: 3, perKey: 2 })
    const { begun, work } = startWork(semaphore)
    for (const key of ['a', 'a', 'a']) void work(key)
    await turn()
    expect([begun, semaphore.isShort]).toEqual([['a', 'a'], false])
    for (const key of ['b', 'c']) void work(key)
    await turn()
    expect([begun, semaphore.isShort]).toEqual([['a', 'a', 'b'], true])
  })

  it('gives a free place to the key with the fewest, then to the first in line', async () => {
    const semaphore = new FairSemaphore({ limit: 2, perKey: 2 })
    const { begun, ends, work } = startWork(semaphore)
    for (const key of ['a', 'a', 'a', 'b', 'c']) void work(key)
    for (let n = 0; n < 5; n += 1) {
      await turn()
      ends[n]?.()
    }
    await turn()
    expect(begun).toEqual(['a', 'a', 'b', 'a', 'c'])
  })

  it('frees the place of work that fails', async () => {
    const semaphore = new FairSemaphore({ limit: 1, perKey: 1 })
    const failed = semaphore.run('a', () => Promise.reject(new Error('no')))
    await expect(failed).rejects.toThrow('no')
    expect(await semaphore.run('a', async () => 1)).toBe(1)
  })
})

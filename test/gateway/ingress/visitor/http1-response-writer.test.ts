import { createGzip, gunzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { createDeferred } from '../../../../src/base/deferred.ts'
import type { Client, OutgoingResponse } from '../../../../src/gateway/ingress/common/client.ts'
import { ExchangeTraffic } from '../../../../src/gateway/ingress/common/exchange-traffic.ts'
import { IncomingRequest } from '../../../../src/gateway/ingress/common/incoming-request.ts'
import { CHUNKED, UNTIL_CLOSE } from '../../../../src/gateway/ingress/syntax/http-syntax.ts'
import { parseRequestHead } from '../../../../src/gateway/ingress/syntax/request-head.ts'
import { Http1ResponseWriter } from '../../../../src/gateway/ingress/visitor/http1-response-writer.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { fieldsOf, RawClient, startRawService } from '../../../helpers/raw-http.ts'

type Transforms = OutgoingResponse['transforms']

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n'
const ASKING =
  'PUT / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 40\r\n\r\n'
const NEXT = 'GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n'

async function clientOf(...answers: string[]): Promise<RawClient> {
  const port = await startRawService((socket) => {
    socket.once('data', () => {
      for (const answer of answers) socket.write(answer)
    })
    socket.on('end', () => socket.end())
  })
  const site = await startIngressSite({ service: port })
  return RawClient.connect(site.addresses.http.port)
}

describe('a final response to a client that waits for a 100', () => {
  it('closes the connection: nobody can tell whether the body still comes', async () => {
    const client = await clientOf(OK)
    client.send(ASKING)
    expect(fieldsOf(await client.receive('ok')).connection).toBe('close')
    // Were it kept, this would be swallowed as the body that was announced.
    client.send(NEXT)
    expect(await client.end()).toBe('end')
    expect(client.text.match(/^HTTP/gm)).toHaveLength(1)
  })

  it.each([
    ['was told to go on', [CONTINUE, OK], ''],
    ['did not wait', [OK], 'x'],
  ])('keeps it for one that %s', async (_what, answers, early) => {
    const client = await clientOf(...answers)
    client.send(`${ASKING}${early}`)
    expect(await client.receive('ok')).not.toContain('connection: close')
    client.send(`${'x'.repeat(40 - early.length)}GET / HTTP/1.1\r\nHost: no.test\r\n\r\n`)
    await client.receive('ERR_NGROK_3200')
  })
})

describe('lent bytes, which are overwritten after the call', () => {
  const begun = (version: '1.0' | '1.1', framing: number, transforms: Transforms = []) => {
    const written: Buffer[] = []
    const client = {
      isStopping: false,
      countHeld() {},
      write: (chunk: Buffer) => written.push(chunk) > 0,
    } as unknown as Client
    const head = parseRequestHead({ line: `GET / HTTP/${version}`, fields: ['Host', 'a'] })
    const request = new IncomingRequest(head, client, systemClock)
    const ended = createDeferred<void>()
    const writer = new Http1ResponseWriter(client, request, new ExchangeTraffic(), {
      onWriterRoom() {},
      onWritten: () => ended.resolve(undefined),
      onTransformError: (error) => ended.reject(error),
    })
    writer.begin({ status: 200, reason: 'OK', fields: [], framing, transforms }, true)
    const lend = (text: string) => {
      const chunk = Buffer.from(text)
      writer.write(chunk, true)
      chunk.fill('!')
    }
    const body = async () => {
      writer.finish()
      await ended.promise
      const bytes = Buffer.concat(written)
      return bytes.subarray(bytes.indexOf('\r\n\r\n') + 4)
    }
    return { lend, body }
  }
  const [short, long] = ['short', 'long '.repeat(5_000)]

  it.each([
    ['1.1', short.length + long.length + 2, [short, long, 'is']],
    ['1.1', long.length + 2, [long, 'is']],
  ] as const)('go to a client of HTTP/%s, %i bytes', async (version, length, parts) => {
    const { lend, body } = begun(version, length)
    for (const part of parts) lend(part)
    expect(String(await body())).toBe(parts.join(''))
  })

  it('go to a client of HTTP/1.0 without the lines of their chunks', async () => {
    const { lend, body } = begun('1.0', CHUNKED)
    for (const part of [short, long]) lend(`${part.length.toString(16)}\r\n${part}\r\n`)
    lend('0\r\n\r\n')
    expect(String(await body())).toBe(short + long)
  })

  it('are sent in chunks if they end with the connection of the service', async () => {
    const { lend, body } = begun('1.1', UNTIL_CLOSE)
    lend(short)
    lend(long)
    const chunks = [short, long].map((part) => `${part.length.toString(16)}\r\n${part}\r\n`)
    expect(String(await body())).toBe(`${chunks.join('')}0\r\n\r\n`)
  })

  it('are transformed', async () => {
    const { lend, body } = begun('1.0', UNTIL_CLOSE, [{ isWhole: false, create: createGzip }])
    lend(short)
    lend(long)
    expect(String(gunzipSync(await body()))).toBe(short + long)
  })
})

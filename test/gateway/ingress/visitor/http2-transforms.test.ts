import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createGunzip, gunzipSync, gzipSync } from 'node:zlib'
import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../../src/base/clock.ts'
import { compilePolicy } from '../../../../src/policy/policy.ts'
import { captureLog } from '../../../helpers/captured-log.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { answerOf, connectHttp2, openStream } from '../../../helpers/http2-visitor.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'

const COMPRESS = { type: 'compress-response' }
const HIDE = {
  type: 'response-body-find-replace',
  config: { replacements: [{ from: 'secret-[0-9]+', to: '[hidden]' }] },
}

/** A visitor of an endpoint whose policy changes the bodies of its service. */
async function siteWith(actions: readonly object[], listener: RequestListener) {
  const server = createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const policy = compilePolicy(
    { on_http_response: [{ actions }] },
    {
      clock: systemClock,
      log: captureLog().log,
    },
  )
  const { port: service } = server.address() as AddressInfo
  const site = await startIngressSite({ service, policy })
  return { site, session: await connectHttp2(site) }
}

const asText: RequestListener = (_request, response) => {
  response.setHeader('content-type', 'text/plain')
}

describe('a body that a policy changes, over HTTP/2', () => {
  it('is whole, with its new length', async () => {
    const { session } = await siteWith([HIDE], (request, response) => {
      asText(request, response)
      response.end('the secret-1 and the secret-22')
    })
    const { status, headers, body, code } = await answerOf(openStream(session))
    expect(body.toString()).toBe('the [hidden] and the [hidden]')
    expect([status, code, headers['content-length']]).toEqual([200, 0, String(body.length)])
  })

  it('is whole also where nothing is left of it', async () => {
    const all = { ...HIDE, config: { replacements: [{ from: '.*', to: '' }] } }
    const { session } = await siteWith([all], (request, response) => {
      asText(request, response)
      response.write('secret-')
      response.end('1')
    })
    const { headers, body, code } = await answerOf(openStream(session))
    expect([body.length, headers['content-length'], code]).toEqual([0, '0', 0])
  })

  it('comes as it is compressed, without the length that it had', async () => {
    const text = 'hello '.repeat(20_000)
    const { session } = await siteWith([COMPRESS], (request, response) => {
      asText(request, response)
      response.setHeader('content-length', text.length)
      response.end(text)
    })
    const { headers, body, code } = await answerOf(
      openStream(session, { 'accept-encoding': 'gzip' }),
    )
    expect(headers).toMatchObject({ 'content-encoding': 'gzip' })
    expect(headers).not.toHaveProperty('content-length')
    expect([gunzipSync(body).toString() === text, code]).toEqual([true, 0])
    expect(body.length).toBeLessThan(text.length / 10)
  })

  it('is compressed part by part: what the service has said is there before it goes on', async () => {
    let goOn = () => {}
    const { session } = await siteWith([COMPRESS], (request, response) => {
      asText(request, response)
      response.write('first '.repeat(1_000))
      goOn = () => response.end('last')
    })
    const stream = openStream(session, { 'accept-encoding': 'gzip' })
    let text = ''
    const unpacked = createGunzip().on('data', (part) => (text += part))
    const ended = once(stream.pipe(unpacked), 'end')
    await eventually(() => expect(text.startsWith('first ')).toBe(true))
    expect(text).not.toContain('last')
    goOn()
    await ended
    expect(text.endsWith('last')).toBe(true)
  })

  it('waits for a visitor who takes it slowly, and is whole in the end', async () => {
    // What cannot be made smaller has to fit through.
    const bytes = Buffer.from(Array.from({ length: 4_000_000 }, () => Math.random() * 256))
    let written = 0
    const { session } = await siteWith([COMPRESS], (request, response) => {
      asText(request, response)
      const send = () => {
        while (written < bytes.length) {
          const part = bytes.subarray(written, written + 50_000)
          written += part.length
          if (!response.write(part)) return void response.once('drain', send)
        }
        response.end()
      }
      send()
    })
    const stream = openStream(session, { 'accept-encoding': 'gzip' })
    await once(stream, 'response')
    const parts: Buffer[] = []
    stream.on('data', (part: Buffer) => {
      parts.push(part)
      stream.pause()
      setImmediate(() => stream.resume())
    })
    await once(stream, 'end')
    expect(gunzipSync(Buffer.concat(parts)).equals(bytes)).toBe(true)
  })

  it('is none in the answer to a HEAD', async () => {
    const { session } = await siteWith([HIDE], (request, response) => {
      asText(request, response)
      response.setHeader('content-length', 8)
      response.end(request.method === 'HEAD' ? undefined : 'secret-1')
    })
    const { status, body, code } = await answerOf(openStream(session, { ':method': 'HEAD' }))
    expect([status, body.length, code]).toEqual([200, 0, 0])
  })

  it('is changed as it comes when it is long', async () => {
    const { session, site } = await siteWith([HIDE], (request, response) => {
      asText(request, response)
      response.end('secret-1 of many\n'.repeat(90_000))
    })
    const { status, body, code, headers } = await answerOf(openStream(session))
    expect([status, code, headers['content-length']]).toEqual([200, 0, undefined])
    expect(body.includes('secret')).toBe(false)
    expect(body.toString().match(/ of many\n/g)).toHaveLength(90_000)
    await eventually(() => expect(site.endpoint.traffic.active).toBe(0))
  })

  it('is broken off, and looks not whole, when it is damaged', async () => {
    const { session, site } = await siteWith([HIDE], (request, response) => {
      asText(request, response)
      response.setHeader('content-encoding', 'gzip')
      response.end(gzipSync(randomBytes(1_500_000).toString('hex')).subarray(0, -9))
    })
    const { status, code } = await answerOf(openStream(session))
    expect(status === 200 && code === 0).toBe(false)
    await eventually(() => expect(site.endpoint.traffic.active).toBe(0))
  })
})

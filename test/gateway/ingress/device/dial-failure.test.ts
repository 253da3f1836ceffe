import { describe, expect, it } from 'vitest'
import { turns } from '../../../helpers/frame-peer.ts'
import { startHandSite } from '../hand-device.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const BROKEN = 'ERR_NGROK_3004'

const request = (method = 'GET') => `${method} / HTTP/1.1\r\nHost: a.test\r\n\r\n`

describe('an answer that looks like the one of an SDK that finds no service', () => {
  const own = (body: string, length = body.length, status = '502 Bad Gateway') =>
    `HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: ${length}\r\ndate: x\r\n\r\n${body}`
  const DIAL = 'failed to dial backend: connection refused'

  it.each(['GET', 'POST'])('is a service that cannot be reached for %s', async (method) => {
    const { device, site, free, visit, read } = await startHandSite()
    const client = await visit(request(method))
    // In pieces, as it may come.
    for (const part of own(DIAL).match(/.{1,20}/gs) ?? []) {
      device.last.send(part)
      await turns(2)
    }
    const text = await read(client)
    expect(text).toContain('ERR_NGROK_8012')
    expect(text).not.toContain(DIAL)
    expect(site.session.freeSlots).toBe(free)
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ unreachable: 1, answered: 0 })
  })

  it.each([
    'failed to dial backend: https://nas.lan:443 shows a certificate that is not trusted',
    'failed to dial backend: invalid peer certificate: UnknownIssuer',
  ])('is a service whose certificate the device does not trust: %s', async (said) => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.send(own(said))
    expect(await read(client)).toMatch(/^HTTP\/1\.1 502 .*ERR_GATEWAY_UNTRUSTED/s)
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ unreachable: 1, answered: 0 })
  })

  it.each([
    'failed to dial backend: Connection reset by peer (os error 104)',
    'failed to dial backend: closed by the remote host. (os error 10054)',
    'failed to dial backend: localhost:80 answers with a connection reset',
  ])('is a service that takes connections and answers nothing: %s', async (said) => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.send(own(said))
    expect(await read(client)).toMatch(/^HTTP\/1\.1 502 .*ERR_NGROK_3004/s)
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ garbage: 1, unreachable: 0 })
  })

  it('is not judged by the name of the service', async () => {
    const { device, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.send(own('failed to dial backend: https://certificates.lan:443 cannot be reached'))
    expect(await read(client)).toMatch(/^HTTP\/1\.1 502 .*ERR_NGROK_8012/s)
  })

  it('is for HEAD, too, which has no body to tell by', async () => {
    const { device, visit, read } = await startHandSite()
    const client = await visit(request('HEAD'))
    device.last.send(own('', 40))
    expect(await read(client)).toContain('ERR_NGROK_8012')
  })

  it('is told to HEAD by our agent, whose answer has a body all the same', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(request('HEAD'))
    device.last.send(own('failed to dial backend: https://nas.lan shows a certificate'))
    const text = await read(client)
    expect(text).toMatch(/^HTTP\/1\.1 502 .*ERR_GATEWAY_UNTRUSTED/s)
    expect(text).toMatch(/\r\n\r\n$/)
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ unreachable: 1, answered: 0 })
  })

  it.each([
    ['another text', own('failed to reach the database')],
    ['no text', own('')],
  ])('is passed on, all of it, with %s', async (_what, answer) => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(request())
    for (const part of answer.match(/.{1,20}/gs) ?? []) {
      device.last.send(part)
      await turns(2)
    }
    expect(await read(client)).toBe(answer.replace('connection: close\r\n', ''))
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ unreachable: 0, answered: 1 })
  })

  it('is incomplete when it breaks off', async () => {
    const { device, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.send(own('failed to dial', 40))
    device.last.end()
    expect(await read(client)).toContain(BROKEN)
  })

  it('is passed on at once where the stream has served before', async () => {
    const { device, visit, read } = await startHandSite()
    const client = await visit(request())
    device.last.send(OK)
    await read(client)
    client.send(request())
    await turns()
    const answer = own(DIAL)
    device.last.send(answer.slice(0, -5))
    expect((await read(client)).slice(OK.length)).toBe(
      answer.slice(0, -5).replace('connection: close\r\n', ''),
    )
  })
})

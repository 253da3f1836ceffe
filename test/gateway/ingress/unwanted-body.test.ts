import { describe, expect, it } from 'vitest'
import { turns } from '../../helpers/frame-peer.ts'
import { fieldsOf } from '../../helpers/raw-http.ts'
import { startHandSite } from './hand-device.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const get = (more = '') => `GET / HTTP/1.1\r\nHost: a.test\r\n${more}\r\n`
const post = (bytes: number) =>
  `POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: ${bytes}\r\n\r\n`
const CHUNKED = 'POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n'

describe('a body that is no body', () => {
  it('is 400 with a reason, and the end of the connection', async () => {
    const { device, site, free, visit, read } = await startHandSite()
    const client = await visit(`${CHUNKED}nonsense`)
    const answer = await read(client)
    expect(answer).toMatch(/^HTTP\/1\.1 400 .*It has .* \(ERR_GATEWAY_BAD_REQUEST\)/s)
    expect(fieldsOf(answer).connection).toBe('close')
    expect(client.ending).toBe('end')
    expect(device.last.isEnded).toBe(true)
    expect(site.session.freeSlots).toBe(free)
    expect([...site.endpoint.traffic.errors]).toEqual([['ERR_GATEWAY_BAD_REQUEST', 1]])
    // It is the client's fault alone.
    expect(site.endpoint.traffic.outcomes.counts).toMatchObject({ garbage: 0, abandoned: 0 })
  })

  it('is not answered twice: behind its answer the connection just ends', async () => {
    const { device, site, visit, read } = await startHandSite()
    const client = await visit(CHUNKED)
    device.last.send(OK)
    expect(await read(client)).toBe(OK)
    client.send('nonsense')
    expect(await read(client)).toBe(OK)
    expect(client.ending).toBe('end')
    expect(site.endpoint.traffic).toMatchObject({ active: 0, refused: 0 })
  })
})

describe('a rest of a body that nobody wants', () => {
  const limits = { discardedBytes: 1_000 }

  /** A client that has its answer, and has sent 5 bytes of a longer body. */
  async function answered(body: string) {
    const parts = await startHandSite({ limits })
    const client = await parts.visit(body)
    parts.device.last.send(OK)
    expect(await parts.read(client)).toBe(OK)
    return { ...parts, client }
  }

  it('is dropped up to a limit, and the next request is served', async () => {
    const { device, client, read } = await answered(`${post(1_005)}12345`)
    client.send(`${'x'.repeat(1_000)}${get()}`)
    await turns()
    expect(device.streams).toHaveLength(2)
    device.last.send(OK)
    expect(await read(client)).toBe(OK.repeat(2))
  })

  it('ends the connection where it is longer', async () => {
    const { device, client, read } = await answered(`${post(2_000)}12345`)
    client.send('x'.repeat(1_000))
    await read(client)
    expect(client.ending).toBeUndefined()
    client.send('x')
    await read(client)
    expect(client.ending).toBe('end')
    client.send(`${'x'.repeat(994)}${get()}`)
    await turns()
    expect(device.streams).toHaveLength(1)
  })

  it('ends the connection where it does not come', async () => {
    const { site, client, read } = await answered(`${post(1_005)}12345`)
    await site.advance(60_000)
    expect(await read(client)).toBe(OK)
    expect(client.ending).toBe('end')
    expect(site.endpoint.traffic).toMatchObject({ active: 0, refused: 0 })
  })

  it('is not waited for where the connection ends anyway', async () => {
    const { device, visit, read } = await startHandSite({ limits })
    const client = await visit(post(100).replace('Host', 'Connection: close\r\nHost'))
    device.last.send(OK)
    await read(client)
    expect(client.ending).toBe('end')
  })

  it('does not hurt a client that reads its answer late', async () => {
    const { device, visit, read } = await startHandSite({ limits })
    const client = await visit(`${post(10)}12345`)
    const answer = `HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n${'x'.repeat(200_000)}`
    device.last.send(answer)
    await turns(50)
    expect(await read(client)).toBe(answer)
    client.send(`67890${get()}`)
    await turns()
    expect(device.streams).toHaveLength(2)
    expect(client.ending).toBeUndefined()
  })
})

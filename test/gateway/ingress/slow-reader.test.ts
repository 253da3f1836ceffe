import { expect, it } from 'vitest'
import { turns } from '../../helpers/frame-peer.ts'
import { startMemorySite } from '../../helpers/memory-site.ts'

const BODY = 'x'.repeat(200_000)
const CHUNKED = `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n30d40\r\n${BODY}\r\n0\r\n\r\n`
const COUNTED = `HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n${BODY}`

/** A client that has not read a byte when the gateway has the whole response of the device. */
async function silentReader(request: string, response: string) {
  const site = await startMemorySite({
    serve(stream) {
      let isHeard = false
      stream.handler = {
        onData(chunk: Buffer) {
          if (isHeard || !String(chunk).includes('\r\n\r\n')) return
          isHeard = true
          stream.write(Buffer.from(response))
        },
        onEnd: () => stream.end(),
        onDrain() {},
        onClose() {},
      }
    },
  })
  const client = site.visit()
  client.send(`${request}Host: a.test\r\n\r\n`)
  await turns(50)
  expect(site.endpoint.traffic).toMatchObject({ requests: 1, active: 0 })
  return { site, client }
}

const CASES = [
  ['HTTP/1.0 and a body that ends with the connection', 'GET / HTTP/1.0\r\n', CHUNKED],
  ['a connection that closes behind it', 'GET / HTTP/1.1\r\nConnection: close\r\n', COUNTED],
  ['a connection that is kept', 'GET / HTTP/1.1\r\n', COUNTED],
] as const

it.each(CASES)('a slow reader gets all of a response: %s', async (_what, request, response) => {
  const { site, client } = await silentReader(request, response)
  // Each step takes longer than a client has for its goodbye, and less than a silence.
  for (let step = 0; step < 40; step += 1) {
    await site.advance(10_000)
    client.consume(10_000)
    await turns(5)
  }
  await site.advance(90_000)
  client.consume(1)
  const received = Buffer.concat(client.received).toString('latin1')
  expect(received.endsWith(BODY)).toBe(true)
  expect(client.ending).toBe('end')
  await site.advance(5_000)
  expect(site.connections.size).toBe(0)
})

it.each(CASES)('a reader that stops sees that it was broken off: %s', async (_what, ...parts) => {
  const { site, client } = await silentReader(...parts)
  await site.advance(250_000)
  expect(client.ending).toBeUndefined()
  await site.advance(150_000)
  expect(client.ending).toBe('reset')
  expect(site.connections.size).toBe(0)
})

it('a client that never says goodbye is closed soon after it has everything', async () => {
  const { site, client } = await silentReader('GET / HTTP/1.0\r\n', CHUNKED)
  while (client.consume(50_000) > 0) await turns(5)
  expect(client.ending).toBe('end')
  await site.advance(1_000)
  expect(site.connections.size).toBe(1)
  await site.advance(4_000)
  expect(site.connections.size).toBe(0)
})

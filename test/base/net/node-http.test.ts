import { once } from 'node:events'
import { createServer, type RequestListener, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { exchange } from '../../../src/base/net/node-http.ts'

async function ask(listener: RequestListener, content?: string) {
  const server = createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const { port } = server.address() as AddressInfo
  return exchange(request({ port, host: '127.0.0.1', method: 'POST', agent: false }), content, 10)
}

describe('an exchange', () => {
  it('sends the content and reads all of the answer', async () => {
    const { response, text } = await ask(
      (incoming, outgoing) => incoming.pipe(outgoing),
      '0123456789',
    )
    expect([response.statusCode, text]).toEqual([200, '0123456789'])
  })

  it('ends when the answer is longer, and lets go of the connection', async () => {
    let closed: Promise<unknown> | undefined
    const asked = ask((_request, response) => {
      closed = once(response, 'close')
      response.write('01234567890')
    })
    await expect(asked).rejects.toThrow('longer than 10 bytes')
    await closed
  })

  it.each([
    ['before the answer', (response: { destroy(): void }) => response.destroy()],
    [
      'within the answer',
      (response: { write(text: string): void; socket: unknown }) => {
        response.write('01')
        setImmediate(() => (response.socket as { destroy(): void }).destroy())
      },
    ],
  ])('fails when the connection breaks off %s', async (_when, answer) => {
    await expect(ask((_request, response) => answer(response))).rejects.toThrow(
      /socket hang up|aborted/,
    )
  })
})

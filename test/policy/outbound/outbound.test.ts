import { type AddressInfo, createServer, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { send } from '../../../src/policy/outbound/outbound.ts'
import { mayDial, parseAllowEntry } from '../../../src/policy/outbound/outbound-allow.ts'

const REACH = { mayDial: () => true }

/** A server that answers each request with these bytes, and says when they are on their way. */
async function startServer(bytes: string) {
  const sockets = new Set<Socket>()
  let onAnswer = () => {}
  const answered = new Promise<void>((resolve) => {
    onAnswer = resolve
  })
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('data', () => socket.write(bytes, onAnswer))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return { url: new URL(`http://127.0.0.1:${port}/`), answered }
}

const ask = (url: URL, signal: AbortSignal) =>
  send({ url, method: 'GET', headers: {}, maxBytes: 1_000, signal }, REACH)

describe('what a policy asks', () => {
  it('is over in time where the answer changes the protocol', async () => {
    const upgrade = 'connection: upgrade\r\nupgrade: websocket\r\n\r\n'
    const { url, answered } = await startServer(`HTTP/1.1 101 Switching Protocols\r\n${upgrade}`)
    const stop = new AbortController()
    const answer = ask(url, stop.signal)
    const told = expect(answer).rejects.toMatchObject({ code: 'ERR_NGROK_3602' })
    await answered
    stop.abort()
    await told
  })

  it('is over in time in the middle of an answer', async () => {
    const { url, answered } = await startServer('HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab')
    const stop = new AbortController()
    const answer = ask(url, stop.signal)
    const told = expect(answer).rejects.toMatchObject({ code: 'ERR_NGROK_3602' })
    await answered
    stop.abort()
    await told
  })

  it('is not sent when it is over already', async () => {
    const { url } = await startServer('HTTP/1.1 204 No Content\r\n\r\n')
    await expect(ask(url, AbortSignal.abort())).rejects.toMatchObject({ code: 'ERR_NGROK_3602' })
  })

  it('names a host that DNS does not know, and whether it is listed', async () => {
    const entry = parseAllowEntry('nobody.invalid:443')
    if ('problem' in entry) return expect.unreachable()
    const askFor = (url: string) => {
      const request = { url: new URL(url), method: 'GET', headers: {}, maxBytes: 1_000 }
      const { signal } = new AbortController()
      return send({ ...request, signal }, { mayDial: (target) => mayDial([entry], target) })
    }
    await expect(askFor('https://nobody.invalid/hook')).rejects.toMatchObject({
      code: 'ERR_NGROK_3600',
      message: expect.stringMatching(/^nobody\.invalid cannot be resolved: [^.]+\.$/),
    })
    await expect(askFor('https://other.invalid/hook')).rejects.toThrow(
      /^other\.invalid cannot be resolved: .* GATEWAY_OUTBOUND_ALLOW does not list other\.invalid:443 either\.$/,
    )
  })
})

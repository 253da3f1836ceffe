import { describe, expect, it } from 'vitest'
import { eventually } from '../../helpers/eventually.ts'
import { startIngressSite } from '../../helpers/ingress-site.ts'
import { RawClient, startRawService } from '../../helpers/raw-http.ts'

const request = (path: string, host = 'a.test', more = '') =>
  `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`
const UPGRADE = 'Connection: Upgrade\r\nUpgrade: raw\r\n'

/** Answers nothing, a download without end, or an upgrade that echoes, as the path asks. */
function startEndlessService(): Promise<number> {
  return startRawService((socket) => {
    socket.on('end', () => socket.end())
    socket.once('data', (head: Buffer) => {
      const [, path] = String(head).split(' ')
      if (path === '/echo') {
        socket.write(`HTTP/1.1 101 Switching Protocols\r\n${UPGRADE}\r\n`)
        socket.pipe(socket)
      }
      if (path !== '/download') return
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n')
      const timer = setInterval(() => socket.write('x'.repeat(10_000)), 5)
      socket.on('close', () => clearInterval(timer))
    })
  })
}

describe('an endpoint that is cut off', () => {
  it('ends what is under way at once, and leaves the others of its session alone', async () => {
    const site = await startIngressSite({ service: await startEndlessService() })
    const { port } = site.addresses.http
    site.bind('b.test')
    const free = site.session.freeSlots
    const visit = async (text: string, part: string) => {
      const client = RawClient.connect(port)
      client.send(text)
      if (part !== '') await client.receive(part)
      return client
    }
    const download = await visit(request('/download'), 'xxx')
    const upgraded = await visit(request('/echo', 'a.test', UPGRADE), '101')
    const waiting = await visit(request('/'), '')
    const other = await visit(request('/echo', 'b.test', UPGRADE), '101')
    await eventually(() => expect(site.session.freeSlots).toBe(free - 4))

    site.registry.remove(site.endpoint)
    site.endpoint.streams.cut()
    expect(await waiting.receive('ERR_NGROK_')).toMatch(/^HTTP\/1\.1 (404|502|503) /)
    for (const client of [download, upgraded]) {
      await eventually(() => expect(client.ending).toBeDefined())
    }
    await eventually(() => expect(site.session.freeSlots).toBe(free - 1))
    expect(site.endpoint.traffic.active).toBe(0)
    other.send('still here')
    await other.receive('still here')
  })
})

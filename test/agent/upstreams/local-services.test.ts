import { once } from 'node:events'
import type { RequestListener } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { endianness } from 'node:os'
import { describe, expect, it, onTestFinished } from 'vitest'
import { findServices, ownSockets } from '../../../src/agent/upstreams/local-services.ts'
import { onWebPort } from '../../helpers/on-web-port.ts'
import { serveHttp } from '../../helpers/serve-http.ts'
import { LOOPBACK, socketTable } from '../../helpers/socket-table.ts'
import { createTlsFixture } from '../../helpers/tls-fixture.ts'

const { signal } = new AbortController()
const isAllowed = async () => true
const MAX_PAGE = 32 * 1024

async function listen(server: Server, port = 0): Promise<number> {
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}

const serveWebPage = (listener: RequestListener) =>
  onWebPort((port) => serveHttp(listener, { host: '127.0.0.1', port }))

const titlesAt = async (...ports: readonly number[]) => {
  const tables = [socketTable(...ports.map((port) => [port] as const))]
  return (await findServices({ isAllowed, signal, tables })).map(({ title }) => title)
}

describe.runIf(endianness() === 'LE')('the services of a device', () => {
  it('have the title of their start page, with and without TLS', async () => {
    const { server } = await serveWebPage((request, response) => {
      if (request.url === '/') response.writeHead(302, { location: '/login' }).end()
      else response.end('<html><title>\n Camera &amp; <!-- \n Co </title>')
    })
    const { certPem, keyPem } = await createTlsFixture()
    const secure = createHttpsServer({ cert: certPem, key: keyPem }, (_request, response) => {
      response.writeHead(401, { 'www-authenticate': 'Basic realm="NAS 7"' }).end()
    })
    const port = await onWebPort((it) => listen(secure, it))
    const tables = [socketTable([server.port], [port])]
    expect(await findServices({ isAllowed, signal, tables })).toEqual(
      [
        {
          port: server.port,
          forwardsTo: `localhost:${server.port}`,
          protocol: 'http',
          isAsked: true,
          title: 'Camera & <!-- Co',
        },
        {
          port,
          forwardsTo: `https://localhost:${port}`,
          protocol: 'http',
          isAsked: true,
          title: 'NAS 7',
        },
      ].sort((a, b) => a.port - b.port),
    )
  })

  it('are listed without a title if they do not answer HTTP', async () => {
    const silent = createServer((socket) => socket.on('error', () => {}).resume())
    const port = await onWebPort((it) => listen(silent, it))
    const tables = [socketTable([port])]
    const found = await findServices({ isAllowed, signal, tables })
    const plain = { port, forwardsTo: `localhost:${port}`, protocol: 'tcp', title: undefined }
    expect(found).toEqual([{ ...plain, isAsked: true }])
  })

  it('are not the listeners of this process, such as relays', async () => {
    const port = await listen(createServer())
    const find = async (hidden?: ReadonlySet<string>) =>
      (await findServices({ isAllowed: async (it) => it.port === port, signal, hidden })).length
    expect([await find(), await find(await ownSockets())]).toEqual([1, 0])
  })

  it('are asked only if a tunnel may lead there, and not if their protocol is known', async () => {
    let asked = 0
    const { server } = await serveWebPage((_request, response) => {
      asked += 1
      response.end()
    })
    const isOther = async ({ port }: { port: number }) => port !== server.port
    const tables = [socketTable([22], [server.port])]
    expect(await findServices({ isAllowed: isOther, signal, tables })).toEqual([
      { port: 22, forwardsTo: 'localhost:22', protocol: 'tcp', isAsked: false, title: 'SSH' },
    ])
    expect(asked).toBe(0)
  })

  it('are not asked on ports that web pages rarely use', async () => {
    let connections = 0
    const machine = createServer((socket) => {
      connections += 1
      socket.on('error', () => {}).destroy()
    })
    const port = await listen(machine)
    const found = await findServices({ isAllowed, signal, tables: [socketTable([port])] })
    expect(found).toMatchObject([{ port, isAsked: false, title: undefined }])
    expect(connections).toBe(0)
  })

  it('have the title of a page in small parts that does not end', async () => {
    const { server } = await serveWebPage((_request, response) => {
      const parts = ['<title lang="en">Ca', 'mera</TI', 'TLE>']
      const next = () => parts.length > 0 && response.write(parts.shift(), next)
      next()
    })
    expect(await titlesAt(server.port)).toEqual(['Camera'])
  })

  it.each(['<title', '<title>', '<title ', '<title a', '</title', ' '])(
    'cannot block the agent by a page of "%s"',
    async (part) => {
      const page = part.repeat(MAX_PAGE / part.length)
      const serve: RequestListener = (_request, response) => {
        // In small parts: each must not search all earlier ones again.
        for (let at = 0; at < page.length; at += 1_000) response.write(page.slice(at, at + 1_000))
        response.end()
      }
      const ports: number[] = []
      while (ports.length < 4) ports.push((await serveWebPage(serve)).server.port)
      const before = process.cpuUsage()
      expect(await titlesAt(...ports)).toEqual(ports.map(() => undefined))
      const { user } = process.cpuUsage(before)
      expect(user / 1_000).toBeLessThan(600)
    },
  )

  it('listen on loopback or on all addresses', async () => {
    const four = socketTable(
      [22],
      [25, '00000000'],
      // 192.168.1.7, 127.0.0.53, and an open connection.
      [53, '0701A8C0'],
      [111, '3500007F'],
      [139, LOOPBACK, '01'],
    )
    const six = socketTable(
      [22, '00000000000000000000000000000000'],
      [445, '00000000000000000000000001000000'],
      [502, '0000000000000000FFFF00000100007F'],
      [515, '000080FE00000000FF005450FE123456'],
    )
    const found = await findServices({ isAllowed, signal, tables: [four, six] })
    expect(found.map(({ forwardsTo }) => forwardsTo)).toEqual([
      'localhost:22',
      'localhost:25',
      '[::1]:445',
      'localhost:502',
    ])
  })

  it('are at most 40', async () => {
    const rows = Array.from({ length: 60 }, (_, at) => [40_000 + at] as const)
    const allowed: number[] = []
    const found = await findServices({
      isAllowed: async ({ port }) => allowed.push(port) > 0,
      signal: AbortSignal.abort(),
      tables: [socketTable(...rows)],
    })
    expect([allowed.length, found.length]).toEqual([60, 40])
  })

  it('are none on a system without the tables of Linux', async () => {
    expect(await findServices({ isAllowed, signal, tables: ['/nowhere/tcp'] })).toEqual([])
  })
})

import { once } from 'node:events'
import { rmSync, symlinkSync } from 'node:fs'
import { createServer } from 'node:http'
import { createSecureServer } from 'node:http2'
import { createServer as createTlsServer } from 'node:https'
import {
  type AddressInfo,
  createServer as createTcpServer,
  type Server,
  type Socket,
} from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { specOf } from '../../helpers/agent-in-folder.ts'
import { startedOnGateway } from '../../helpers/agent-on-gateway.ts'
import { eventually } from '../../helpers/eventually.ts'
import { afterProxyHead } from '../../helpers/proxy-protocol-service.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { somePorts } from '../../helpers/some-ports.ts'
import { readAll, visit } from '../../helpers/tcp-site.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'
import { createAuthority, createTlsFixture } from '../../helpers/tls-fixture.ts'

async function listen(server: Server, at: number | string): Promise<number> {
  server.listen(at)
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const address = server.address()
  return typeof address === 'string' ? 0 : (address as AddressInfo).port
}

async function startTlsService(name = 'localhost'): Promise<number> {
  const { issue } = await createAuthority()
  const { certPem, keyPem } = await issue({ name })
  const server = createTlsServer({ cert: certPem, key: keyPem }, (request, response) =>
    response.end(`over TLS: ${request.url}`),
  )
  server.on('tlsClientError', () => {})
  return listen(server, 0)
}

type OnGateway = Awaited<ReturnType<typeof startedOnGateway>>
const ask = ({ addresses }: OnGateway, name: string, method = 'GET') =>
  publicRequest({
    ingress: `http://127.0.0.1:${addresses.http.port}`,
    host: `${name}.site.test`,
    path: '/x',
    method,
  })

describe('an upstream that speaks TLS', () => {
  it('is told to be untrusted, in the status and to visitors, and served when that is allowed', async () => {
    const on = await startedOnGateway()
    const forwardsTo = `https://localhost:${await startTlsService()}`
    await on.agent.create(specOf('nas', forwardsTo))
    const { status, headers } = await ask(on, 'nas')
    expect([status, headers['ngrok-error-code']]).toEqual([502, 'ERR_GATEWAY_UNTRUSTED'])
    for (const method of ['HEAD', 'OPTIONS', 'PROPFIND']) {
      const said = await ask(on, 'nas', method)
      expect([method, said.status, said.headers['ngrok-error-code']]).toEqual([
        ...[method, 502, 'ERR_GATEWAY_UNTRUSTED'],
      ])
      expect(said.text === '').toBe(method === 'HEAD')
    }
    await eventually(() =>
      expect(on.agent.list()[0]?.status).toMatchObject({
        upstream: 'untrusted',
        reason: 'upstream',
        lastError: `${forwardsTo} has an untrusted certificate`,
        remedy: expect.stringContaining('upstream.verify_tls'),
      }),
    )
    expect(on.agent.status().verdict).toContain(`${forwardsTo} has an untrusted certificate.`)
    const spec = { ...specOf('nas', forwardsTo), upstream: { verify_tls: false } }
    await on.agent.replace('nas.site.test', spec)
    expect(await ask(on, 'nas')).toMatchObject({ status: 200, text: 'over TLS: /x' })
    await eventually(() => expect(on.agent.list()[0]?.status.upstream).toBe('up'))
  })
})

it('tells a certificate for another name, also of a CA that is not trusted', async () => {
  const on = await startedOnGateway()
  const forwardsTo = `https://localhost:${await startTlsService('cam.local')}`
  await on.agent.create(specOf('cam', forwardsTo))
  await eventually(() =>
    expect(on.agent.list()[0]?.status).toMatchObject({
      upstream: 'untrusted',
      lastError: `${forwardsTo} has a certificate for another name`,
    }),
  )
})

describe('what is said to an upstream that speaks TLS', () => {
  it('is HTTP/2 where that is asked for, as its handshake says', async () => {
    const { certPem: cert, keyPem: key } = await createTlsFixture()
    const server = createSecureServer({ cert, key, allowHTTP1: false })
    const sessions: { destroy(): void }[] = []
    server.on('session', (session) => sessions.push(session.on('error', () => {})))
    server.on('stream', (stream, headers) => {
      stream.respond({ ':status': 200, 'x-authority': headers[':authority'] })
      stream.end(`HTTP/2 over TLS: ${headers[':path']}`)
    })
    const port = await listen(server, 0)
    onTestFinished(() => {
      for (const session of sessions) session.destroy()
    })
    const on = await startedOnGateway()
    const upstream = { http2: true, verify_tls: false, health: '/healthz' } as const
    await on.agent.create({ ...specOf('grpc', `https://localhost:${port}`), upstream })
    expect(await ask(on, 'grpc')).toMatchObject({ status: 200, text: 'HTTP/2 over TLS: /x' })
    await eventually(() => expect(on.agent.list()[0]?.status.upstream).toBe('up'))
  })

  it.each([1, 2] as const)(
    'begins with PROXY header %i, and TLS comes behind it',
    async (version) => {
      const { certPem: cert, keyPem: key } = await createTlsFixture()
      const heads: string[] = []
      const tls = createTlsServer({ cert, key }, (request, response) =>
        response.setHeader('connection', 'close').end(`behind it: ${request.url}`),
      )
      const server = createTcpServer((socket) =>
        afterProxyHead(socket, ({ text, rest }) => {
          heads.push(text)
          if (rest.length > 0) socket.unshift(rest)
          tls.emit('connection', socket)
        }),
      )
      const port = await listen(server, 0)
      const on = await startedOnGateway()
      const upstream = { proxy_protocol: version, verify_tls: false, health: '/healthz' } as const
      await on.agent.create({ ...specOf('nas', `https://localhost:${port}`), upstream })
      await eventually(() => expect(on.agent.list()[0]?.status.upstream).toBe('up'))
      expect(new Set(heads)).toEqual(new Set(['UNKNOWN']))
      expect(await ask(on, 'nas')).toMatchObject({ status: 200, text: 'behind it: /x' })
      // It is checked again and again.
      expect(heads.filter((head) => head !== 'UNKNOWN')).toEqual([
        expect.stringMatching(/^TCP4 127\.0\.0\.1 127\.0\.0\.1 \d+ \d+$/),
      ])
    },
  )
})

describe('an upstream at a Unix socket', () => {
  it('sees that a visitor is gone', async () => {
    const path = join(temporaryFolder(), 'raw.sock')
    const sockets: Socket[] = []
    const server = createTcpServer((socket) => {
      sockets.push(socket.on('error', () => {}))
      socket.write('hello')
    })
    await listen(server, path)
    const on = await startedOnGateway({
      gateway: { tcpListen: somePorts() },
      forward: { allow: [`unix:${path}`], ownAddresses: () => [] },
    })
    const spec = { protocol: 'tcp', forwardsTo: `unix:${path}`, domain: '', policy: null } as const
    const { tunnel } = await on.agent.create(spec)
    const visitor = visit(tunnel.spec.domain)
    await once(visitor, 'data')
    const asked = sockets.length
    visitor.resetAndDestroy()
    await eventually(() => expect(sockets.every(({ destroyed }) => destroyed)).toBe(true))
    // And it is served on.
    const next = visit(tunnel.spec.domain)
    await once(next, 'data')
    expect(sockets.length).toBeGreaterThan(asked)
  })

  it('is served where it is listed, over HTTP and TCP', async () => {
    const folder = temporaryFolder()
    const path = join(folder, 'app.sock')
    await listen(
      createServer((request, response) => response.end(`by socket: ${request.url}`)),
      path,
    )
    const raw = join(folder, 'raw.sock')
    await listen(
      createTcpServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket)),
      raw,
    )
    const on = await startedOnGateway({
      gateway: { tcpListen: somePorts() },
      forward: { allow: [`unix:${folder}/`], ownAddresses: () => [] },
    })
    await on.agent.create(specOf('app', `unix:${path}`))
    expect(await ask(on, 'app')).toMatchObject({ status: 200, text: 'by socket: /x' })
    const { tunnel } = await on.agent.create({
      protocol: 'tcp',
      forwardsTo: `unix:${raw}`,
      domain: '',
      policy: null,
    })
    const visitor = visit(tunnel.spec.domain)
    visitor.end('hello')
    expect(await readAll(visitor)).toBe('hello')
    await expect(on.agent.create(specOf('other', 'unix:/run/other.sock'))).rejects.toMatchObject({
      code: 'forwards-to-not-allowed',
    })
  })

  it('is asked whether it may be dialled at each connection: a path may be led elsewhere', async () => {
    const folder = temporaryFolder()
    const [path, own] = [join(folder, 'app.sock'), join(temporaryFolder(), 'own.sock')]
    const service = createServer((_, response) => {
      response.setHeader('connection', 'close').end('of the service')
    })
    await listen(service, path)
    await listen(
      createServer((_, response) => response.end('of the agent')),
      own,
    )
    const on = await startedOnGateway({
      forward: { allow: [`unix:${path}`], ownAddresses: () => [], ownSockets: () => [own] },
    })
    await on.agent.create(specOf('app', `unix:${path}`))
    expect(await ask(on, 'app')).toMatchObject({ status: 200, text: 'of the service' })
    rmSync(path)
    symlinkSync(own, path)
    const { status, headers } = await ask(on, 'app')
    expect([status, headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_8012'])
  })
})

import { describe, expect, it } from 'vitest'
import type { TunnelSpec } from '../../src/agent/tunnel.ts'
import { startedOnGateway } from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'
import { afterProxyHead, startProxiedService } from '../helpers/proxy-protocol-service.ts'
import { somePorts } from '../helpers/some-ports.ts'
import { readAll, startTcpService, visit } from '../helpers/tcp-site.ts'
import { visitTls } from '../helpers/tls-site.ts'

const HOST = 'cam.site.test'
const FROM_HERE = /^TCP4 127\.0\.0\.1 127\.0\.0\.1 \d+ \d+$/

const specOf = (port: number, change: Partial<TunnelSpec>): TunnelSpec => ({
  protocol: 'http',
  forwardsTo: `localhost:${port}`,
  domain: HOST,
  policy: null,
  ...change,
})

/** Answers with what stood in the header; a connection without one is broken off. */
const startTcpTeller = () =>
  startTcpService((socket) => afterProxyHead(socket, ({ text }) => socket.end(text)))

describe.each([1, 2] as const)('a tunnel with proxy_protocol %i', (version) => {
  const upstream = { proxy_protocol: version }

  it('tells an HTTP service whose connection it is, and that a check is nobody', async () => {
    const on = await startedOnGateway()
    const { port, connections } = await startProxiedService((head, _request, response) => {
      response.end(head)
    })
    const asked = { ...upstream, health: '/healthz' } as const
    await on.agent.create(specOf(port, { upstream: asked }))
    expect(await on.visit('cam')).toMatch(FROM_HERE)
    await eventually(() => {
      expect(on.agent.list()[0]?.status.upstream).toBe('up')
      expect(connections).toContain('UNKNOWN')
    })
    // Without it such a service takes nobody.
    await on.agent.replace(HOST, specOf(port, {}))
    expect(await on.visit('cam')).toBe(502)
  })

  it('tells a service that speaks first, as SSH does, while its visitor waits for it', async () => {
    const on = await startedOnGateway({ gateway: { tcpListen: somePorts() } })
    const { port } = await startTcpTeller()
    const { tunnel } = await on.agent.create(
      specOf(port, { protocol: 'tcp', domain: '', upstream }),
    )
    expect(await readAll(visit(tunnel.spec.domain))).toMatch(FROM_HERE)
  })

  it('tells services of TCP and TLS tunnels', async () => {
    const on = await startedOnGateway({ gateway: { tcpListen: somePorts() } })
    const { port } = await startTcpTeller()
    const { tunnel } = await on.agent.create(
      specOf(port, { protocol: 'tcp', domain: '', upstream }),
    )
    const caller = visit(tunnel.spec.domain)
    caller.write('hello')
    expect(await readAll(caller)).toMatch(FROM_HERE)
    const policy = { on_tcp_connect: [{ actions: [{ type: 'terminate-tls' }] }] }
    await on.agent.create(specOf(port, { protocol: 'tls', policy, upstream }))
    const visitor = visitTls(on, HOST, { rejectUnauthorized: false })
    visitor.write('hello')
    expect(await readAll(visitor)).toMatch(FROM_HERE)
  })
})

import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, expect, it, onTestFinished } from 'vitest'
import { afterProxyHead, startProxiedService } from '../../helpers/proxy-protocol-service.ts'
import { connectSdk, inTime, startGateway } from '../../helpers/running-gateway.ts'
import { somePorts } from '../../helpers/some-ports.ts'
import { addressOf, startTcpService } from '../../helpers/tcp-site.ts'

/** A visitor with a connection of its own, which it keeps. */
function createVisitor(port: number) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  onTestFinished(() => agent.destroy())
  return async (path = '/') => {
    const headers = { host: 'cam.site.test' }
    const sent = request({ host: '127.0.0.1', port, path, agent, headers }).end()
    const [response] = await once(sent, 'response')
    const { localPort } = sent.socket as Socket
    return { localPort, body: await text(response), status: response.statusCode }
  }
}

describe.each(['1', '2'] as const)('proxyProto of version %s', (version) => {
  it('tells an HTTP service the visitor of each connection', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const service = await startProxiedService((head, { url }, response) => {
      response.end(`${head} ${url}`)
    })
    const endpoint = session.httpEndpoint().domain('cam.site.test').proxyProto(version)
    await inTime(endpoint.listenAndForward(`http://127.0.0.1:${service.port}`), 'bind')
    const { port } = running.addresses.http
    const [one, other] = [createVisitor(port), createVisitor(port)]
    // What one leaves behind must not speak for the next.
    for (const visit of [one, other, one, other]) {
      const { localPort, body } = await visit('/x')
      expect(body).toBe(`TCP4 127.0.0.1 127.0.0.1 ${localPort} ${port} /x`)
    }
    const all = await Promise.all([one('/a'), other('/b')])
    for (const { localPort, body } of all) expect(body).toContain(` ${localPort} ${port} /`)
    expect(service.connections).toHaveLength(6)
  })

  it('tells a TCP service the visitor before the first byte', async () => {
    const running = await startGateway({ tcpListen: somePorts() })
    const session = await connectSdk(running)
    const { port } = await startTcpService((socket) =>
      afterProxyHead(socket, ({ text: head, rest }) => socket.end(`${head} ${rest}`)),
    )
    const endpoint = session.tcpEndpoint().proxyProto(version)
    const listener = await inTime(endpoint.listenAndForward(`tcp://127.0.0.1:${port}`), 'bind')
    const [host = '', public_ = ''] = addressOf(listener).split(':')
    const visitor = connect(Number(public_), host)
    await once(visitor, 'connect')
    const { localPort } = visitor
    visitor.write('hello')
    expect(await text(visitor)).toMatch(
      new RegExp(`^TCP4 127.0.0.1 127.0.0.1 ${localPort} ${public_} (hello)?$`),
    )
  })
})

import { readFileSync } from 'node:fs'
import ngrok, { type Listener } from '@ngrok/ngrok'
import { expect, it, onTestFinished } from 'vitest'
import { withDeadline } from '../../src/base/deadline.ts'
import { createDeferred } from '../../src/base/deferred.ts'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { startEchoUpstream } from '../helpers/echo-upstream.ts'
import { eventually } from '../helpers/eventually.ts'
import { GatewayProgram } from '../helpers/gateway-program.ts'
import { startRelay } from '../helpers/relay.ts'
import { inTime } from '../helpers/running-gateway.ts'
import { lastingAddress, somePorts } from '../helpers/some-ports.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const HOST = 'cam.site.localhost'

it('a bind that is refused after kill -9 leaves the SDK its other endpoints', async () => {
  const folder = temporaryFolder()
  const { host, first, last } = somePorts(4)
  const env = {
    GATEWAY_HTTP_LISTEN: formatListenAddress(lastingAddress()),
    GATEWAY_HTTPS_LISTEN: formatListenAddress(lastingAddress()),
  }
  const tcp = { GATEWAY_TCP_LISTEN: `${host}:${first}-${last}` }
  const before = await GatewayProgram.start(folder, { ...env, ...tcp })
  const { authtoken_file, ca_cert } = before.ready
  let isUp = Promise.resolve(before.ready.agent_listen)
  const session = await inTime(
    new ngrok.SessionBuilder()
      .authtoken(readFileSync(authtoken_file, 'utf8').trim())
      .serverAddr(await startRelay(() => isUp))
      .caCert(readFileSync(ca_cert))
      .connect(),
  )
  onTestFinished(() => withDeadline(session.close(), 300, 'session.close').catch(() => {}))
  const upstream = await startEchoUpstream('cam')
  onTestFinished(() => upstream.close())
  const to = `localhost:${upstream.port}`
  const listeners: Listener[] = [
    await inTime(session.tcpEndpoint().listenAndForward(`tcp://${to}`) as never),
    await inTime(session.httpEndpoint().domain(HOST).listenAndForward(`http://${to}`) as never),
  ]
  expect(listeners.map((listener) => listener.url()?.split(':')[0])).toEqual(['tcp', 'https'])
  await eventually(async () => expect((await before.visit(HOST)).status).toBe(200))
  const comesBack = createDeferred<string>()
  isUp = comesBack.promise
  await before.program.end('SIGKILL')
  const after = await GatewayProgram.start(folder, env)
  comesBack.resolve(after.ready.agent_listen)
  await eventually(async () => expect((await after.visit(HOST)).status).toBe(200))
  const sessions = await after.manage('GET', '/tunnel_sessions')
  const [{ id }] = sessions.body.tunnel_sessions
  await eventually(async () => {
    const { body } = await after.manage('GET', `/tunnel_sessions/${id}`)
    expect(body.refused_endpoints).toMatchObject([{ error_code: 'ERR_NGROK_332' }])
    // The token of a random address is the agent's alone.
    expect(body.refused_endpoints[0].url).toMatch(/^tcp:\/\/[\d.]+:\d+$/)
  })
  expect((await after.visit(HOST)).status).toBe(200)
})

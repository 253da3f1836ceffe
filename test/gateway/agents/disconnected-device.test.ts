import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Session } from '@ngrok/ngrok'
import { describe, expect, it, onTestFinished } from 'vitest'
import { deviceMetadata } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import {
  connectSdk,
  inTime,
  type RunningGateway,
  startGateway,
} from '../../helpers/running-gateway.ts'

/** A device's service; POST answers what it got. */
async function startService(): Promise<string> {
  const server = createServer((request, response) => {
    request.pipe(response.writeHead(200, { 'x-path': request.url ?? '' }))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

async function startScene() {
  const running = await startGateway()
  const service = await startService()
  const forward = (session: Session, domain = 'cam.site.test', policy?: string) => {
    const builder = session.httpEndpoint().domain(domain)
    if (policy) builder.trafficPolicy(policy)
    return inTime(builder.listenAndForward(service), 'bind')
  }
  const visit = (host = 'cam.site.test', more: object = {}) => {
    const { port } = running.addresses.http
    return publicRequest({ ingress: `http://127.0.0.1:${port}`, host, ...more })
  }
  return { running, forward, visit }
}

/** As when the network of the device fails: the gateway finds the session dead. */
function loseAgent({ gateway }: RunningGateway): void {
  const { sessions } = gateway.parts
  for (const session of [...sessions.all()]) session.end('the agent does not answer heartbeats')
}

const held = ({ gateway }: RunningGateway, count: number) =>
  eventually(() => expect(gateway.parts.registry.held.size).toBe(count))

describe('the name of an agent that is lost', () => {
  it('waits for it with those who come, and for a wildcard alike', async () => {
    const { running, forward, visit } = await startScene()
    const session = await connectSdk(running)
    await forward(session)
    await forward(session, '*.site.test')
    loseAgent(running)
    const { port } = running.addresses.https
    const ca = readFileSync(running.addresses.caCertPath, 'utf8')
    const waiting = [
      visit(),
      visit('x.site.test'),
      visit('cam.site.test', { method: 'POST', body: 'hello' }),
      visit('cam.site.test', { ingress: `https://127.0.0.1:${port}`, ca }),
    ]
    await held(running, 4)
    const back = await connectSdk(running)
    await forward(back)
    await forward(back, '*.site.test')
    const answers = await Promise.all(waiting)
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200])
    expect(answers[2]?.text).toBe('hello')
  })

  it('waits below the policy of another endpoint that forwards to it', async () => {
    const { running, forward, visit } = await startScene()
    const { authtoken } = await running.gateway.parts.issuer.createCredential({})
    const front = await connectSdk(running, { authtoken })
    await forward(
      front,
      'front.site.test',
      JSON.stringify({
        on_http_request: [
          { actions: [{ type: 'forward-internal', config: { url: 'https://cam.internal' } }] },
        ],
      }),
    )
    await forward(await connectSdk(running, { authtoken }), 'cam.internal')
    const [, inner] = [...running.gateway.parts.sessions.all()]
    inner?.end('the agent does not answer heartbeats')
    const waiting = visit('front.site.test')
    await held(running, 1)
    await forward(await connectSdk(running, { authtoken }), 'cam.internal')
    expect((await waiting).status).toBe(200)
  })

  it('is nobody’s when the agent has given it up itself', async () => {
    const { running, forward, visit } = await startScene()
    const listener = await forward(await connectSdk(running))
    await inTime(listener.close())
    expect((await visit()).status).toBe(404)
  })

  it('is nobody’s when its authtoken was revoked, before or after the loss', async () => {
    const { running, forward, visit } = await startScene()
    const { issuer } = running.gateway.parts
    const first = await issuer.createCredential({})
    await forward(await connectSdk(running, { authtoken: first.authtoken }))
    await issuer.deleteCredential(first.credential)
    expect((await visit()).status).toBe(404)

    const second = await issuer.createCredential({})
    await forward(await connectSdk(running, { authtoken: second.authtoken }))
    loseAgent(running)
    const waiting = visit()
    await held(running, 1)
    await issuer.updateCredential(second.credential, { acl: ['bind:b.site.test'] })
    expect((await waiting).status).toBe(404)
  })

  it('is nobody’s when its domain is not reserved any more', async () => {
    const { running, forward, visit } = await startScene()
    const { registrar, issuer } = running.gateway.parts
    const domain = await registrar.reserve({ domain: 'own.test' })
    const { authtoken } = await issuer.createCredential({})
    await forward(await connectSdk(running, { authtoken }), 'own.test')
    loseAgent(running)
    const waiting = visit('own.test')
    await held(running, 1)
    await registrar.release(domain)
    expect((await waiting).status).toBe(404)
  })

  it('is nobody’s when the gateway has stopped the tunnel; its neighbours are only away', async () => {
    const { running, forward, visit } = await startScene()
    const session = await connectSdk(running)
    await forward(session)
    await forward(session, 'b.site.test')
    const [agent] = running.gateway.parts.sessions.all()
    const endpoint = agent?.endpoints().find(({ host }) => host === 'cam.site.test')
    if (endpoint) agent?.stopTunnel(endpoint, 316, 'not yours any more')
    loseAgent(running)
    expect((await visit()).status).toBe(404)
    const waiting = visit('b.site.test')
    await held(running, 1)
    await forward(await connectSdk(running), 'b.site.test')
    expect((await waiting).status).toBe(200)
  })
})

describe('a name that a device does not take back', () => {
  it('is nobody’s some time after the device is back, and other names are as they were', async () => {
    const running = await startGateway({ holdMs: 0, agentLimits: { returnMs: 300 } })
    const service = await startService()
    const bind = (session: Session, domain: string) =>
      inTime(session.httpEndpoint().domain(domain).listenAndForward(service), 'bind')
    const statusOf = async (host: string) => {
      const ingress = `http://127.0.0.1:${running.addresses.http.port}`
      return (await publicRequest({ ingress, host })).status
    }
    const [one, other] = ['device-1', 'device-2']
    const before = await connectSdk(running, { metadata: deviceMetadata('a', one) })
    await bind(before, 'kept.site.test')
    await bind(before, 'removed.site.test')
    const neighbour = await connectSdk(running, { metadata: deviceMetadata('b', other) })
    await bind(neighbour, 'neighbour.site.test')
    loseAgent(running)
    const names = ['kept', 'removed', 'neighbour'].map((name) => `${name}.site.test`)
    await eventually(async () => {
      expect(await Promise.all(names.map(statusOf))).toEqual([503, 503, 503])
    })
    const after = await connectSdk(running, { metadata: deviceMetadata('c', one) })
    await bind(after, 'kept.site.test')
    await eventually(async () => {
      expect(await Promise.all(names.map(statusOf))).toEqual([200, 404, 503])
    })
  })
})

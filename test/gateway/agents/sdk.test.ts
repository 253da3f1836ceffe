import { describe, expect, it } from 'vitest'
import { Secret } from '../../../src/base/secret.ts'
import { createResourceToken } from '../../../src/gateway/records/resource-id.ts'
import { eventually } from '../../helpers/eventually.ts'
import { RawClient, startRawService } from '../../helpers/raw-http.ts'
import {
  bind,
  connectSdk,
  inTime,
  type RunningGateway,
  sdkCode,
  startGateway,
} from '../../helpers/running-gateway.ts'

const hostsOf = ({ gateway }: RunningGateway) =>
  [...gateway.parts.registry.all()].map(({ host }) => host).sort()

describe('the SDK at the gateway', () => {
  it('opens, closes and reopens an endpoint', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const listener = await bind(session, 'Cam.site.test')
    expect(listener.url()).toBe(`https://cam.site.test:${running.addresses.https.port}`)
    expect(running.gateway.parts.registry.match('cam.site.test')).toMatchObject({
      protocol: 'https',
      forwardsTo: 'localhost:1',
      trafficPolicy: null,
    })
    await inTime(listener.close())
    expect(hostsOf(running)).toEqual([])
    await bind(session, 'cam.site.test')
    expect(hostsOf(running)).toEqual(['cam.site.test'])
  })

  it('opens plain HTTP, wildcard and deeper endpoints, and a random one when it names none', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const plain = await inTime(session.httpEndpoint().scheme('http').domain('a.site.test').listen())
    expect(plain.url()).toBe(`http://a.site.test:${running.addresses.http.port}`)
    await bind(session, '*.site.test')
    await bind(session, 'x.y.site.test')
    const random = new URL((await bind(session)).url() ?? '').hostname
    expect(random).toMatch(/^[a-z]+-[a-z]+-[a-z2-9]{7}\.site\.test$/)
    expect(hostsOf(running)).toEqual(['*.site.test', 'a.site.test', random, 'x.y.site.test'].sort())
  })

  it('is refused with the code for its token, which is shown nowhere', async () => {
    const running = await startGateway()
    const { credential } = await running.gateway.parts.issuer.createCredential({})
    const wrong = createResourceToken(credential.id)
    const cases: [token: Secret, code: string][] = [
      [wrong, 'ERR_NGROK_107'],
      [new Secret('not-a-token-at-all'), 'ERR_NGROK_105'],
    ]
    for (const [authtoken, code] of cases) {
      const attempt = connectSdk(running, { authtoken })
      expect(await sdkCode(attempt)).toBe(code)
      await expect(attempt).rejects.not.toThrow(authtoken.reveal())
      expect(running.logText()).not.toContain(authtoken.reveal())
    }
    expect(running.logText()).toContain('"code":107')
  })

  it('is refused a name that is online, not reserved, or not its own', async () => {
    const running = await startGateway()
    const { registrar, issuer } = running.gateway.parts
    await registrar.reserve({ domain: '*.siteb.test' })
    const { authtoken } = await issuer.createCredential({})
    const device = await connectSdk(running)
    const admin = await connectSdk(running, { authtoken })
    const taken = await bind(device, 'cam.site.test')
    const attempt = (session: typeof admin, domain: string) => sdkCode(bind(session, domain))
    expect(await attempt(admin, 'cam.site.test')).toBe('ERR_NGROK_334')
    expect(await attempt(device, 'cam.siteb.test')).toBe('ERR_NGROK_316')
    expect(await attempt(admin, 'cam.siteb.test')).toBeUndefined()
    expect(await attempt(admin, 'cam.sitec.test')).toBe('ERR_NGROK_319')
    expect(await attempt(admin, '*.sitec.test')).toBe('ERR_NGROK_318')
    expect(await attempt(admin, 'a_b.site.test')).toBe('ERR_NGROK_355')
    await inTime(taken.close())
    expect(await attempt(admin, 'cam.site.test')).toBeUndefined()
  })

  it('is refused what this gateway does not do, by name', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const http = () => session.httpEndpoint().domain('cam.site.test')
    expect(await sdkCode(session.tcpEndpoint().listen())).toBe('ERR_NGROK_332')
    expect(await sdkCode(session.labeledListener().label('app', 'cam').listen())).toBe(
      'ERR_NGROK_813',
    )
    const protectedByProvider = http().oauth('google').listen()
    expect(await sdkCode(protectedByProvider)).toBe('ERR_NGROK_9026')
    await expect(protectedByProvider).rejects.toThrow('client_id')
    expect(hostsOf(running)).toEqual([])
  })

  it.each([
    ['no JSON and no YAML', '{"on_http_request": ['],
    ['an unknown action', '{"on_http_request":[{"actions":[{"type":"nonsense"}]}]}'],
    ['a phase that is no list', 'on_http_request: {}'],
  ])('is refused a policy with %s', async (_what, policy) => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const attempt = session.httpEndpoint().domain('a.site.test').trafficPolicy(policy).listen()
    expect(await sdkCode(attempt)).toBe('ERR_NGROK_9026')
    expect(hostsOf(running)).toEqual([])
  })

  it.each([262_200, 1_000_000, 8_000_000])(
    'is refused a policy of %i bytes, and told why',
    async (bytes) => {
      const running = await startGateway()
      const session = await connectSdk(running)
      const policy = JSON.stringify({ on_http_request: [], name: 'x'.repeat(bytes) })
      const attempt = session.httpEndpoint().domain('a.site.test').trafficPolicy(policy).listen()
      expect(await sdkCode(attempt)).toBe('ERR_NGROK_812')
      await expect(attempt).rejects.toThrow('262144 bytes')
      // The session is as good as before.
      await bind(session, 'a.site.test')
      expect(hostsOf(running)).toEqual(['a.site.test'])
    },
  )

  it('may send its policy as YAML', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const policy = 'on_http_request:\n  - actions:\n      - type: deny\n'
    await inTime(session.httpEndpoint().domain('a.site.test').trafficPolicy(policy).listen())
    expect(running.gateway.parts.registry.match('a.site.test')).toMatchObject({
      trafficPolicy: policy,
      policy: { hasRequestRules: true },
    })
  })

  it('takes the place of its own ghost when it connects again', async () => {
    const running = await startGateway()
    const metadata = JSON.stringify({ device_id: 'device-7' })
    const ghost = await connectSdk(running, { metadata })
    await bind(ghost, 'cam.site.test')
    const back = await connectSdk(running, { metadata })
    expect(hostsOf(running)).toEqual([])
    await bind(back, 'cam.site.test')
    expect(running.gateway.parts.sessions.size).toBe(1)
  })

  it('leaves alone a session of another device or another credential', async () => {
    const running = await startGateway()
    const { authtoken } = await running.gateway.parts.issuer.createCredential({})
    const metadata = JSON.stringify({ device_id: 'device-7' })
    await bind(await connectSdk(running, { metadata }), 'cam.site.test')
    const others = [
      await connectSdk(running, { metadata: JSON.stringify({ device_id: 'device-8' }) }),
      await connectSdk(running, { metadata, authtoken }),
      await connectSdk(running),
    ]
    for (const other of others) {
      expect(await sdkCode(bind(other, 'cam.site.test'))).toBe('ERR_NGROK_334')
    }
    expect(running.gateway.parts.sessions.size).toBe(4)
  })

  it('hears why one tunnel is stopped, and keeps the others', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const forward = (domain: string) =>
      inTime(session.httpEndpoint().domain(domain).listenAndForward('http://127.0.0.1:1'))
    const stopped = await forward('a.site.test')
    await forward('b.site.test')
    const [agent] = running.gateway.parts.sessions.all()
    const endpoint = running.gateway.parts.registry.match('a.site.test')
    if (!agent || endpoint?.type !== 'agent') throw new Error('nothing is online')
    agent.stopTunnel(endpoint, 316, 'not yours any more')
    expect(hostsOf(running)).toEqual(['b.site.test'])
    await expect(inTime(stopped.join())).rejects.toThrow(/not yours any more.*ERR_NGROK_316/s)
  })

  it('loses at once what a narrowed authtoken no longer allows', async () => {
    const running = await startGateway()
    const { issuer, sessions } = running.gateway.parts
    const { credential, authtoken } = await issuer.createCredential({})
    const session = await connectSdk(running, { authtoken })
    await bind(session, 'a.site.test')
    await bind(session, 'b.site.test')
    const narrowed = await issuer.updateCredential(credential, { acl: ['bind:b.site.test'] })
    expect(hostsOf(running)).toEqual(['b.site.test'])
    expect(await sdkCode(bind(session, 'a.site.test'))).toBe('ERR_NGROK_316')
    await issuer.deleteCredential(narrowed)
    expect(hostsOf(running)).toEqual([])
    expect(sessions.size).toBe(0)
    expect(await sdkCode(connectSdk(running, { authtoken }))).toBe('ERR_NGROK_107')
  })

  it('loses what is under way on an endpoint, too', async () => {
    const running = await startGateway()
    const { issuer } = running.gateway.parts
    const { credential, authtoken } = await issuer.createCredential({})
    const session = await connectSdk(running, { authtoken })
    const service = await startRawService((socket) => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n')
      const timer = setInterval(() => socket.write('x'.repeat(1_000)), 5)
      socket.on('close', () => clearInterval(timer))
    })
    const download = async (domain: string) => {
      const listener = await bind(session, domain)
      listener.forward(`http://127.0.0.1:${service}`).catch(() => {})
      const client = RawClient.connect(running.addresses.http.port)
      client.send(`GET / HTTP/1.1\r\nHost: ${domain}\r\n\r\n`)
      await client.receive('xxx')
      return client
    }
    const [lost, kept] = [await download('a.site.test'), await download('b.site.test')]
    await issuer.updateCredential(credential, { acl: ['bind:b.site.test'] })
    await eventually(() => expect(lost.ending).toBeDefined())
    const before = kept.bytes.length
    await eventually(() => expect(kept.bytes.length).toBeGreaterThan(before))
  })

  it('obeys stop and restart, and says that it cannot update', async () => {
    const running = await startGateway()
    const heard: string[] = []
    await connectSdk(running, {
      onStop: () => heard.push('stop'),
      onRestart: () => heard.push('restart'),
    })
    const [agent] = running.gateway.parts.sessions.all()
    await agent?.command('restart')
    await agent?.command('stop')
    await eventually(() => expect(heard).toEqual(['restart', 'stop']))
    await expect(agent?.command('update')).rejects.toMatchObject({ code: 806 })
  })

  it('updates when it is asked and knows how', async () => {
    const running = await startGateway()
    const heard: string[] = []
    await connectSdk(running, { onUpdate: (version) => heard.push(version) })
    const [agent] = running.gateway.parts.sessions.all()
    await agent?.command('update')
    await eventually(() => expect(heard).toEqual(['']))
  })

  it('keeps a random name over reconnects, also of the gateway', async () => {
    const running = await startGateway()
    const session = await connectSdk(running, { reconnects: true })
    const listener = await bind(session)
    const host = new URL(listener.url() ?? '').hostname
    const lose = () => {
      for (const agent of running.gateway.parts.sessions.all()) agent.end('the test ends it')
    }
    for (let time = 0; time < 3; time += 1) {
      lose()
      await eventually(() => expect(hostsOf(running)).toEqual([host]))
    }
  })

  it('is told goodbye when the gateway stops', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const forwarder = await inTime(
      session.httpEndpoint().domain('a.site.test').listenAndForward('http://127.0.0.1:1'),
    )
    await running.gateway.stop()
    await inTime(forwarder.join()).catch(() => {})
    expect(running.gateway.parts.sessions.size).toBe(0)
  })

  it('finds its token and domain again after a restart of the gateway', async () => {
    const first = await startGateway()
    await first.gateway.stop()
    const { dataDir, authtoken } = first
    const second = await startGateway({ dataDir, authtoken })
    expect(second.authtoken).toBe(authtoken)
    const session = await connectSdk(second)
    await bind(session, 'cam.site.test')
    expect(hostsOf(second)).toEqual(['cam.site.test'])
  })
})

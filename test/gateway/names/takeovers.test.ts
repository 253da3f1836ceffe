import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../../src/base/secret.ts'
import { ErrorCode } from '../../../src/muxado/error-code.ts'
import { deviceMetadata, forward, startDeviceService } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { codeOf, RawAgent } from '../../helpers/raw-agent.ts'
import { connectSdk, type RunningGateway, startGateway } from '../../helpers/running-gateway.ts'

const answerWith = (text: string) =>
  JSON.stringify({
    on_http_request: [
      { actions: [{ type: 'custom-response', config: { status_code: 200, body: text } }] },
    ],
  })

interface Credential {
  readonly id: string
  readonly token: string
}

/** A gateway with a management API, and the accounts that a test makes on it. */
async function startScene(options: Parameters<typeof startGateway>[0] = {}) {
  const running = await startGateway({ apiListen: { host: '127.0.0.1', port: 0 }, ...options })
  const { call } = await managed(running)
  const make = async (path: string, body: object, key?: string) => {
    const answer = await call('POST', path, body, key)
    expect([path, answer.status, answer.body]).toEqual([path, 201, expect.anything()])
    return answer.body as Record<string, string>
  }
  const account = async (name: string) => {
    const { id } = await make('/bot_users', { name })
    const { token: key } = await make('/api_keys', { owner_id: id })
    return {
      id,
      call: (method: string, path: string, body?: object) => call(method, path, body, key),
      credential: (acl?: string[]) =>
        make('/credentials', {
          owner_id: id,
          ...(acl && { acl }),
        }) as Promise<unknown> as Promise<Credential>,
    }
  }
  const agent = async (token: string, metadata = '') => {
    const raw = await RawAgent.connect(running)
    expect((await raw.auth(token, { Metadata: metadata })).Error ?? '').toBe('')
    return raw
  }
  return { running, call, make, account, agent }
}

/** As when the network of a device fails: its names are held. */
const lose = ({ session }: RawAgent) => void session.goAway(ErrorCode.none, 'lost')

function visit(
  { addresses }: RunningGateway,
  scheme: 'http' | 'https',
  host: string,
  more: object = {},
) {
  const { port } = addresses[scheme]
  const ca = readFileSync(addresses.caCertPath, 'utf8')
  return publicRequest({ ingress: `${scheme}://127.0.0.1:${port}`, host, ca, ...more })
}

describe('a tenant with a key for its own account', () => {
  it('reserves nothing above, below or beside what is another account’s', async () => {
    const { account, make } = await startScene()
    const [victim, tenant] = [await account('victim'), await account('tenant')]
    const theirs = ['cam.victim.example', '*.door.victim.example', 'shop.example']
    for (const domain of theirs) await make('/reserved_domains', { domain, owner_id: victim.id })
    const overlap = 'overlaps with a domain of another account'
    const refusals = [
      ['*.victim.example', overlap],
      ['*.in.door.victim.example', overlap],
      ['x.in.door.victim.example', overlap],
      ['door.victim.example', overlap],
      ['CAM.victim.example', overlap],
      ['*.shop.example', overlap],
      ['sub.site.test', overlap],
      ['site.test', overlap],
      ['*.example', 'is a public suffix'],
      ['*.com', 'is a public suffix'],
      ['*.localhost', 'is a public suffix'],
      ['*.gateway.localhost', 'overlaps with a name of the gateway itself'],
    ]
    for (const [domain, reason] of refusals) {
      const refused = await tenant.call('POST', '/reserved_domains', { domain })
      const text = refused.body.msg ?? ''
      expect([domain, refused.status, text]).toEqual([
        domain,
        409,
        expect.stringContaining(`${reason}`),
      ])
    }
    for (const domain of ['*.tenant.example', 'tenant.example', 'z.victim.example']) {
      const own = await tenant.call('POST', '/reserved_domains', { domain })
      expect([domain, own.status]).toEqual([domain, 201])
      // No key of a tenant moves a domain to another account.
      const moved = { owner_id: victim.id }
      expect((await tenant.call('PATCH', `/reserved_domains/${own.body.id}`, moved)).status).toBe(
        403,
      )
    }
  })

  it('gets no visitors of names that are online, nor of reserved ones that are not', async () => {
    const { running, account, make } = await startScene()
    const [victim, tenant] = [await account('victim'), await account('tenant')]
    for (const domain of ['on.victim.example', 'off.victim.example']) {
      await make('/reserved_domains', { domain, owner_id: victim.id })
    }
    // The gateway's owner may let them overlap: even then each name has its own account.
    await make('/reserved_domains', { domain: '*.victim.example', owner_id: tenant.id })
    for (const scheme of ['http', 'https']) {
      const url = `${scheme}://*.victim.example`
      const front = { url, owner_id: tenant.id, traffic_policy: answerWith('tenant') }
      await make('/endpoints', front)
    }
    const authtoken = new Secret((await victim.credential()).token)
    const service = await startDeviceService((_request, response) => response.end('victim'))
    const session = await connectSdk(running, { authtoken })
    await forward(session, service, { domain: 'on.victim.example' })
    const outcome = async (scheme: 'http' | 'https', host: string) => {
      const { status, text, headers } = await visit(running, scheme, host)
      return status === 200 ? text : headers['ngrok-error-code']
    }
    for (const scheme of ['http', 'https'] as const) {
      expect(await outcome(scheme, 'on.victim.example')).toBe('victim')
      expect(await outcome(scheme, 'off.victim.example')).toBe('ERR_NGROK_3200')
      expect(await outcome(scheme, 'free.victim.example')).toBe('tenant')
    }
  })

  it('binds nothing of the gateway’s owner by a rule above it, also not what comes later', async () => {
    const { account, make, agent } = await startScene()
    const tenant = await account('tenant')
    await make('/reserved_domains', { domain: '*.first.localhost' })
    const { token } = await tenant.credential(['bind:*.localhost'])
    await make('/reserved_domains', { domain: '*.later.localhost' })
    const device = await agent(token)
    expect(codeOf(await device.bind('x.first.localhost'))).toBe('ERR_NGROK_319')
    expect(codeOf(await device.bind('x.later.localhost'))).toBe('ERR_NGROK_319')
    const front = { url: 'https://x.first.localhost', traffic_policy: answerWith('tenant') }
    expect((await tenant.call('POST', '/endpoints', front)).status).toBe(400)
  })

  it('keeps no leave for names that it has given up, when the gateway’s owner reserves them', async () => {
    const { account, make, agent } = await startScene()
    const tenant = await account('tenant')
    const { body } = await tenant.call('POST', '/reserved_domains', { domain: '*.shop.example' })
    const acl = ['bind:*.shop.example']
    const { body: credential } = await tenant.call('POST', '/credentials', { acl })
    const device = await agent(credential.token)
    const bound = await device.bind('x.shop.example')
    expect(codeOf(bound)).toBeUndefined()
    await device.rpc(2, { Id: bound.Id })
    expect((await tenant.call('DELETE', `/reserved_domains/${body.id}`)).status).toBe(204)
    await make('/reserved_domains', { domain: '*.shop.example' })
    expect(codeOf(await device.bind('x.shop.example'))).toBe('ERR_NGROK_319')
  })
})

describe('the bot user of a device', () => {
  it('binds below the wildcard domain that its rule lies in', async () => {
    const { account, make, agent } = await startScene()
    const device123 = await account('device123')
    await make('/reserved_domains', { domain: '*.lab.your-domain.com', region: 'us' })
    const device = await agent((await device123.credential(['bind:*.lab.your-domain.com'])).token)
    expect(codeOf(await device.bind('app.lab.your-domain.com'))).toBeUndefined()
    expect(codeOf(await device.bind('*.lab.your-domain.com'))).toBeUndefined()
    expect(codeOf(await device.bind('your-domain.com'))).toBe('ERR_NGROK_316')
  })

  it('may have a name that the gateway chooses, beside those of its rules', async () => {
    const { account, make, agent } = await startScene()
    const [one, two] = [await account('one'), await account('two')]
    await make('/reserved_domains', { domain: '*.lab.example.com' })
    const first = await agent((await one.credential(['bind:one.lab.example.com'])).token)
    const second = await agent((await two.credential(['bind:two.lab.example.com'])).token)
    const chosen = await first.bind('')
    expect(String(chosen.URL)).toMatch(/^https:\/\/[a-z2-9-]{12,}\.lab\.example\.com/)
    const host = new URL(String(chosen.URL)).hostname
    const Extra = chosen.Extra as { Token: string }
    expect(codeOf(await second.bind(host))).toBe('ERR_NGROK_316')
    await first.rpc(2, { Id: chosen.Id })
    // What one was given is no other's, neither by its token nor by its name.
    for (const Token of [Extra.Token, host, `${host} x`]) {
      const other = await second.bind('', { Extra: { Token } })
      expect(new URL(String(other.URL)).hostname).not.toBe(host)
    }
    const again = await first.bind('', { Extra: { Token: Extra.Token } })
    expect([codeOf(again), again.URL]).toEqual([undefined, chosen.URL])
  })
})

describe('a name whose device is away', () => {
  const HOST = 'login.site.test'

  async function startTwo() {
    const scene = await startScene({
      tcpListen: { host: '127.0.0.1', first: 23_450, last: 23_459 },
    })
    const [a, b] = [await scene.account('a'), await scene.account('b')]
    const acl = ['bind:*.site.test', 'bind:127.0.0.1:*']
    const [forA, forB] = [await a.credential(acl), await b.credential(acl)]
    return { ...scene, a, b, acl, forA, forB }
  }

  it.each(['http', 'https', 'tls'])(
    'is not another account’s, nor are those who wait for it: %s',
    async (Proto) => {
      const { running, agent, call, forA, forB, b } = await startTwo()
      const device = await agent(forA.token)
      expect(codeOf(await device.bind(HOST, { Proto }))).toBeUndefined()
      lose(device)
      const { registry } = running.gateway.parts
      await eventually(() => expect([...registry.allDisconnected()]).toHaveLength(1))
      const more = { method: 'POST', path: '/login', body: 'password', headers: { cookie: 'a=b' } }
      const isTls = Proto === 'tls'
      const waiting = isTls ? undefined : visit(running, Proto as 'http', HOST, more)
      if (waiting) await eventually(() => expect(registry.held.size).toBe(1))
      const other = await agent(forB.token)
      for (const asked of ['http', 'https', 'tls']) {
        expect(codeOf(await other.bind(HOST, { Proto: asked }))).toBe('ERR_NGROK_334')
      }
      const traffic_policy = answerWith('b')
      for (const scheme of ['http', 'https']) {
        const front = { url: `${scheme}://${HOST}`, owner_id: b.id, traffic_policy }
        expect((await call('POST', '/endpoints', front)).body.error_code).toBe('ERR_NGROK_334')
        // A wildcard of the other account does not answer for it either.
        const wide = { ...front, url: `${scheme}://*.site.test` }
        expect((await call('POST', '/endpoints', wide)).status).toBe(201)
      }
      for (const scheme of ['http', 'https'] as const) {
        expect((await visit(running, scheme, `other.site.test`)).text).toBe('b')
      }
      for (const name of registry.allDisconnected()) registry.stopHolding(name)
      for (const scheme of ['http', 'https'] as const) {
        const answer = await visit(running, scheme, HOST).catch(() => undefined)
        expect(answer?.text).not.toBe('b')
      }
      const back = await agent(forA.token)
      expect(codeOf(await back.bind(HOST, { Proto }))).toBeUndefined()
      lose(back)
      if (waiting) expect((await waiting).text).not.toBe('b')
    },
  )

  it('sends nobody who waits for it on to another account when it is given up', async () => {
    const { running, agent, call, a, b } = await startTwo()
    const { body: own } = await call('POST', '/reserved_domains', {
      domain: 'own.site.test',
      owner_id: a.id,
    })
    // Its own key gives it no more than its own domain.
    const { body: made } = await a.call('POST', '/credentials', {})
    const device = await agent(made.token)
    expect(codeOf(await device.bind('own.site.test'))).toBeUndefined()
    lose(device)
    const { registry } = running.gateway.parts
    await eventually(() => expect([...registry.allDisconnected()]).toHaveLength(1))
    const front = { url: 'https://*.site.test', owner_id: b.id, traffic_policy: answerWith('b') }
    expect((await call('POST', '/endpoints', front)).status).toBe(201)
    const waiting = visit(running, 'https', 'own.site.test', { method: 'POST', body: 'password' })
    await eventually(() => expect(registry.held.size).toBe(1))
    expect((await call('DELETE', `/reserved_domains/${own.id}`)).status).toBe(204)
    expect((await waiting).headers['ngrok-error-code']).toBe('ERR_NGROK_3200')
    expect((await visit(running, 'https', 'own.site.test')).text).toBe('b')
  })

  it('is given to another device of the account only when it is held no more', async () => {
    const { running, agent, a, acl, forA } = await startTwo()
    const one = await agent(forA.token, deviceMetadata('one-1', 'one'))
    const tcp = { Proto: 'tcp', Opts: { Addr: '127.0.0.1:23451' } }
    expect(codeOf(await one.bind(HOST))).toBeUndefined()
    expect(codeOf(await one.bind('', tcp))).toBeUndefined()
    lose(one)
    const { registry } = running.gateway.parts
    await eventually(() => expect([...registry.allDisconnected()]).toHaveLength(2))
    const two = await agent((await a.credential(acl)).token, deviceMetadata('two-1', 'two'))
    const pretender = await agent((await a.credential(acl)).token, deviceMetadata('one-9', 'one'))
    for (const other of [two, pretender]) {
      expect(codeOf(await other.bind(HOST))).toBe('ERR_NGROK_334')
      expect(codeOf(await other.bind('', tcp))).toBe('ERR_NGROK_334')
    }
    for (const name of registry.allDisconnected()) registry.stopHolding(name)
    expect(codeOf(await two.bind(HOST))).toBeUndefined()
    expect(codeOf(await two.bind('', tcp))).toBeUndefined()
  })

  it('comes back to a device whose authtoken was replaced while its process runs', async () => {
    const { running, agent, a, acl, forA } = await startTwo()
    const metadata = deviceMetadata('one-1', 'one')
    const one = await agent(forA.token, metadata)
    expect(codeOf(await one.bind(HOST))).toBeUndefined()
    lose(one)
    await eventually(() =>
      expect([...running.gateway.parts.registry.allDisconnected()]).toHaveLength(1),
    )
    const rotated = await agent((await a.credential(acl)).token, metadata)
    expect(codeOf(await rotated.bind(HOST))).toBeUndefined()
  })
})

describe('a device that says it is another one', () => {
  it('does not keep that one out, as long as it has another authtoken', async () => {
    const { running, account, agent } = await startScene()
    const site = await account('fleet')
    const [d1, d2] = [
      await site.credential(['bind:d1.site.test']),
      await site.credential(['bind:d2.site.test']),
    ]
    await agent(d2.token, deviceMetadata('d2-process', 'd1'))
    const original = await RawAgent.connect(running)
    const answer = await original.auth(d1.token, { Metadata: deviceMetadata('d1-process', 'd1') })
    expect(answer.Error ?? '').toBe('')
    expect(codeOf(await original.bind('d1.site.test'))).toBeUndefined()
    // A copy of the data folder has the authtoken, too, and stays out.
    const copy = await RawAgent.connect(running)
    const refused = await copy.auth(d1.token, { Metadata: deviceMetadata('d1-copy', 'd1') })
    expect(codeOf(refused)).toBe('ERR_NGROK_830')
  })
})

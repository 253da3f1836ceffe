import { cpSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { Secret } from '../../../src/base/secret.ts'
import { ChaosProxy } from '../../helpers/chaos-proxy.ts'
import { forward, startDeviceService } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { GatewayCluster, nodeIn } from '../../helpers/gateway-cluster.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { PausableClock } from '../../helpers/pausable-clock.ts'
import { hasPostgres, TestPostgres } from '../../helpers/postgres.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { codeOf, RawAgent } from '../../helpers/raw-agent.ts'
import { connectSdk, type RunningGateway } from '../../helpers/running-gateway.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const HOST = 'cam.site.test'
const PROTOCOLS = ['http', 'https', 'tls'] as const

describe.skipIf(!hasPostgres)('the names of accounts at two gateways', () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await TestPostgres.shared()
  })
  afterAll(() => postgres?.remove())

  /** Two gateways, and two accounts that may both bind below `*.site.test`. */
  async function startScene(leaseMs?: number) {
    const address = await postgres.database()
    const cluster = GatewayCluster.open(address, leaseMs)
    const apiListen = { host: '127.0.0.1', port: 0 }
    const proxy = await ChaosProxy.start(address)
    const clock = new PausableClock()
    const one = await cluster.start({ apiListen, clock, through: proxy.address })
    const two = await cluster.start({ authtoken: one.authtoken, apiListen })
    const { call } = await managed(two)
    const account = async (name: string) => {
      const { body: user } = await call('POST', '/bot_users', { name })
      const owner = { owner_id: user.id }
      const acl = ['bind:*.site.test']
      const { body } = await call('POST', '/credentials', { ...owner, acl })
      const { body: key } = await call('POST', '/api_keys', owner)
      return { id: user.id, token: body.token, credentialId: body.id, key: key.token } as {
        readonly [name in 'id' | 'token' | 'credentialId' | 'key']: string
      }
    }
    const accounts = [await account('a'), await account('b')] as const
    /** As SIGSTOP. */
    const freeze = () => {
      clock.pause()
      proxy.freeze()
      onTestFinished(() => {
        proxy.thaw()
        clock.resume()
      })
    }
    /** The other one has given it up. */
    const lose = async () => {
      freeze()
      await eventually(() => {
        const id = nodeIn(one.gateway)?.nodeId ?? ''
        expect(two.gateway.parts.others.find(id)?.standing).toBe('lost')
      })
    }
    return { address, cluster, one, two, call, accounts, lose, freeze }
  }

  /** A device of an account that answers with a text. */
  const serve = async (at: RunningGateway, token: string, text: string, metadata = '') => {
    const service = await startDeviceService((_request, response) => response.end(text))
    const session = await connectSdk(at, { authtoken: new Secret(token), metadata })
    await forward(session, service, { domain: HOST })
  }

  const visit = ({ addresses: { https, caCertPath } }: RunningGateway, more: object = {}) =>
    publicRequest({
      ingress: `https://${https.host}:${https.port}`,
      address: https.host,
      host: HOST,
      ca: readFileSync(caCertPath, 'utf8'),
      ...more,
    })

  /** What comes of binding the name with each protocol; what was bound is given up again. */
  const bindAll = async (device: RawAgent) => {
    const outcomes: string[] = []
    for (const Proto of PROTOCOLS) {
      const answer = await device.bind(HOST, { Proto })
      outcomes.push(codeOf(answer) ?? 'bound')
      if (!answer.Error) await device.rpc(2, { Id: answer.Id })
    }
    return outcomes
  }

  /** A gateway closes the connection of a refused device, so each attempt has one of its own. */
  const agent = (at: RunningGateway, token: string, metadata = '') =>
    eventually(async () => {
      const raw = await RawAgent.connect(at)
      const { Error: refusal } = await raw.auth(token, { Metadata: metadata })
      expect(refusal ?? '').toBe('')
      return raw
    })

  const PAIRS = [
    ['http', 'https'],
    ['http', 'tls'],
    ['https', 'http'],
    ['tls', 'http'],
    ['https', 'tls'],
  ] as const

  it.each(['two gateways', 'one gateway'])(
    'are one account’s across HTTP, HTTPS and TLS, bound at the same moment at %s',
    async (places) => {
      const { one, two, accounts } = await startScene()
      const a = await agent(one, accounts[0].token)
      const b = await agent(places === 'one gateway' ? one : two, accounts[1].token)
      for (let round = 0; round < 4; round += 1) {
        for (const [first, second] of PAIRS) {
          const host = `${first}-${second}-${round}.site.test`
          const answers = await Promise.all([
            a.bind(host, { Proto: first }),
            b.bind(host, { Proto: second }),
          ])
          const codes = answers.map((it) => codeOf(it) ?? 'bound')
          expect([host, ...codes.toSorted()]).toEqual([host, 'ERR_NGROK_334', 'bound'])
        }
      }
    },
  )

  const REFUSED = PROTOCOLS.map(() => 'ERR_NGROK_334')

  it('stay their account’s after their gateway was lost', async () => {
    const { one, two, accounts, lose } = await startScene(3_000)
    const a = await agent(one, accounts[0].token)
    expect(codeOf(await a.bind(HOST))).toBeUndefined()
    const b = await agent(two, accounts[1].token)
    await lose()
    expect(await bindAll(b)).toEqual(REFUSED)
    const again = await agent(two, accounts[0].token)
    expect(codeOf(await again.bind(HOST))).toBeUndefined()
    expect(await bindAll(b)).toEqual(REFUSED)
  })

  it('stay their account’s after their gateway was killed and came back at once', async () => {
    const { address, cluster, one, two, accounts, freeze } = await startScene()
    const a = await agent(one, accounts[0].token)
    expect(codeOf(await a.bind(HOST))).toBeUndefined()
    const b = await agent(two, accounts[1].token)
    expect(await bindAll(b)).toEqual(REFUSED)
    await eventually(() =>
      expect(readFileSync(`${one.dataDir}/names.json`, 'utf8')).toContain(HOST),
    )
    // Both have been there for longer than names are kept.
    await postgres.query('UPDATE nodes SET since = since - 7200000', address.database)
    freeze()
    const dataDir = temporaryFolder()
    cpSync(one.dataDir, dataDir, { recursive: true })
    await cluster.start({ dataDir, authtoken: one.authtoken, joins: false })
    expect(await bindAll(b)).toEqual(REFUSED)
  })

  it.each(['comes back', 'may not come back'])(
    'keep the requests that wait for them at another gateway when their device %s',
    async (what) => {
      const { one, two, call, accounts } = await startScene()
      const metadata = JSON.stringify({ device_id: 'cam', instance: 'process-1' })
      await serve(one, accounts[0].token, 'a', metadata)
      await eventually(async () => expect((await visit(two)).text).toBe('a'))
      await one.gateway.stop()
      const b = await agent(two, accounts[1].token)
      const waitingAt = () => nodeIn(two.gateway)?.routes.waiting ?? 0
      const waiting = visit(two, { method: 'POST', body: 'password' })
      await eventually(() => expect(waitingAt()).toBe(1))
      expect(await bindAll(b)).toEqual(REFUSED)
      if (what === 'comes back') {
        await serve(two, accounts[0].token, 'a again', metadata)
        expect((await waiting).text).toBe('a again')
        return
      }
      expect((await call('DELETE', `/credentials/${accounts[0].credentialId}`)).status).toBe(204)
      // Another account may have the name now. It gets later requests, and none that waited.
      await serve(two, accounts[1].token, 'b')
      expect((await visit(two)).text).toBe('b')
      expect([404, 502, 503]).toContain((await waiting).status)
    },
  )

  it('are not reserved at one gateway over what another account has reserved at the other', async () => {
    const { one, two, accounts } = await startScene()
    const reserve = async (at: RunningGateway, domain: string, { key }: { key: string }) => {
      const { call } = await managed(at)
      const { status, body } = await call('POST', '/reserved_domains', { domain }, key)
      return status === 201 ? 201 : body.error_code
    }
    const [a, b] = accounts
    expect(await reserve(one, '*.shop.example', a)).toBe(201)
    expect(await reserve(two, 'cam.shop.example', b)).toBe('ERR_NGROK_850')
    for (let round = 0; round < 5; round += 1) {
      const outcomes = await Promise.all([
        reserve(one, `*.r${round}.example`, a),
        reserve(two, `cam.r${round}.example`, b),
      ])
      expect(outcomes.toSorted()).toEqual([201, 'ERR_NGROK_850'])
    }
  })
})

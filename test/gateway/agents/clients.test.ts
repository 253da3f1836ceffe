import { once } from 'node:events'
import { connect as connectTcp } from 'node:net'
import { describe, expect, it } from 'vitest'
import type { Secret } from '../../../src/base/secret.ts'
import { managed } from '../../helpers/managed-gateway.ts'
import { codeOf, RawAgent, type RpcAnswer } from '../../helpers/raw-agent.ts'
import {
  type RunningGateway,
  type RunningOptions,
  startGateway,
} from '../../helpers/running-gateway.ts'
import { somePorts } from '../../helpers/some-ports.ts'

/** A bind as a client writes it. */
interface Bind {
  readonly Proto: string
  readonly Opts: object
  readonly Extra?: object
}

const GO_EXTRA = { Token: '', IPPolicyRef: '', Metadata: '' }
/** `ngrok-go` 1.x: every option that its type has, set or not. */
const goHttp = (more: object) => ({
  ...{ Hostname: '', Domain: '', Subdomain: '', Auth: '', HostHeaderRewrite: false },
  ...{ LocalURLScheme: '', ProxyProto: 0, MutualTLSCA: null, Compression: null },
  ...{ WebsocketTCPConverter: null, CircuitBreaker: null, RequestHeaders: null },
  ...{ ResponseHeaders: null, IPRestriction: null, BasicAuth: null, OAuth: null, OIDC: null },
  ...{ WebhookVerification: null, UserAgentFilter: null, TrafficPolicy: '' },
  ...more,
})
const goTls = (more: object) => ({
  ...{ Hostname: '', Domain: '', Subdomain: '', ProxyProto: 0, MutualTLSAtAgent: false },
  ...{ MutualTLSAtEdge: null, TLSTermination: null, IPRestriction: null, TrafficPolicy: '' },
  ...more,
})
const goTcp = (more: object) => ({ Addr: '', ProxyProto: 0, IPRestriction: null, ...more })
const go2Extra = (more: object = {}) => ({
  ...{ Name: '', Token: '', IPPolicyRef: '', Metadata: '', Description: '', Bindings: null },
  ...{ PoolingEnabled: false, ...more },
})

/** What each client sends, and the URL that it gets; a pattern for one that the gateway chooses. */
const BINDS: readonly (readonly [client: string, bind: Bind, url: RegExp])[] = [
  [
    'ngrok-go 1.0, a domain',
    { Proto: 'https', Opts: goHttp({ Domain: 'cam.site.test' }), Extra: GO_EXTRA },
    /^https:\/\/cam\.site\.test:/,
  ],
  [
    'ngrok-go 1.0, nothing',
    { Proto: 'https', Opts: goHttp({}), Extra: GO_EXTRA },
    /^https:\/\/[\w-]+\.site\.test:/,
  ],
  [
    'ngrok-go 1.0, http',
    { Proto: 'http', Opts: goHttp({ Domain: 'cam.site.test' }), Extra: GO_EXTRA },
    /^http:\/\/cam\.site\.test:/,
  ],
  [
    'ngrok-go 1.0, tcp',
    { Proto: 'tcp', Opts: goTcp({}), Extra: GO_EXTRA },
    /^tcp:\/\/127\.0\.0\.1:\d+$/,
  ],
  [
    'ngrok-go 1.0, tls',
    { Proto: 'tls', Opts: goTls({ Domain: 'plc.site.test' }), Extra: GO_EXTRA },
    /^tls:\/\/plc\.site\.test:/,
  ],
  [
    'ngrok-go 1.10, termination by the edge',
    { Proto: 'tls', Opts: goTls({ TLSTermination: {} }), Extra: GO_EXTRA },
    /^tls:\/\/[\w-]+\.site\.test:/,
  ],
  [
    'ngrok-go 1.11, a URL and a pool',
    {
      Proto: 'https',
      Opts: goHttp({ URL: 'https://cam.site.test' }),
      Extra: { ...GO_EXTRA, Description: 'front', AllowsPooling: true },
    },
    /^https:\/\/cam\.site\.test:/,
  ],
  [
    'ngrok-go 2.0, a URL',
    { Proto: 'https', Opts: goHttp({ URL: 'https://cam.site.test' }), Extra: go2Extra() },
    /^https:\/\/cam\.site\.test:/,
  ],
  [
    'ngrok-go 2.0, no URL',
    { Proto: 'https', Opts: goHttp({ URL: '' }), Extra: go2Extra() },
    /^https:\/\/[\w-]+\.site\.test:/,
  ],
  [
    'ngrok-go 2.0, tcp://',
    { Proto: 'tcp', Opts: goTcp({ URL: 'tcp://' }), Extra: go2Extra() },
    /^tcp:\/\/127\.0\.0\.1:\d+$/,
  ],
  [
    'ngrok-go 2.0, tls://',
    { Proto: 'tls', Opts: goTls({ URL: 'tls://' }), Extra: go2Extra() },
    /^tls:\/\/[\w-]+\.site\.test:/,
  ],
  [
    'ngrok-go 2.1, an internal URL',
    {
      Proto: 'https',
      Opts: goHttp({ URL: 'https://cam.internal' }),
      Extra: go2Extra({ Bindings: ['internal'], PoolingEnabled: true }),
    },
    /^https:\/\/cam\.internal$/,
  ],
  [
    'ngrok-go 2.1, an internal address of TCP',
    {
      Proto: 'tcp',
      Opts: goTcp({ URL: 'tcp://ssh.internal:22' }),
      Extra: go2Extra({ Bindings: ['internal'] }),
    },
    /^tcp:\/\/ssh\.internal:22$/,
  ],
  [
    'ngrok-go 2.1, an internal name of TLS',
    { Proto: 'tls', Opts: goTls({ URL: 'tls://cam.internal' }), Extra: go2Extra() },
    /^tls:\/\/cam\.internal$/,
  ],
  [
    'an agent of version 3, for agents that ask for certificates',
    { Proto: 'tls', Opts: goTls({ URL: 'tls://plc.site.test', MutualTLSAtAgent: true }) },
    /^tls:\/\/plc\.site\.test:/,
  ],
  [
    'ngrok-rust 0.18, http',
    {
      Proto: 'https',
      Opts: { Domain: 'cam.site.test', ProxyProto: 0, Compression: {}, TrafficPolicy: null },
      Extra: { Token: '', IPPolicyRef: '', Metadata: 'm', Bindings: [], PoolingEnabled: null },
    },
    /^https:\/\/cam\.site\.test:/,
  ],
  [
    'ngrok-rust 0.18, tcp',
    { Proto: 'tcp', Opts: { Addr: '', ProxyProto: 0, IPRestriction: null } },
    /^tcp:\/\/127\.0\.0\.1:\d+$/,
  ],
]

interface Site {
  readonly running: RunningGateway
  /** May bind every name. */
  readonly authtoken: Secret
}

async function start(options: RunningOptions = {}): Promise<Site> {
  const running = await startGateway({ tcpListen: somePorts(), ...options })
  const { authtoken } = await running.gateway.parts.issuer.createCredential({})
  return { running, authtoken }
}

async function connect({ running, authtoken }: Site, clientId = '', extra: object = {}) {
  const agent = await RawAgent.connect(running)
  return { agent, answer: await agent.auth(authtoken.reveal(), extra, clientId) }
}

/** As a client binds again: what the answer says, and its own texts. */
const again = (bind: Bind, { Id, Proto, Opts, Extra }: RpcAnswer) => ({
  ...{ Id, Proto, Opts, ForwardsTo: 'localhost:1' },
  Extra: { ...bind.Extra, Token: (Extra as { Token: string }).Token },
})

it('closes the connection of `ssh -R`, which gets no SSH server', async () => {
  const { addresses } = await startGateway()
  const socket = connectTcp(addresses.agent)
  socket.on('error', () => {})
  let heard = ''
  socket.on('data', (chunk) => {
    heard += chunk.toString('latin1')
  })
  socket.write('SSH-2.0-OpenSSH_9.7\r\n')
  await once(socket, 'close')
  expect(heard).not.toMatch(/^SSH-/)
})

describe('a client', () => {
  it.each(BINDS)('%s: is served, and gets its URL and its options back', async (_, bind, url) => {
    const site = await start()
    const { agent, answer } = await connect(site)
    const bound = await agent.bind('', { ...bind })
    expect(bound).toMatchObject({ Proto: bind.Proto, URL: expect.stringMatching(url) })
    expect(bound.Opts).toEqual(bind.Opts)
    const id = String(bound.Id).slice('ep_'.length)
    expect(bound.Extra).toMatchObject({ TunnelID: `tn_${id}` })

    agent.cut()
    const next = await connect(site, String(answer.ClientId))
    const back = await next.agent.rpc(1, again(bind, bound))
    expect(back).toMatchObject({ Id: bound.Id, URL: bound.URL, Opts: bind.Opts })
  })

  it.each([
    ['https://invalid@site.test', 'ERR_NGROK_9037'],
    ['ftp://cam.site.test', 'ERR_NGROK_9036'],
    ['tcp://127.0.0.1:1', 'ERR_NGROK_301'],
    ['tcp://ssh.internal', 'ERR_NGROK_9034'],
  ])('that asks for %s hears %s', async (URL, code) => {
    const { agent } = await connect(await start())
    const Proto = URL.startsWith('tcp') ? 'tcp' : 'https'
    expect(codeOf(await agent.bind('', { Proto, Opts: goHttp({ URL }) }))).toBe(code)
  })

  it('that tells all about itself, as an agent of version 3 does, gets in, and is led nowhere else', async () => {
    const { answer } = await connect(await start(), '', {
      ...{ Hostname: 'press', UserAgent: 'ngrok-agent/3.18.0', ClientType: 'agent', Cookie: '' },
      ...{ HeartbeatInterval: 10e9, HeartbeatTolerance: 15e9, LegNumber: 0, Fingerprint: 'f' },
      ...{ ProxyType: 'socks5', MutualTLS: true, ServiceRun: true, ConfigVersion: '3' },
      ...{ CustomInterface: true, CustomCAs: true, UpdateUnsupportedError: null },
      ...{ StopUnsupportedError: '', RestartUnsupportedError: 'remote management is off' },
    })
    expect(answer).toMatchObject({ Version: '3', ClientId: expect.stringMatching(/^ts_/) })
    expect(answer.Extra).not.toHaveProperty('ConnectAddresses')
  })

  it('shows its name and its description in the API', async () => {
    const apiListen = { host: '127.0.0.1', port: 0 }
    const site = await start({ apiListen })
    const { call } = await managed(site.running)
    const { agent } = await connect(site)
    const Extra = go2Extra({ Name: 'cam', Description: 'in the hall', Metadata: 'hall 7' })
    const Opts = goHttp({ URL: 'https://cam.site.test' })
    const { Id } = await agent.bind('', { Proto: 'https', Opts, Extra })
    expect((await call('GET', `/endpoints/${Id}`)).body).toMatchObject({
      ...{ name: 'cam', description: 'in the hall', metadata: 'hall 7' },
    })
  })
})

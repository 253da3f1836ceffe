import { readFileSync } from 'node:fs'
import type { Session } from '@ngrok/ngrok'
import { describe, expect, it } from 'vitest'
import { deviceMetadata, startDeviceService, visit } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { codeOf, RawAgent } from '../../helpers/raw-agent.ts'
import {
  bind,
  connectSdk,
  inTime,
  type RunningGateway,
  sdkCode,
  startGateway,
} from '../../helpers/running-gateway.ts'
import { somePorts } from '../../helpers/some-ports.ts'
import { readAll, startTcpService, visit as visitTcp } from '../../helpers/tcp-site.ts'
import { startTlsService, visitTls } from '../../helpers/tls-site.ts'

const DOMAIN = 'cam.site.test'
const HEADER = (value: string) =>
  JSON.stringify({
    on_http_response: [{ actions: [{ type: 'add-headers', config: { headers: { by: value } } }] }],
  })
const LIMIT = JSON.stringify({
  on_http_request: [
    {
      actions: [
        {
          type: 'rate-limit',
          config: {
            name: 'few',
            algorithm: 'sliding_window',
            capacity: 2,
            rate: '60s',
            bucket_key: ["'all'"],
          },
        },
      ],
    },
  ],
})

const answering = (text: string) => startDeviceService((_request, response) => response.end(text))

/** Joins the pool with a service that answers `text`, `when` it may. */
async function join(session: Session, text: string, policy?: string, when?: () => Promise<void>) {
  const builder = session.httpEndpoint().domain(DOMAIN).poolingEnabled(true)
  if (policy !== undefined) builder.trafficPolicy(policy)
  const service = await startDeviceService((_request, response) => {
    void Promise.resolve(when?.()).then(() => response.end(text))
  })
  return inTime(builder.listenAndForward(service), 'join')
}

/** Lets nobody through before `count` have come. */
function gate(count: number): () => Promise<void> {
  const waiting: (() => void)[] = []
  return () =>
    new Promise((resolve) => {
      waiting.push(resolve)
      if (waiting.length >= count) for (const open of waiting.splice(0)) open()
    })
}

/** Two sessions without a device, as of two programs with one authtoken. */
async function startPool(options: Parameters<typeof startGateway>[0] = {}) {
  const running = await startGateway(options)
  const sessions = [await connectSdk(running), await connectSdk(running)] as const
  return { running, sessions }
}

async function statuses(running: RunningGateway, count: number): Promise<number[]> {
  const seen: number[] = []
  while (seen.length < count) seen.push((await visit(running)).status)
  return seen
}

async function texts(running: RunningGateway, count: number): Promise<string[]> {
  const seen: string[] = []
  while (seen.length < count) seen.push((await visit(running)).text)
  return seen.sort()
}

describe('endpoints of the SDK with pooling', () => {
  it('share an address, each with a policy of its own', async () => {
    const { running, sessions } = await startPool()
    const allAsked = gate(8)
    await join(sessions[0], 'a', HEADER('first'), allAsked)
    await join(sessions[1], 'b', HEADER('second'), allAsked)
    const answers = await Promise.all(Array.from({ length: 8 }, () => visit(running)))
    expect(answers.map(({ text, headers }) => `${text} ${headers.by}`).sort()).toEqual([
      ...Array(4).fill('a first'),
      ...Array(4).fill('b second'),
    ])
  })

  it('serve visitors by TLS in turn, too', async () => {
    const { running, sessions } = await startPool()
    await join(sessions[0], 'a')
    await join(sessions[1], 'b')
    const ingress = `https://127.0.0.1:${running.addresses.https.port}`
    const ca = readFileSync(running.addresses.caCertPath, 'utf8')
    const seen: string[] = []
    while (seen.length < 4) seen.push((await visit(running, { ingress, ca })).text)
    expect(seen.sort()).toEqual(['a', 'a', 'b', 'b'])
  })

  it('may be two of one session', async () => {
    const running = await startGateway()
    const session = await connectSdk(running)
    const first = await join(session, 'a')
    await join(session, 'b')
    expect(await texts(running, 4)).toEqual(['a', 'a', 'b', 'b'])
    await inTime(first.close())
    expect(await texts(running, 3)).toEqual(['b', 'b', 'b'])
  })

  it('count rate limits each for itself', async () => {
    const { running, sessions } = await startPool()
    await join(sessions[0], 'a', LIMIT)
    await join(sessions[1], 'b', LIMIT)
    expect((await statuses(running, 6)).sort()).toEqual([200, 200, 200, 200, 429, 429])
  })

  it('count none of the requests that came before the address was shared', async () => {
    const { running, sessions } = await startPool()
    const builder = sessions[0].httpEndpoint().domain(DOMAIN).trafficPolicy(LIMIT)
    const alone = await inTime(builder.listenAndForward(await answering('alone')))
    expect(await statuses(running, 3)).toEqual([200, 200, 429])
    await inTime(alone.close())
    await join(sessions[0], 'a', LIMIT)
    expect(await statuses(running, 3)).toEqual([200, 200, 429])
  })

  it('serve who was on the way to one that is lost, each by its own policy', async () => {
    const { running, sessions } = await startPool()
    let asked = 0
    const hangs = await startDeviceService(() => {
      asked += 1
    })
    const lost = sessions[0].httpEndpoint().domain(DOMAIN).poolingEnabled(true)
    await inTime(lost.trafficPolicy(HEADER('first')).listenAndForward(hangs))
    const [session] = running.gateway.parts.sessions.all()
    await join(sessions[1], 'b', HEADER('second'))
    const answers = [visit(running), visit(running)]
    await eventually(() => expect(asked).toBe(1))
    session?.end('a test')
    const served = (await Promise.all(answers)).map(({ text, headers }) => `${text} ${headers.by}`)
    expect(served).toEqual(['b second', 'b second'])
  })

  it('go without a visitor who notices', async () => {
    const { running, sessions } = await startPool()
    await join(sessions[0], 'a')
    await join(sessions[1], 'b')
    const seen: string[] = []
    let isOver = false
    const run = async () => {
      while (!isOver) {
        const { status, text } = await visit(running)
        seen.push(status === 200 ? text : `${status} ${text}`)
      }
    }
    const runs = [run(), run(), run(), run()]
    await eventually(() => expect(seen).toEqual(expect.arrayContaining(['a', 'b'])))
    const [first] = running.gateway.parts.sessions.all()
    first?.end('a test')
    const already = seen.length
    await eventually(() => expect(seen.length).toBeGreaterThan(already + 50))
    isOver = true
    await Promise.all(runs)
    expect(seen.filter((text) => text !== 'a' && text !== 'b')).toEqual([])
    expect(running.gateway.parts.registry.size).toBe(1)
  })

  it('lead a client to the same one where the gateway is told to', async () => {
    const { running, sessions } = await startPool({ poolAffinity: 'client' })
    await join(sessions[0], 'a')
    await join(sessions[1], 'b')
    const seen = await texts(running, 6)
    expect(new Set(seen).size).toBe(1)
    const { registry, sessions: table } = running.gateway.parts
    const [serving] = [...registry.all()].filter(({ traffic }) => traffic.requests > 0)
    table.find((serving?.type === 'agent' && serving.sessionId) || '')?.end('a test')
    expect(new Set(await texts(running, 6))).toEqual(new Set([seen[0] === 'a' ? 'b' : 'a']))
  })

  it('are refused where the other one does not pool, and by another account', async () => {
    const { running, sessions } = await startPool()
    const pooled = (session: Session, isPooled = true) =>
      sdkCode(session.httpEndpoint().domain(DOMAIN).poolingEnabled(isPooled).listen())
    const alone = await bind(sessions[0], DOMAIN)
    expect(await pooled(sessions[1])).toBe('ERR_NGROK_18016')
    await inTime(alone.close())
    await join(sessions[0], 'a')
    expect(await pooled(sessions[1], false)).toBe('ERR_NGROK_18017')
    const { issuer, registrar } = running.gateway.parts
    const { id } = await issuer.createBotUser({ name: 'other' })
    const { authtoken } = await issuer.createCredential({ ownerId: id, acl: [`bind:${DOMAIN}`] })
    expect(registrar).toBeDefined()
    expect(await pooled(await connectSdk(running, { authtoken }))).toBe('ERR_NGROK_334')
    expect(await texts(running, 2)).toEqual(['a', 'a'])
  })

  it('refuse an option that stands elsewhere no less', async () => {
    const running = await startGateway()
    const agent = await RawAgent.connect(running)
    await agent.auth(running.authtoken.reveal())
    const Opts = { Domain: DOMAIN, PoolingEnabled: true }
    expect(codeOf(await agent.bind(DOMAIN, { Opts }))).toBeUndefined()
    expect(codeOf(await agent.bind(DOMAIN, { Opts }))).toBeUndefined()
    expect(running.gateway.parts.registry.size).toBe(2)
  })

  it('keep their random name, in which others have joined them', async () => {
    const running = await startGateway()
    const agent = await RawAgent.connect(running)
    await agent.auth(running.authtoken.reveal())
    const Extra = { PoolingEnabled: true }
    const first = await agent.bind('', { Extra })
    const { Token } = first.Extra as { Token: string }
    const other = await RawAgent.connect(running)
    await other.auth(running.authtoken.reveal())
    expect(codeOf(await other.bind(new URL(String(first.URL)).hostname, { Extra }))).toBeUndefined()
    const again = await agent.bind('', { Extra: { ...Extra, Token } })
    expect(again.URL).toBe(first.URL)
    const alone = await agent.bind('', { Extra: { Token } })
    expect(alone.URL).not.toBe(first.URL)
  })
})

describe('a device in a pool', () => {
  const deviceOf = (running: RunningGateway, name: string, instance = `${name}-1`) =>
    connectSdk(running, { metadata: deviceMetadata(instance, name) })

  it('takes its own place over, and no other', async () => {
    const running = await startGateway()
    const { registry } = running.gateway.parts
    const [a, b] = [await deviceOf(running, 'device-a'), await deviceOf(running, 'device-b')]
    await join(a, 'a', LIMIT)
    await join(b, 'b')
    expect(await texts(running, 4)).toEqual(['a', 'a', 'b', 'b'])
    await join(a, 'changed', LIMIT)
    expect(registry.size).toBe(2)
    // What its first policy has counted, the second goes on with.
    const answers = [await visit(running), await visit(running)]
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 429])
    const members = [...registry.all()].map(({ poolMember }) => poolMember)
    expect(members.sort()).toEqual(['device-a', 'device-b'])
  })

  it('begins with limits of its own beside one that has counted', async () => {
    const running = await startGateway()
    await join(await deviceOf(running, 'device-a'), 'a', LIMIT)
    expect(await statuses(running, 3)).toEqual([200, 200, 429])
    await join(await deviceOf(running, 'device-b'), 'b', LIMIT)
    expect((await statuses(running, 4)).sort()).toEqual([200, 200, 429, 429])
  })

  it('finds its limits again when it comes back', async () => {
    const running = await startGateway()
    const agent = await deviceOf(running, 'device-a')
    await join(agent, 'a', LIMIT)
    await texts(running, 2)
    const [session] = running.gateway.parts.sessions.all()
    session?.end('a test')
    await join(await deviceOf(running, 'device-b'), 'b', LIMIT)
    expect((await visit(running)).status).toBe(200)
    await join(await deviceOf(running, 'device-a', 'device-a-2'), 'a', LIMIT)
    expect((await statuses(running, 4)).sort()).toEqual([200, 429, 429, 429])
  })

  it('may leave pooling when it is alone, and not while others are there', async () => {
    const running = await startGateway()
    const [a, b] = [await deviceOf(running, 'device-a'), await deviceOf(running, 'device-b')]
    await join(a, 'a')
    const other = await join(b, 'b')
    const alone = () => a.httpEndpoint().domain(DOMAIN).listenAndForward('http://127.0.0.1:1')
    expect(await sdkCode(alone())).toBe('ERR_NGROK_18017')
    expect(await texts(running, 4)).toEqual(['a', 'a', 'b', 'b'])
    await inTime(other.close())
    await eventually(() => expect(running.gateway.parts.registry.size).toBe(1))
    expect(await sdkCode(alone())).toBeUndefined()
  })
})

describe('TCP endpoints with pooling', () => {
  it('share an address, and new connections go to those that are left', async () => {
    const tcpListen = somePorts()
    const { running, sessions } = await startPool({ tcpListen })
    const address = `127.0.0.1:${tcpListen.first}`
    for (const [index, session] of sessions.entries()) {
      const { port } = await startTcpService((socket) => socket.end(`service ${index}`))
      const builder = session.tcpEndpoint().remoteAddr(address).poolingEnabled(true)
      await inTime(builder.listenAndForward(`tcp://127.0.0.1:${port}`))
    }
    const one = async () => readAll(visitTcp(address))
    expect([await one(), await one()].sort()).toEqual(['service 0', 'service 1'])
    const [first] = running.gateway.parts.sessions.all()
    first?.end('a test')
    expect([await one(), await one()]).toEqual(['service 1', 'service 1'])
    expect(await sdkCode(sessions[1].tcpEndpoint().remoteAddr(address).listen())).toBe(
      'ERR_NGROK_18017',
    )
  })
})

describe('TLS endpoints with pooling', () => {
  it.each([
    ['none', ['service 0', 'service 0', 'service 1', 'service 1']],
    ['client', Array(4).fill(expect.stringMatching(/service [01]/))],
  ] as const)(
    'serve connections as they are to be chosen, by affinity %s',
    async (poolAffinity, wanted) => {
      const { running, sessions } = await startPool({ poolAffinity })
      for (const [index, session] of sessions.entries()) {
        const { port } = await startTlsService((socket) => socket.end(`service ${index}`))
        const builder = session.tlsEndpoint().domain(DOMAIN).poolingEnabled(true)
        await inTime(builder.listenAndForward(`tcp://127.0.0.1:${port}`))
      }
      const seen: string[] = []
      while (seen.length < 4) {
        seen.push(await readAll(visitTls(running, DOMAIN, { rejectUnauthorized: false })))
      }
      expect(seen.sort()).toEqual(wanted)
      if (poolAffinity === 'client') expect(new Set(seen).size).toBe(1)
    },
  )
})

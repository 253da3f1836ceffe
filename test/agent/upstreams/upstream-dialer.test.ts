import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type LookupFunction, type Socket } from 'node:net'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ForwardRules } from '../../../src/agent/upstreams/forward-rules.ts'
import { parseForwardTarget } from '../../../src/agent/upstreams/forward-target.ts'
import { UpstreamCheck } from '../../../src/agent/upstreams/upstream-check.ts'
import { UpstreamDialer } from '../../../src/agent/upstreams/upstream-relay.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { RawClient } from '../../helpers/raw-http.ts'
import { lastingAddress } from '../../helpers/some-ports.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const METADATA = '169.254.169.254'
const targetOf = (text: string) => {
  const target = parseForwardTarget(text)
  if (!target) throw new Error(`${text} is no target`)
  return target
}

const canIpv6 = Object.values(networkInterfaces())
  .flat()
  .some((own) => own?.address === '::1')

async function serve(host: string, onConnection: (socket: Socket) => void, port = 0) {
  const sockets = new Set<Socket>()
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    onConnection(socket)
  })
  server.listen(port, host)
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { sockets, port: (server.address() as AddressInfo).port }
}

/** `cam.lan` is on the list, and leads where the test says. */
function startDialer({ systemHasLocalhost = true } = {}) {
  const leads = { to: ['127.0.0.1'] }
  const rules = new ForwardRules({
    allow: ['cam.lan'],
    ownAddresses: () => [],
    resolve: async () => leads.to,
  })
  const dialer = new UpstreamDialer(rules, captureLog().log, systemHasLocalhost)
  const hold = async (port: number, host = 'cam.lan') => {
    const target = targetOf(`${host}:${port}`)
    const letGo = dialer.hold(target)
    onTestFinished(letGo)
    return { letGo, relayPort: Number(new URL(await dialer.dialUrl(target)).port) }
  }
  return { leads, dialer, hold }
}

const echo = (socket: Socket) => void socket.pipe(socket)

/** What another process gets when it connects to a port of this machine. */
async function askedByAnother(port: number): Promise<string> {
  const script = `require('net').connect(${port}, '127.0.0.1', function () {
    this.write('GET / HTTP/1.1\\r\\n\\r\\n')
  }).on('error', () => {}).on('close', () => process.exit()).pipe(process.stdout)`
  return (await promisify(execFile)(process.execPath, ['-e', script], { timeout: 60_000 })).stdout
}

describe('a way to a Unix socket', () => {
  it.runIf(process.platform === 'linux')('is for this process alone', async () => {
    const folder = temporaryFolder()
    const path = join(folder, 'äpp.sock')
    const server = createServer((socket) => socket.end('secret'))
    server.listen(path)
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const rules = new ForwardRules({ allow: [`unix:${folder}/`], ownAddresses: () => [] })
    const dialer = new UpstreamDialer(rules, captureLog().log)
    const target = targetOf(`unix:${path}`)
    onTestFinished(dialer.hold(target))
    const port = Number(new URL(await dialer.dialUrl(target)).port)
    expect(await askedByAnother(port)).toBe('')
    const own = RawClient.connect(port)
    await own.receive('secret')
    own.socket.destroy()
  })

  it('tells whole why it leads nowhere, whatever signs its path has', async () => {
    const path = join(temporaryFolder(), 'äpp.sock')
    const rules = new ForwardRules({ allow: [`unix:${path}`], ownAddresses: () => [] })
    const dialer = new UpstreamDialer(rules, captureLog().log)
    const target = targetOf(`unix:${path}`)
    onTestFinished(dialer.hold(target))
    const answer = await fetch(await dialer.dialUrl(target))
    expect(await answer.text()).toBe(`failed to dial backend: unix:${path} cannot be reached`)
  })

  it('is broken off with the connection of a visitor', async () => {
    const folder = temporaryFolder()
    const path = join(folder, 'app.sock')
    const sockets: Socket[] = []
    const server = createServer((socket) => void sockets.push(socket.on('error', () => {})))
    server.listen(path)
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const rules = new ForwardRules({ allow: [`unix:${folder}/`], ownAddresses: () => [] })
    const dialer = new UpstreamDialer(rules, captureLog().log)
    const target = targetOf(`unix:${path}`)
    onTestFinished(dialer.hold(target))
    const port = Number(new URL(await dialer.dialUrl(target)).port)
    const visitor = connect(port, '127.0.0.1').on('error', () => {})
    await eventually(() => expect(sockets).toHaveLength(1))
    visitor.resetAndDestroy()
    sockets[0]?.resume()
    await eventually(() => expect(sockets[0]?.destroyed).toBe(true))
  })
})

describe('UpstreamDialer', () => {
  it.each(['127.0.0.1:8001', '[::1]:8001', '192.168.1.5:80'])(
    'leaves %s to the SDK',
    async (text) => {
      const { dialer } = startDialer({ systemHasLocalhost: false })
      dialer.hold(targetOf(text))
      expect(await dialer.dialUrl(targetOf(text))).toBe(`http://${text}`)
      expect(dialer.lookupFor(targetOf(text))).toBeUndefined()
    },
  )

  it('leaves localhost to the SDK and the system where a file has it', async () => {
    const { dialer } = startDialer({ systemHasLocalhost: true })
    dialer.hold(targetOf('localhost:8001'))
    expect(await dialer.dialUrl(targetOf('localhost:8001'))).toBe('http://localhost:8001')
    expect(dialer.lookupFor(targetOf('localhost:8001'))).toBeUndefined()
  })

  it.each(['127.0.0.1', ...(canIpv6 ? ['::1'] : [])])(
    'finds what listens on %s behind localhost where the SDK would not',
    async (host) => {
      // At a port that the system gives away, another process may listen at the other address.
      const { port } = await serve(host, echo, lastingAddress().port)
      const { hold } = startDialer({ systemHasLocalhost: false })
      const client = RawClient.connect((await hold(port, 'localhost')).relayPort)
      client.send('hello')
      await client.receive('hello')
    },
  )

  it('has the check of upstreams ask both addresses of localhost where no file has it', async () => {
    const lookup = startDialer({ systemHasLocalhost: false }).dialer.lookupFor(
      targetOf('localhost:8001'),
    )
    const ask = promisify(lookup as LookupFunction) as (host: string, how: object) => unknown
    expect(await ask('localhost', { all: true })).toEqual([
      { address: '127.0.0.1', family: 4 },
      { address: '::1', family: 6 },
    ])
  })

  it('passes bytes on both ways, and each end by itself', async () => {
    const { port } = await serve('127.0.0.1', echo)
    const { hold } = startDialer()
    const client = RawClient.connect((await hold(port)).relayPort)
    client.send('x'.repeat(200_000))
    client.socket.end('!')
    expect(await client.end()).toBe('end')
    expect(client.text).toBe(`${'x'.repeat(200_000)}!`)
  })

  it('dials what the name leads to at each connection', async () => {
    const first = await serve('127.0.0.1', (socket) => socket.end('first'))
    await serve('127.0.0.2', (socket) => socket.end('second'), first.port)
    const { leads, hold } = startDialer()
    const { relayPort } = await hold(first.port)
    await RawClient.connect(relayPort).receive('first')
    leads.to = ['127.0.0.2']
    await RawClient.connect(relayPort).receive('second')
  })

  it.each([
    ['to an address that is always blocked', [METADATA]],
    ['there beside an allowed one', ['127.0.0.1', METADATA]],
    ['nowhere', []],
  ])('answers as the SDK does, and dials nobody, when the name leads %s', async (_what, to) => {
    const { port, sockets } = await serve('127.0.0.1', echo)
    const { leads, hold } = startDialer()
    const { relayPort } = await hold(port)
    leads.to = to
    const client = RawClient.connect(relayPort)
    client.send('GET / HTTP/1.1\r\n\r\n')
    expect(await client.end()).toBe('end')
    expect(client.text).toMatch(
      /^HTTP\/1\.1 502 Bad Gateway\r\nconnection: close\r\ncontent-length: \d+\r\ndate: /,
    )
    expect(client.text).toContain('\r\n\r\nfailed to dial backend: ')
    expect(client.text).not.toContain(METADATA)
    expect(sockets.size).toBe(0)
  })

  it('answers so when nobody listens there', async () => {
    const { hold } = startDialer()
    const client = RawClient.connect((await hold(1)).relayPort)
    await client.receive('failed to dial backend: ')
  })

  it('takes the next address when one does not answer', async () => {
    const { port } = await serve('127.0.0.2', echo)
    const { leads, hold } = startDialer()
    // Where no other test listens.
    leads.to = ['127.0.0.9', '127.0.0.2']
    const client = RawClient.connect((await hold(port)).relayPort)
    client.send('hello')
    await client.receive('hello')
  })

  it('tells of one that is reset before it is told to be there', async () => {
    // Both are known to the system in one turn: the service comes first.
    const service = await serve('127.0.0.1', (socket) => socket.resetAndDestroy())
    const { relayPort } = await startDialer().hold(service.port)
    const client = RawClient.connect(relayPort)
    client.send('GET / HTTP/1.1\r\n\r\n')
    await client.receive('answers with a connection reset')
  })

  it('tells of a reset by a reset, on both sides', async () => {
    const { port, sockets } = await serve('127.0.0.1', echo)
    const { hold } = startDialer()
    const { relayPort } = await hold(port)
    const cut = RawClient.connect(relayPort)
    cut.send('a')
    await cut.receive('a')
    for (const socket of sockets) socket.resetAndDestroy()
    expect(await cut.end()).toBe('ECONNRESET')
    const leaving = RawClient.connect(relayPort)
    leaving.send('b')
    await leaving.receive('b')
    const [upstream] = [...sockets].slice(-1)
    leaving.socket.resetAndDestroy()
    await eventually(() => expect(upstream?.errored).toMatchObject({ code: 'ECONNRESET' }))
  })

  it('listens as long as somebody holds the target', async () => {
    const { port } = await serve('127.0.0.1', echo)
    const { hold } = startDialer()
    const first = await hold(port)
    const second = await hold(port)
    expect(second.relayPort).toBe(first.relayPort)
    first.letGo()
    const client = RawClient.connect(first.relayPort)
    client.send('still')
    await client.receive('still')
    second.letGo()
    const [error] = await once(connect(first.relayPort, '127.0.0.1'), 'error')
    expect(error).toMatchObject({ code: 'ECONNREFUSED' })
    client.send('going on')
    await client.receive('going on')
  })

  it('is asked by the check of upstreams, which dials nobody else either', async () => {
    const { port, sockets } = await serve('127.0.0.1', (socket) => socket.resume())
    const { leads, dialer } = startDialer()
    const upstreams = new UpstreamCheck({
      timings: { intervalMs: 5, maxIntervalMs: 5, connectMs: 5_000 },
      clock: systemClock,
      lookupFor: (target) => dialer.lookupFor(target),
      onChange: () => {},
    })
    onTestFinished(() => upstreams.stop())
    upstreams.watch('cam', targetOf(`cam.lan:${port}`))
    upstreams.start()
    await eventually(() => expect(upstreams.stateOf('cam')).toBe('up'))
    leads.to = ['127.0.0.1', METADATA]
    await eventually(() => expect(upstreams.stateOf('cam')).toBe('down'))
    expect(sockets.size).toBeGreaterThan(0)
  })
})

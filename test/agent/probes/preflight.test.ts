import { getEventListeners, once } from 'node:events'
import {
  type AddressInfo,
  createServer as createTcpServer,
  type Server,
  type Socket,
} from 'node:net'
import { createServer as createTlsServer, type TlsOptions } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Preflight, type PreflightOptions } from '../../../src/agent/probes/preflight.ts'
import type { Problem } from '../../../src/agent/problem.ts'
import { StartError } from '../../../src/base/app-error.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createTlsFixture } from '../../helpers/tls-fixture.ts'

const DAY_MS = 86_400_000
const { signal } = new AbortController()

async function listen(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return `localhost:${(server.address() as AddressInfo).port}`
}

async function serveTls(options: TlsOptions): Promise<string> {
  return listen(createTlsServer(options, (socket) => socket.on('error', () => {}).resume()))
}

function preflight(serverAddr: string, options: Partial<PreflightOptions> = {}): Preflight {
  return new Preflight({
    serverAddr,
    caCert: undefined,
    serviceDate: () => Promise.resolve(undefined),
    timings: { dnsMs: 30_000, connectMs: 30_000, tlsMs: 30_000 },
    clock: systemClock,
    ...options,
  })
}

async function problem(serverAddr: string, options?: Partial<PreflightOptions>): Promise<Problem> {
  const error = await preflight(serverAddr, options)
    .run(signal)
    .catch((reason) => reason)
  expect(error, 'the preflight is through').toBeDefined()
  return error.problem
}

describe('Preflight', () => {
  it('is through when the service shows a certificate of the right CA', async () => {
    const { caPem, certPem, keyPem } = await createTlsFixture()
    const address = await serveTls({ cert: certPem, key: keyPem })
    await preflight(address, { caCert: caPem }).run(signal)
    await preflight(address.replace('localhost', '127.0.0.1'), { caCert: caPem }).run(signal)
    expect(getEventListeners(signal, 'abort')).toEqual([])
  })

  it('calls a certificate of another CA tls', async () => {
    const { certPem, keyPem } = await createTlsFixture()
    const { caPem: otherCa } = await createTlsFixture()
    const address = await serveTls({ cert: certPem, key: keyPem })
    expect(await problem(address, { caCert: otherCa })).toMatchObject({
      reason: 'tls',
      detail: expect.stringContaining('of an unknown CA'),
    })
  })

  it('leaves the CA to the SDK when none was given', async () => {
    const { certPem, keyPem } = await createTlsFixture()
    await preflight(await serveTls({ cert: certPem, key: keyPem })).run(signal)
  })

  it('calls a certificate for another name tls', async () => {
    const { caPem, certPem, keyPem } = await createTlsFixture()
    const address = await serveTls({ cert: certPem, key: keyPem })
    const other = address.replace('localhost', '127.0.0.2')
    const server = createTlsServer({ cert: certPem, key: keyPem }, (socket) => socket.resume())
    server.listen(Number(address.split(':')[1]), '127.0.0.2')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    expect(await problem(other, { caCert: caPem })).toMatchObject({
      reason: 'tls',
      detail: `${other} presented a certificate for other names: localhost, 127.0.0.1`,
      remedy: expect.stringContaining('Add 127.0.0.2 to GATEWAY_PUBLIC_NAMES'),
    })
  })

  it('calls a server that does not speak TLS tls', async () => {
    const portal = createTcpServer((socket) => socket.end('HTTP/1.1 200 OK\r\n\r\nlog in, please'))
    expect(await problem(await listen(portal))).toMatchObject({ reason: 'tls' })
  })

  it('calls a server that hangs up network', async () => {
    const server = createTcpServer((socket) => socket.destroy())
    expect(await problem(await listen(server))).toMatchObject({ reason: 'network' })
  })

  it('calls a port where nobody listens network', async () => {
    expect(await problem('localhost:1')).toMatchObject({
      reason: 'network',
      detail: 'localhost:1 refuses connections',
    })
  })

  it('does not wait longer than it may for a server that says nothing', async () => {
    const mute = createTcpServer((socket) => socket.on('error', () => {}).resume())
    const address = await listen(mute)
    const timings = { dnsMs: 30_000, connectMs: 30_000, tlsMs: 300 }
    expect(await problem(address, { timings })).toMatchObject({
      reason: 'network',
      detail: `${address} did not answer within 1 s (it accepts connections)`,
    })
    expect(getEventListeners(signal, 'abort')).toEqual([])
  })

  it('waits twice as long after a silence, and not for good: the link may be slow', async () => {
    const address = await listen(createTcpServer(() => {}))
    const timings = { dnsMs: 30_000, connectMs: 30_000, tlsMs: 50 }
    const slow = preflight(address, { timings })
    const waitedMs: number[] = []
    for (let round = 0; round < 4; round += 1) {
      const error = await slow.run(signal).catch((reason) => reason)
      expect(error.problem.reason).toBe('network')
      waitedMs.push(error.cause.ms)
    }
    expect(waitedMs).toEqual([50, 100, 200, 200])
  })

  it('calls a name that does not resolve dns', async () => {
    expect(await problem('no-such-name.invalid:443')).toMatchObject({
      reason: 'dns',
      detail: expect.stringMatching(/^no-such-name\.invalid cannot be resolved/),
    })
  })

  it('ends at once when it is aborted', async () => {
    const mute = createTcpServer((socket) => socket.on('error', () => {}).resume())
    const address = await listen(mute)
    const controller = new AbortController()
    const running = preflight(address, {
      timings: { dnsMs: 60_000, connectMs: 60_000, tlsMs: 60_000 },
    }).run(controller.signal)
    controller.abort(new Error('stopping'))
    await expect(running).rejects.toThrow('stopping')
  })

  it('is brief where the certificate was valid before: the server answers without a handshake', async () => {
    const { certPem, keyPem } = await createTlsFixture()
    const { caPem: otherCa } = await createTlsFixture()
    let handshakes = 0
    const server = createTlsServer({ cert: certPem, key: keyPem }, () => {
      handshakes += 1
    })
    const failed = once(server, 'tlsClientError')
    await preflight(await listen(server), { caCert: otherCa }).run(signal, 'brief')
    expect(String(await failed)).toMatch(/protocol/i)
    expect(handshakes).toBe(0)
    expect(getEventListeners(signal, 'abort')).toEqual([])
  })

  it.each([
    ['says nothing', (socket: Socket) => socket.resume(), /did not answer within 1 s \(it accepts/],
    ['hangs up', (socket: Socket) => socket.resume().end(), /localhost/],
    ['resets', (socket: Socket) => socket.resetAndDestroy(), /localhost/],
  ])('is not through briefly when the server %s', async (_what, serve, detail) => {
    const address = await listen(
      createTcpServer((socket) => {
        socket.on('error', () => {})
        serve(socket)
      }),
    )
    const timings = { dnsMs: 30_000, connectMs: 30_000, tlsMs: 300 }
    const error = await preflight(address, { timings })
      .run(signal, 'brief')
      .catch((reason) => reason)
    expect(error.problem).toMatchObject({
      reason: 'network',
      detail: expect.stringMatching(detail),
    })
  })

  it('does not start without a port', () => {
    expect(() => preflight('gateway.lan')).toThrow(StartError)
  })
})

describe('a certificate that does not hold today', () => {
  async function serveFor(fromDays: number, toDays: number) {
    const notBefore = new Date(Date.now() + fromDays * DAY_MS)
    const notAfter = new Date(Date.now() + toDays * DAY_MS)
    const { caPem, certPem, keyPem } = await createTlsFixture({ notBefore, notAfter })
    return { address: await serveTls({ cert: certPem, key: keyPem }), caCert: caPem }
  }
  const says = (days: number) => async () => Date.now() + days * DAY_MS

  it.each([
    ['expired', -20, -10, 'the service agrees with our clock', says(0), 'tls'],
    ['expired', -20, -10, 'the service lives in its time', says(-15), 'clock'],
    ['expired', -20, -10, 'the service cannot be asked', async () => undefined, 'tls'],
    ['not valid yet', 10, 20, 'the service agrees with our clock', says(0), 'tls'],
    ['not valid yet', 10, 20, 'the service lives in its time', says(15), 'clock'],
    ['not valid yet', 10, 20, 'the service cannot be asked', async () => undefined, 'clock'],
  ])('%s (%i to %i days): %s => %s', async (_what, from, to, _when, serviceDate, reason) => {
    const { address, caCert } = await serveFor(from, to)
    const found = await problem(address, { caCert, serviceDate })
    expect(found.reason).toBe(reason)
    expect(found.remedy).toMatch(reason === 'clock' ? /clock/ : /certificate/)
    // The hosted service's CA is unknown here, but its dates are.
    expect((await problem(address, { serviceDate })).reason).toBe(reason)
  })
})

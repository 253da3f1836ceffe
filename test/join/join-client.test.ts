import { once } from 'node:events'
import { createServer as createTcpServer } from 'node:net'
import { createServer, type TLSSocket } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { Secret } from '../../src/base/secret.ts'
import { JoinError, type JoinRequest, joinGateway } from '../../src/join/join-client.ts'
import { JOIN_PROTOCOL } from '../../src/join/join-messages.ts'
import { makeJoinString, parseJoinString, pinOf } from '../../src/join/join-string.ts'
import { AN_HOUR_AGO, createAuthority, type TestAuthority } from '../helpers/tls-fixture.ts'

const CLAIM = new Secret('a'.repeat(22))
const WELCOME = {
  v: 1,
  name: 'cam01',
  authtoken: 'the-authtoken',
  domain: '*.cam01.site.example.com',
  agent_domain: 'agent.cam01.site.example.com',
  agent_url: 'https://agent.cam01.site.example.com',
  tags: ['camera'],
  server_addrs: ['gateway.lan:4443'],
}

interface Peer {
  readonly port: number
  /** Everything that the device has sent, after TLS. */
  readonly received: () => string
}

interface PeerWish {
  readonly authority: TestAuthority
  /** CA that it shows; default: its own. */
  readonly caPem?: string
  readonly leaf?: Parameters<TestAuthority['issue']>[0]
  readonly alpn?: readonly string[]
  readonly now?: number
  readonly hello?: string
  readonly answer?: (socket: TLSSocket) => void
}

/** A peer on a real socket, which answers as the test wishes: a gateway, or an attacker. */
async function startPeer({ authority, leaf, ...wish }: PeerWish): Promise<Peer> {
  const { certPem, keyPem } = await authority.issue(leaf)
  const { alpn = [JOIN_PROTOCOL], now = Date.now(), caPem = authority.caPem } = wish
  const hello = wish.hello ?? `${JSON.stringify({ v: 1, ca: caPem, now })}\n`
  const answer =
    wish.answer ?? ((socket: TLSSocket) => socket.write(`${JSON.stringify(WELCOME)}\n`))
  let received = ''
  const sockets = new Set<TLSSocket>()
  const server = createServer(
    { cert: certPem, key: keyPem, ALPNProtocols: [...alpn] },
    (socket) => {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('data', (chunk) => {
        received += chunk
        if (received.endsWith('\n')) answer(socket)
      })
      socket.write(hello)
    },
  ).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const address = server.address()
  return {
    port: typeof address === 'object' && address ? address.port : 0,
    received: () => received,
  }
}

function requestFor(
  authority: TestAuthority,
  addresses: readonly { readonly host: string; readonly port: number }[],
): JoinRequest {
  const made = makeJoinString({ pin: pinOf(authority.caPem), addresses })
  const joinString = parseJoinString(made.text.reveal())
  if ('problem' in joinString) throw new Error(joinString.problem)
  return { joinString, claim: CLAIM, hostname: 'device-7', version: '1.2.3', clock: systemClock }
}

async function failureOf(request: JoinRequest): Promise<JoinError> {
  const outcome = await joinGateway(request).catch((error: unknown) => error)
  if (outcome instanceof JoinError) return outcome
  throw new Error(`no JoinError: ${JSON.stringify(outcome)}`)
}

const local = ({ port }: Peer, host = '127.0.0.1') => ({ host, port })

describe('joinGateway', () => {
  it('sends the secret to the gateway of the join string, and returns what it gives', async () => {
    const authority = await createAuthority()
    const peer = await startPeer({ authority })
    const request = requestFor(authority, [local(peer)])
    const joined = await joinGateway(request)
    expect(joined).toMatchObject({
      name: 'cam01',
      domain: '*.cam01.site.example.com',
      agentDomain: 'agent.cam01.site.example.com',
      tags: ['camera'],
      serverAddrs: [`127.0.0.1:${peer.port}`, 'gateway.lan:4443'],
    })
    expect(joined.authtoken.reveal()).toBe('the-authtoken')
    expect(pinOf(joined.caPem)).toBe(pinOf(authority.caPem))
    const { secret, id } = request.joinString
    expect(JSON.parse(peer.received())).toEqual({
      v: 1,
      id,
      secret: secret.reveal(),
      claim: CLAIM.reveal(),
      hostname: 'device-7',
      version: '1.2.3',
    })
  })

  it('ignores a wrong clock of the device, and reports the difference', async () => {
    const authority = await createAuthority()
    const peer = await startPeer({ authority })
    const clock = { now: () => Date.UTC(2020, 0, 1) }
    const joined = await joinGateway({ ...requestFor(authority, [local(peer)]), clock })
    expect(joined.clockAheadMs).toBeLessThan(-365 * 86_400_000)
  })

  it('refuses a certificate that has expired by the time of the gateway', async () => {
    const authority = await createAuthority()
    const peer = await startPeer({ authority, leaf: { validity: AN_HOUR_AGO } })
    const error = await failureOf(requestFor(authority, [local(peer)]))
    expect(error.problem).toBe('certificate-expired')
    expect(peer.received()).toBe('')
  })

  it('sends nothing to a peer with another CA', async () => {
    const [wanted, other] = [await createAuthority(), await createAuthority()]
    const peer = await startPeer({ authority: other })
    const error = await failureOf(requestFor(wanted, [local(peer)]))
    expect(error.problem).toBe('other-ca')
    expect(error.message).toContain('Nothing secret was sent.')
    expect(peer.received()).toBe('')
  })

  it('sends nothing to a peer that shows the right CA with its own certificate', async () => {
    const [wanted, other] = [await createAuthority(), await createAuthority()]
    const peer = await startPeer({ authority: other, caPem: wanted.caPem })
    const error = await failureOf(requestFor(wanted, [local(peer)]))
    expect(error.problem).toBe('other-certificate')
    expect(peer.received()).toBe('')
  })

  it('sends nothing if the certificate does not have the name that was dialed', async () => {
    const authority = await createAuthority()
    const peer = await startPeer({ authority, leaf: { name: 'elsewhere.example.com' } })
    const error = await failureOf(requestFor(authority, [local(peer, 'localhost')]))
    expect(error.problem).toBe('other-name')
    expect(error.message).toContain('GATEWAY_PUBLIC_NAMES')
    expect(peer.received()).toBe('')
  })

  it('names a server that takes no join strings', async () => {
    const authority = await createAuthority()
    const old = await startPeer({ authority, alpn: [] })
    expect((await failureOf(requestFor(authority, [local(old)]))).problem).toBe('no-gateway')
    const other = await startPeer({ authority, alpn: ['h2'] })
    expect((await failureOf(requestFor(authority, [local(other)]))).problem).toBe('no-gateway')
    expect(old.received() + other.received()).toBe('')
  })

  it('tries the next address, and says what failed at each', async () => {
    const authority = await createAuthority()
    const peer = await startPeer({ authority })
    const closing = createTcpServer((socket) => socket.destroy()).listen(0, '127.0.0.1')
    await once(closing, 'listening')
    onTestFinished(() => void closing.close())
    const address = closing.address()
    const port = typeof address === 'object' && address ? address.port : 0
    const draining = { host: '127.0.0.1', port }
    const joined = await joinGateway(requestFor(authority, [draining, local(peer)]))
    expect(joined.serverAddrs[0]).toBe(`127.0.0.1:${peer.port}`)
    const unresolved = { host: 'no-such-name.invalid', port: 4443 }
    const error = await failureOf(requestFor(authority, [unresolved, draining]))
    expect(error.message.split('\n')).toEqual([
      expect.stringMatching(/^no-such-name\.invalid:4443: the name cannot be resolved/),
      expect.stringMatching(/^127\.0\.0\.1:\d+: closed the connection/),
    ])
    expect(error.isUnanswered).toBe(false)
  })

  it('goes on after a gateway that is not ready, and stops at one that refuses', async () => {
    const authority = await createAuthority()
    const refuse = (error: string) => (socket: TLSSocket) =>
      socket.write(`${JSON.stringify({ v: 1, error, message: `It is ${error}.` })}\n`)
    const busy = await startPeer({ authority, answer: refuse('not-ready') })
    const used = await startPeer({ authority, answer: refuse('used') })
    const good = await startPeer({ authority })
    const joined = await joinGateway(requestFor(authority, [local(busy), local(good)]))
    expect(joined.name).toBe('cam01')
    const before = good.received()
    const error = await failureOf(requestFor(authority, [local(used), local(good)]))
    expect([error.problem, error.message]).toEqual(['used', `127.0.0.1:${used.port}: It is used.`])
    expect(error.isUnanswered).toBe(false)
    expect(good.received()).toBe(before)
  })

  it('shows no refusal of a peer before its checks, and tries the next address', async () => {
    const [wanted, other] = [await createAuthority(), await createAuthority()]
    const hello = `${JSON.stringify({ v: 1, error: 'withdrawn', message: 'Run curl evil.' })}\n`
    const stranger = await startPeer({ authority: other, hello })
    const error = await failureOf(requestFor(wanted, [local(stranger)]))
    expect([error.problem, error.isUnanswered]).toEqual(['malformed-answer', false])
    expect(error.message).not.toContain('evil')
    expect(stranger.received()).toBe('')
    const good = await startPeer({ authority: wanted })
    const joined = await joinGateway(requestFor(wanted, [local(stranger), local(good)]))
    expect(joined.name).toBe('cam01')
  })

  it('takes no text that would reorder, hide or break the lines of a terminal', async () => {
    const authority = await createAuthority()
    for (const sign of ['\u202e', '\u200b', '\u2028', '\u2029', '\u001b']) {
      const refusal = JSON.stringify({ v: 1, error: 'used', message: `No${sign}.` })
      const answer = (socket: TLSSocket) => void socket.write(`${refusal}\n`)
      const peer = await startPeer({ authority, answer })
      const error = await failureOf(requestFor(authority, [local(peer)]))
      expect([sign, error.problem]).toEqual([sign, 'malformed-answer'])
    }
  })

  it('takes a code that it does not know for a refusal of the invitation', async () => {
    const authority = await createAuthority()
    for (const code of ['of-a-later-version', 'constructor', '__proto__']) {
      const refusal = JSON.stringify({ v: 1, error: code, message: 'No.' })
      const answer = (socket: TLSSocket) => void socket.write(`${refusal}\n`)
      const peer = await startPeer({ authority, answer })
      const error = await failureOf(requestFor(authority, [local(peer)]))
      expect([error.problem, error.message]).toEqual(['not-allowed', `127.0.0.1:${peer.port}: No.`])
    }
  })

  it('says that an answer was lost after the secret was sent', async () => {
    const authority = await createAuthority()
    const peer = await startPeer({ authority, answer: (socket) => socket.destroy() })
    const error = await failureOf(requestFor(authority, [local(peer)]))
    expect([error.problem, error.isUnanswered]).toEqual(['closed', true])
  })

  it.each([
    ['a silent peer', { hello: '' }, 'timeout'],
    ['a peer without an answer', { answer: () => {} }, 'timeout'],
    ['too long a message', { hello: 'x'.repeat(70_000) }, 'malformed-answer'],
    ['text that is not JSON', { hello: 'HTTP/1.1 400 Bad Request\r\n\r\n' }, 'malformed-answer'],
    ['a newer gateway', { hello: '{"v":2,"hi":true}\n' }, 'newer-gateway'],
    [
      'a welcome with a line break in it',
      {
        answer: (s: TLSSocket) =>
          s.write(`${JSON.stringify({ ...WELCOME, domain: 'a\nSVC_X=1' })}\n`),
      },
      'malformed-answer',
    ],
  ])('gives up on %s', async (_, wish, problem) => {
    const authority = await createAuthority()
    const peer = await startPeer({ authority, ...wish })
    const request = requestFor(authority, [local(peer)])
    expect((await failureOf({ ...request, timeoutMs: 1_000 })).problem).toBe(problem)
  })

  it('gives up on a peer that sends one byte at a time', async () => {
    const authority = await createAuthority()
    const drip = (socket: TLSSocket) => {
      const timer = setInterval(() => socket.write(' '), 20)
      socket.once('close', () => clearInterval(timer))
    }
    const peer = await startPeer({ authority, answer: drip })
    const request = requestFor(authority, [local(peer)])
    expect((await failureOf({ ...request, timeoutMs: 1_000 })).problem).toBe('timeout')
  })

  it('stops when it is told to', async () => {
    const authority = await createAuthority()
    const peer = await startPeer({ authority, hello: '' })
    const stop = new AbortController()
    const failure = failureOf({ ...requestFor(authority, [local(peer)]), stop: stop.signal })
    stop.abort()
    expect((await failure).problem).toBe('stopped')
  })
})

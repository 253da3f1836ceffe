import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  formatListenAddress,
  hostsFileHasLocalhost,
  InheritedSockets,
  isLoopback,
  listenProblem,
  localhostLookup,
  parseListenAddress,
  parsePortRange,
} from '../../src/base/listen-address.ts'

describe('listen addresses', () => {
  it.each([
    ['127.0.0.1:8080', '127.0.0.1', 8080],
    ['localhost:0', 'localhost', 0],
    ['[::1]:443', '::1', 443],
  ])('%s is read and written alike', (text, host, port) => {
    expect(parseListenAddress(text)).toEqual({ host, port })
    expect(formatListenAddress({ host, port })).toBe(text)
  })

  it.each(['', '8080', ':8080', 'host', 'host:', 'host:70000', 'a:b:1', '::1:80', 'x y:1'])(
    'refuses %j',
    (text) => {
      expect(parseListenAddress(text)).toBeUndefined()
    },
  )

  it('knows which hosts only this machine can reach', () => {
    expect(['127.0.0.1', '::1', 'localhost', '127.9.9.9'].every(isLoopback)).toBe(true)
    expect(['0.0.0.0', '10.0.0.1', '::', 'example.com'].some(isLoopback)).toBe(false)
  })
})

describe('port ranges', () => {
  it.each([
    ['0.0.0.0:20000-20100', { host: '0.0.0.0', first: 20_000, last: 20_100 }],
    ['gw.example.com:22', { host: 'gw.example.com', first: 22, last: 22 }],
    ['[::1]:1-2', { host: '::1', first: 1, last: 2 }],
    ['0.0.0.0:20100-20000', undefined],
    ['0.0.0.0:0-5', undefined],
    ['0.0.0.0:60000-70000', undefined],
    ['0.0.0.0:1-10001', undefined],
    ['0.0.0.0', undefined],
    ['20000-20100', undefined],
  ])('%j is %j', (text, range) => {
    expect(parsePortRange(text)).toEqual(range)
  })
})

describe('localhostLookup', () => {
  it.each([true, false])('leads to loopback, with a choice of addresses: %s', async (choice) => {
    const server = createServer((socket) => socket.end('here'))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo
    const socket = connect({
      // Its last label is never given to anybody (RFC 6761 section 6.4).
      host: 'localhost.invalid',
      port,
      lookup: localhostLookup,
      autoSelectFamily: choice,
    })
    const [said] = await once(socket, 'data')
    expect(String(said)).toBe('here')
  })
})

describe('hostsFileHasLocalhost', () => {
  it.each([
    ['127.0.0.1 localhost\n', true],
    ['127.0.0.1\tlocalhost localhost.localdomain\n::1 ip6-localhost localhost # both\n', true],
    ['', false],
    ['127.0.1.1 device\n', false],
    ['127.0.0.1 localhost.localdomain\n', false],
    ['# 127.0.0.1 localhost\n', false],
    ['127.0.0.1 localhost\n192.168.1.5 localhost\n', false],
  ])('reads %j', (text, isThere) => {
    const folder = mkdtempSync(join(tmpdir(), 'hosts-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    writeFileSync(join(folder, 'hosts'), text)
    expect(hostsFileHasLocalhost(join(folder, 'hosts'))).toBe(isThere)
  })

  it('does without the file', () => {
    expect(hostsFileHasLocalhost('/nowhere/hosts')).toBe(false)
  })
})

it('gives each socket once, to whoever means where it listens', () => {
  const sockets = new InheritedSockets(
    new Map([
      ['127.0.0.1:80', 3],
      ['0.0.0.0:443', 4],
      ['[::1]:8070', 5],
    ]),
  )
  expect(sockets.claim({ host: 'localhost', port: 80 })).toEqual({
    host: 'localhost',
    port: 80,
    fd: 3,
  })
  expect(sockets.claim({ host: '127.0.0.1', port: 80 }).fd).toBeUndefined()
  expect(sockets.claim({ host: '::', port: 443 }).fd).toBe(4)
  expect(sockets.claim({ host: '127.0.0.1', port: 8070 }).fd).toBeUndefined()
  expect(sockets.claim({ host: '::1', port: 8070 }).fd).toBe(5)
  expect(sockets.closeRest()).toEqual([])
})

it.each([
  ['EACCES', 'GATEWAY_HTTP_LISTEN', true],
  ['EACCES', 'GATEWAY_PEER_LISTEN', false],
  ['EADDRINUSE', 'GATEWAY_HTTP_LISTEN', false],
])('says of %s on %s how systemd opens the address: %s', (code, setting, isNamed) => {
  const problem = listenProblem(Object.assign(new Error(), { code }), setting)
  expect(problem.includes('sudo device-agent service install --gateway')).toBe(isNamed)
  expect(problem).toMatch(new RegExp(`set ${setting} to another address$`))
})

it('takes none that are meant for another process, and leaves nothing for a child', () => {
  const environment = { LISTEN_PID: '1', LISTEN_FDS: '2', LISTEN_FDNAMES: 'a:b', PATH: '/bin' }
  const sockets = InheritedSockets.fromEnvironment(environment, 2)
  expect(environment).toEqual({ PATH: '/bin' })
  expect(sockets.closeRest()).toEqual([])
})

describe('what a service manager passes', () => {
  /** Sockets that listen in this process, as if they had been passed from descriptor 3 on. */
  async function passed(hosts: readonly string[]) {
    const servers = hosts.map((host) => createServer().listen(0, host))
    await Promise.all(servers.map((server) => once(server, 'listening')))
    const fds = servers.map(
      (server) => (server as unknown as { _handle: { fd: number } })._handle.fd,
    )
    onTestFinished(() => {
      for (const server of servers) server.close()
    })
    const environment = { LISTEN_PID: '7', LISTEN_FDS: String(Math.max(...fds) - 2) }
    const sockets = InheritedSockets.fromEnvironment(environment, 7)
    const ports = servers.map((server) => (server.address() as AddressInfo).port)
    return { sockets, fds, ports }
  }

  it.each(['127.0.0.1', '::1'])('is known by where it listens: %s', async (host) => {
    const { sockets, fds, ports } = await passed([host])
    const [port = 0] = ports
    expect(sockets.claim({ host, port })).toEqual({ host, port, fd: fds[0] })
    expect(sockets.claim({ host, port })).toEqual({ host, port })
  })

  it('is told apart, and one that listens everywhere is known by both names', async () => {
    const { sockets, fds, ports } = await passed(['127.0.0.1', '0.0.0.0', '::'])
    const [own = 0, everywhere = 0, both = 0] = ports
    expect(sockets.claim({ host: '0.0.0.0', port: own }).fd).toBeUndefined()
    expect(sockets.claim({ host: '::', port: everywhere }).fd).toBe(fds[1])
    expect(sockets.claim({ host: '0.0.0.0', port: both }).fd).toBe(fds[2])
    expect(sockets.claim({ host: 'localhost', port: own }).fd).toBe(fds[0])
  })
})

import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { InheritedSockets } from '../../../src/base/net/inherited-sockets.ts'

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

it('takes none that are meant for another process, and leaves nothing for a child', () => {
  const environment = { LISTEN_PID: '1', LISTEN_FDS: '2', LISTEN_FDNAMES: 'a:b', PATH: '/bin' }
  const sockets = InheritedSockets.take(environment, 2)
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
    const sockets = InheritedSockets.take(environment, 7)
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

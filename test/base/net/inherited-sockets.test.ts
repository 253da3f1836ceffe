import { expect, it } from 'vitest'
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

import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import type { Listener, Session } from '@ngrok/ngrok'
import { onTestFinished } from 'vitest'
import { withDeadline } from '../../src/base/deadline.ts'
import { inTime } from './running-gateway.ts'

export interface TcpService {
  readonly port: number
  /** Connections so far, those that are over among them. */
  readonly sockets: readonly Socket[]
  readonly server: Server
}

/** A service that does with each connection what it is told; half-open ones stay so. */
export async function startTcpService(serve: (socket: Socket) => void): Promise<TcpService> {
  const sockets: Socket[] = []
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket)
    socket.on('error', () => {})
    serve(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { port: (server.address() as AddressInfo).port, sockets, server }
}

export interface TcpWish {
  readonly address?: string
  readonly policy?: object
  readonly to?: number
}

/** Opens a TCP endpoint that leads to a local port; closed with the running test. */
export async function bindTcp(session: Session, { address, policy, to = 1 }: TcpWish = {}) {
  const builder = session.tcpEndpoint()
  if (address !== undefined) builder.remoteAddr(address)
  if (policy) builder.trafficPolicy(JSON.stringify(policy))
  const listener: Listener = await inTime(
    builder.listenAndForward(`tcp://127.0.0.1:${to}`) as unknown as Promise<Listener>,
  )
  onTestFinished(() => withDeadline(listener.close(), 300, 'listener.close').catch(() => {}))
  return listener
}

export const addressOf = (listener: Listener) => (listener.url() ?? '').replace('tcp://', '')

/** A visitor of an address; what goes wrong shows in `end`. */
export function visit(address: string): Socket {
  const { hostname, port } = new URL(`tcp://${address}`)
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true })
  socket.on('error', () => {})
  onTestFinished(() => {
    socket.destroy()
  })
  return socket
}

/** All that comes until the end; `broken` when it came to none. */
export async function readAll(socket: Socket): Promise<string> {
  let text = ''
  socket.on('data', (chunk) => {
    text += chunk
  })
  return new Promise((resolve) => {
    socket.once('end', () => resolve(text))
    socket.once('close', () => resolve(`${text}broken`))
  })
}

import { once } from 'node:events'
import { createServer as createHttpServer, type RequestListener, type Server } from 'node:http'
import { type AddressInfo, createServer, type Server as Listener, type Socket } from 'node:net'
import { onTestFinished } from 'vitest'

/** `refuses`: nobody listens while it is full. `closes`: it takes each connection, and closes those above. */
export type Weakness = 'refuses' | 'closes'

export interface WeakService {
  readonly url: string
  /** The most connections at once that it has served. */
  readonly most: () => number
  /** Connections that it has turned away; those that nobody took are not among them. */
  readonly turnedAway: () => number
}

/** A device's service that takes so many connections at once. It is closed with the running test. */
export async function startWeakService(
  max: number,
  weakness: Weakness,
  answer: RequestListener,
): Promise<WeakService> {
  const http: Server = createHttpServer({ keepAliveTimeout: 60_000 }, answer)
  http.on('upgrade', (_request, socket) => {
    socket.on('error', () => {})
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n')
  })
  const open = new Set<Socket>()
  let [most, turnedAway, port] = [0, 0, 0]
  /** Undefined while nobody listens. */
  let listener: Listener | undefined
  const listen = () => {
    listener = createServer(take).listen({ port, host: '127.0.0.1' })
    return listener
  }
  const take = (socket: Socket) => {
    socket.on('error', () => {})
    if (open.size >= max) {
      turnedAway += 1
      socket.resetAndDestroy()
      return
    }
    open.add(socket)
    most = Math.max(most, open.size)
    if (weakness === 'refuses' && open.size === max) {
      listener?.close()
      listener = undefined
    }
    socket.once('close', () => {
      open.delete(socket)
      if (!isOver && !listener) listen()
    })
    http.emit('connection', socket)
  }
  let isOver = false
  const first = listen()
  await once(first, 'listening')
  port = (first.address() as AddressInfo).port
  onTestFinished(() => {
    isOver = true
    listener?.close()
    for (const socket of open) socket.destroy()
  })
  return {
    url: `http://127.0.0.1:${port}`,
    most: () => most,
    turnedAway: () => turnedAway,
  }
}

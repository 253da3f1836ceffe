import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'

export type Behaviour = (socket: Socket) => void

/** A service that becomes another one while it keeps its port. */
export class FickleService {
  readonly #sockets = new Set<Socket>()
  #server: Server | undefined
  #behaviour: Behaviour
  #port = 0

  constructor(behaviour: Behaviour) {
    this.#behaviour = behaviour
  }

  get port(): number {
    return this.#port
  }

  async start(): Promise<void> {
    this.#server = createServer((socket) => {
      this.#sockets.add(socket.on('error', () => {}))
      socket.once('close', () => this.#sockets.delete(socket))
      this.#behaviour(socket)
    }).listen(this.#port, '127.0.0.1')
    await once(this.#server, 'listening')
    this.#port = (this.#server.address() as AddressInfo).port
  }

  /** Connections that are open end; without a behaviour nobody is there. */
  async become(behaviour: Behaviour | undefined): Promise<void> {
    if (behaviour === undefined) return this.stop()
    this.#behaviour = behaviour
    if (!this.#server) return this.start()
    this.#hangUp()
  }

  async stop(): Promise<void> {
    const server = this.#server
    this.#server = undefined
    if (!server) return
    server.close()
    this.#hangUp()
    await once(server, 'close')
  }

  #hangUp(): void {
    for (const socket of this.#sockets) socket.destroy()
  }
}

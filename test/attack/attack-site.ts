import { once } from 'node:events'
import { createServer as createHttpServer, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuMs, residentMb } from '../../bench/tools.ts'
import type { StatusView } from '../../src/api/status-view.ts'
import { Site } from '../helpers/site.ts'
import type { Attack } from './attack.ts'

export const FILE_BYTES = 20_000_000
const PIECE = Buffer.alloc(50_000, 'x')
/** The first burst is over when less is sent, and less time spent on it, in each of three seconds. */
const CALM_BYTES = 1_000_000
const CALM_CPU_MS = 80
const CALM_S = 3
const CALM_WITHIN_S = 60
const READ_BYTES = 512
const READY_WITHIN_MS = 30_000

/** The tunnel that is attacked, one beside it on the same device, and the agent's own domain. */
export const ATTACKED = 'attacked.site.localhost'
export const BESIDE = 'beside.site.localhost'
export const AGENT = 'agent.site.localhost'
/** Where those come from who have nothing to do with the attack. */
export const BYSTANDER = '127.0.0.99'

/** Gateway and agent of the built program, a process each, and a device's service in this one. */
export class AttackSite {
  readonly site: Site
  readonly #servers: Server[]
  readonly #sockets = new Set<Socket>()
  #servedBytes = 0

  private constructor(site: Site, servers: Server[]) {
    this.site = site
    this.#servers = servers
  }

  static async start(
    folder: string,
    { env, gateway }: Pick<Attack, 'env' | 'gateway'>,
  ): Promise<AttackSite> {
    const programs = gateway ? { gateway } : {}
    const site = await Site.start(folder, { AGENT_DOMAIN: AGENT, ...env }, programs)
    const attackSite = new AttackSite(site, [])
    const port = await attackSite.serveWord()
    for (const host of [ATTACKED, BESIDE]) await attackSite.tunnel(host, port)
    await attackSite.#ready()
    return attackSite
  }

  get ingress(): { readonly host: string; readonly port: number } {
    const { hostname, port } = new URL(this.site.ready.ingress_http)
    return { host: hostname, port: Number(port) }
  }

  /** Brings a tunnel without any policy online. */
  async tunnel(host: string, port: number): Promise<void> {
    const answer = await this.site.create(host, port, { on_http_request: [] })
    if (!answer.ok) throw new Error(`no tunnel ${host}: ${answer.status} ${await answer.text()}`)
  }

  /** The usual service once more; answers its port. */
  serveWord(): Promise<number> {
    return this.serve(this.#createService())
  }

  /** Listens until the site stops; answers the port. */
  async serve(server: Server): Promise<number> {
    this.#servers.push(server)
    server.on('connection', (socket: Socket) => this.#keep(socket))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    return (server.address() as AddressInfo).port
  }

  /**
   * A visitor's connection from an address, on which a request was sent. It reads 512 bytes, and as
   * many with each `resume()`. One that is refused closes.
   */
  request(host: string, path: string, from: string): Socket {
    const buffer = Buffer.alloc(READ_BYTES)
    const callback = (bytes: number) => {
      if (buffer.toString('latin1', 0, bytes).startsWith('HTTP/1.1 503')) socket.destroy()
      return false
    }
    const onread = { buffer, callback }
    const socket = connect({ ...this.ingress, localAddress: from, onread })
    this.#keep(socket)
    socket.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
    return socket
  }

  /** Since when the agent has the link that it has, and what it says of itself. */
  async status(): Promise<Pick<StatusView, 'link' | 'verdict'>> {
    const answer = await this.site.call('GET', '/status')
    return (await answer.json()) as StatusView
  }

  /** Resident memory of the gateway in MB. */
  get gatewayMb(): number {
    return residentMb(this.site.gateway.pid)
  }

  /**
   * Resolves when the buffers of the system are full that lie between the service and those who do
   * not read: megabytes for each connection on loopback, which no network would take at once.
   */
  async calm(): Promise<void> {
    let calmS = 0
    for (let second = 0; second < CALM_WITHIN_S && calmS < CALM_S; second += 1) {
      const [bytes, ms] = [this.#servedBytes, this.#cpuMs]
      await sleep(1_000)
      const isCalm = this.#servedBytes - bytes < CALM_BYTES && this.#cpuMs - ms < CALM_CPU_MS
      calmS = isCalm ? calmS + 1 : 0
    }
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    for (const server of this.#servers) server.close()
    await this.site.stop()
  }

  /** `/file` answers 20 MB, `/hang` never, everything else a word. */
  #createService(): Server {
    return createHttpServer((request, response) => {
      if (request.url === '/hang') return
      if (request.url === '/file') this.#sendFile(response, FILE_BYTES)
      else response.end('hello')
    })
  }

  #sendFile(response: ServerResponse, bytes: number): void {
    let left = bytes
    while (left > 0) {
      left -= PIECE.length
      this.#servedBytes += PIECE.length
      if (response.write(PIECE)) continue
      response.once('drain', () => this.#sendFile(response, left))
      return
    }
    response.end()
  }

  /** Processor time of gateway and agent so far. */
  get #cpuMs(): number {
    return cpuMs(this.site.gateway.pid) + cpuMs(this.site.agent.pid)
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => this.#sockets.delete(socket))
  }

  /** Resolves when the agent has reached itself. */
  async #ready(): Promise<void> {
    const until = performance.now() + READY_WITHIN_MS
    for (;;) {
      const answer = await this.site.call('GET', '/readyz')
      if (answer.ok) return
      if (performance.now() > until) throw new Error(`not ready: ${await answer.text()}`)
      await sleep(50)
    }
  }
}

/** A service that takes connections, says nothing, and does not notice when they end. */
export function createDeafService(): Server {
  return createServer({ allowHalfOpen: true }, (socket) => socket.resume())
}

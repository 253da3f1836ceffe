import { once } from 'node:events'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import type { ListenAddress } from '../../src/base/listen-address.ts'
import { ChaosProxy } from '../helpers/chaos-proxy.ts'

/** One node as its neighbours reach it. */
export interface PeerPlace {
  /** Where it listens itself. */
  readonly listen: ListenAddress
  /** Where the others connect: a proxy. */
  readonly address: ListenAddress
}

/**
 * A proxy for each ordered pair of nodes. All nodes know a node by one address; who connects there is
 * told by the process that owns the other end of the connection.
 */
export class PeerWays {
  readonly #servers: Server[] = []
  /** By the node that connects, then by the one that it connects to. */
  readonly #ways: ChaosProxy[][]
  readonly #pidOf: (node: number) => number

  private constructor(ways: ChaosProxy[][], pidOf: (node: number) => number) {
    this.#ways = ways
    this.#pidOf = pidOf
  }

  static async open(
    places: readonly PeerPlace[],
    pidOf: (node: number) => number,
  ): Promise<PeerWays> {
    const ways = await Promise.all(
      places.map(() => Promise.all(places.map(({ listen }) => ChaosProxy.open(listen)))),
    )
    const all = new PeerWays(ways, pidOf)
    for (const [to, { address }] of places.entries()) {
      const options = { allowHalfOpen: true, noDelay: true, pauseOnConnect: true }
      const server = createServer(options, (socket) => all.#route(socket, to))
      server.listen(address)
      await once(server, 'listening')
      all.#servers.push(server)
    }
    return all
  }

  /** Nothing passes between the two, in either direction, until `heal()`. */
  cut(one: number, other: number): void {
    this.#ways[one]?.[other]?.blackHole('both')
    this.#ways[other]?.[one]?.blackHole('both')
  }

  /** Everything takes so long in each direction. */
  delayAlways(ms: number): void {
    for (const way of this.#ways.flat()) way.delayAlways(ms)
  }

  heal(): void {
    for (const way of this.#ways.flat()) way.heal()
  }

  async stop(): Promise<void> {
    for (const server of this.#servers) server.close()
    await Promise.all(this.#ways.flat().map((way) => way.stop()))
  }

  #route(socket: Socket, to: number): void {
    socket.on('error', () => {})
    const from = this.#ways.findIndex((_, node) => owns(this.#pidOf(node), socket))
    const way = this.#ways[from]?.[to]
    if (!way) return void socket.destroy()
    way.take(socket)
    socket.resume()
  }
}

/** Whether a process has the other end of a connection over IPv4, by what Linux says of both. */
function owns(pid: number, { remotePort, localPort }: Socket): boolean {
  const hex = (port = 0) => port.toString(16).toUpperCase().padStart(4, '0')
  for (const line of readFileSync('/proc/net/tcp', 'latin1').split('\n').slice(1)) {
    const fields = line.trim().split(/\s+/)
    if (!fields[1]?.endsWith(`:${hex(remotePort)}`)) continue
    if (fields[2]?.endsWith(`:${hex(localPort)}`) && hasSocket(pid, fields[9])) return true
  }
  return false
}

function hasSocket(pid: number, inode: string | undefined): boolean {
  const folder = `/proc/${pid}/fd`
  try {
    return readdirSync(folder).some((fd) => {
      try {
        return readlinkSync(`${folder}/${fd}`) === `socket:[${inode}]`
      } catch {
        // It was closed meanwhile.
        return false
      }
    })
  } catch {
    // The process has ended.
    return false
  }
}

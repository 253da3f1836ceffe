import { createServer, type Server } from 'node:net'
import { StartError } from '../../base/app-error.ts'

const TRIES = 20

/** The same at all gateways of a site. */
export interface VisitorPorts {
  readonly http: number
  readonly https: number
}

/** Where the gateways of a trial listen: each on a loopback address of its own, for visitors at one port. */
export interface TrialListens extends VisitorPorts {
  readonly hosts: readonly string[]
  /** For the other gateways, one each. */
  readonly peers: readonly number[]
}

/** Ports that are free now, the usual ones if they are. Throws a StartError. */
export async function findTrialListens(count: number, usual: VisitorPorts): Promise<TrialListens> {
  const hosts = Array.from({ length: count }, (_, at) => `127.0.0.${at + 1}`)
  const http = await portOnAll(hosts, usual.http)
  const https = await portOnAll(hosts, usual.https, http)
  const peers = await Promise.all(hosts.map((host) => portOnAll([host], 0)))
  return { hosts, http, https, peers }
}

/** A port that is free on all of them, and not `taken`: the wanted one, or any. */
async function portOnAll(hosts: readonly string[], wanted: number, taken = 0): Promise<number> {
  for (let port = wanted === taken ? 0 : wanted, tries = 0; tries < TRIES; tries += 1) {
    const servers: Server[] = []
    try {
      for (const host of hosts) {
        const server = await listen(host, port)
        servers.push(server)
        const address = server.address()
        port = typeof address === 'object' && address ? address.port : port
      }
      if (port !== taken) return port
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code === 'EADDRNOTAVAIL') throw noSuchAddress(hosts)
      if (code !== 'EADDRINUSE' && code !== 'EACCES') throw error
    } finally {
      await Promise.all(servers.map(close))
    }
    port = 0
  }
  throw new StartError(`No port is free on all of ${hosts.join(', ')}. Try again.`)
}

function noSuchAddress(hosts: readonly string[]): StartError {
  return new StartError(
    `This machine needs the addresses ${hosts.join(', ')}, one per gateway. ` +
      'On macOS, add each address with `sudo ifconfig lo0 alias`.',
  )
}

function listen(host: string, port: number): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject)
    server.listen({ host, port }, () => resolve(server))
  })
}

const close = (server: Server) => new Promise((resolve) => server.close(resolve))

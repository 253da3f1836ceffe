import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A real service for the end of a tunnel. */
export interface EchoUpstream {
  readonly port: number
  readonly server: Server
  close(): Promise<void>
}

/**
 * `/bytes/N` answers N bytes, `/sha256` answers the hash of the body,
 * everything else answers what was received as JSON.
 */
export async function startEchoUpstream(name = 'device'): Promise<EchoUpstream> {
  const server = createServer((request, response) => {
    const bytes = /^\/bytes\/(\d+)$/.exec(request.url ?? '')
    if (bytes) sendBytes(response, Number(bytes[1]))
    else void echo(name, request, response)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    server,
    close: async () => {
      server.closeAllConnections()
      server.close()
    },
  }
}

async function echo(name: string, request: IncomingMessage, response: ServerResponse) {
  const hash = createHash('sha256')
  let size = 0
  for await (const chunk of request) {
    hash.update(chunk)
    size += chunk.length
  }
  const { method, url, headers } = request
  const answer = { name, method, url, headers, size, sha256: hash.digest('hex') }
  response.setHeader('content-type', 'application/json')
  response.end(JSON.stringify(answer))
}

/** Byte i of the answer is i modulo 251: a prime, so that a lost or doubled chunk shows. */
export function patternBytes(offset: number, length: number): Buffer {
  const chunk = Buffer.allocUnsafe(length)
  for (let index = 0; index < length; index += 1) chunk[index] = (offset + index) % 251
  return chunk
}

function sendBytes(response: ServerResponse, total: number) {
  response.setHeader('content-length', total)
  let sent = 0
  const write = () => {
    while (sent < total) {
      const chunk = patternBytes(sent, Math.min(65_536, total - sent))
      sent += chunk.length
      if (!response.write(chunk)) {
        response.once('drain', write)
        return
      }
    }
    response.end()
  }
  write()
}

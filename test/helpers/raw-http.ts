import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { connect as tlsConnect } from 'node:tls'
import { onTestFinished } from 'vitest'
import { eventually } from './eventually.ts'

/** A client that writes bytes as they are and keeps what comes back. */
export class RawClient {
  readonly socket: Socket
  #received: Buffer[] = []
  /** Bytes that came so far. */
  length = 0
  /** How the connection ended: an error's code, `end` for a FIN. */
  ending: string | undefined

  constructor(socket: Socket) {
    this.socket = socket
    socket.on('data', (chunk: Buffer) => {
      this.#received.push(chunk)
      this.length += chunk.length
    })
    socket.on('end', () => {
      this.ending ??= 'end'
    })
    socket.on('error', (error: NodeJS.ErrnoException) => {
      this.ending ??= error.code ?? 'error'
    })
    socket.on('close', () => {
      this.ending ??= 'close'
    })
    onTestFinished(() => {
      socket.destroy()
    })
  }

  static connect(port: number, host = '127.0.0.1'): RawClient {
    return new RawClient(connect({ port, host, allowHalfOpen: true }))
  }

  static connectTls(port: number, ca: string): RawClient {
    return new RawClient(tlsConnect({ port, host: '127.0.0.1', servername: 'localhost', ca }))
  }

  get text(): string {
    return this.bytes.toString('latin1')
  }

  get bytes(): Buffer {
    if (this.#received.length > 1) this.#received = [Buffer.concat(this.#received)]
    return this.#received[0] ?? Buffer.alloc(0)
  }

  /** The end of what came, without a look at all of it. */
  get tail(): string {
    return Buffer.concat(this.#received.slice(-2)).toString('latin1').slice(-1_000)
  }

  send(text: string): void {
    this.socket.write(Buffer.from(text, 'latin1'))
  }

  /** Waits until what came contains `part`, and answers all of it. */
  receive(part: string): Promise<string> {
    return eventually(() => {
      const { text } = this
      if (text.includes(part)) return text
      const end = JSON.stringify(text.slice(-1_000))
      throw new Error(`still waiting for ${JSON.stringify(part)}: ${end}`)
    })
  }

  /** Waits for the end of the connection and answers how it came. */
  end(): Promise<string> {
    return eventually(() => {
      if (this.ending !== undefined) return this.ending
      throw new Error(`still open: ${JSON.stringify(this.tail)}`)
    })
  }
}

/** A service that works on bare sockets; it is closed with the running test. */
export async function startRawService(onConnection: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>()
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
    onConnection(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

/**
 * A service that keeps the requests it gets, as text, and answers each complete head with the next
 * of `answers`; the last one is repeated.
 */
export async function startScriptedService(...answers: string[]) {
  const requests: string[] = []
  let connections = 0
  const port = await startRawService((socket) => {
    connections += 1
    let pending = ''
    socket.on('data', (chunk: Buffer) => {
      pending += chunk.toString('latin1')
      for (let end = pending.indexOf('\r\n\r\n'); end !== -1; end = pending.indexOf('\r\n\r\n')) {
        requests.push(pending.slice(0, end + 4))
        pending = pending.slice(end + 4)
        const answer = answers[Math.min(requests.length, answers.length) - 1] ?? ''
        socket.write(Buffer.from(answer, 'latin1'))
      }
    })
    socket.on('end', () => socket.end())
  })
  return { port, requests, connections: () => connections }
}

/** The fields of a head, names in lower case; of several the last. */
export function fieldsOf(head: string): Record<string, string> {
  const lines = head.split('\r\n\r\n')[0]?.split('\r\n').slice(1) ?? []
  return Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(':')
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()]
    }),
  )
}

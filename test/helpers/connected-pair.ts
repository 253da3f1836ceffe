import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { createServer as createTlsServer, connect as tlsConnect } from 'node:tls'
import { onTestFinished } from 'vitest'
import { createTlsFixture } from './tls-fixture.ts'

/** The two ends of one connection; both are destroyed with the running test. */
export interface ConnectedPair {
  readonly client: Duplex
  readonly server: Duplex
}

/** In memory. It copies and hangs up like a socket, which `stream.duplexPair` does not. */
export async function pipePair(): Promise<ConnectedPair> {
  const client = new PipeEnd()
  const server = new PipeEnd()
  client.join(server)
  server.join(client)
  return owned({ client, server })
}

export async function tcpPair(): Promise<ConnectedPair> {
  const listener = createServer()
  const accepted = once(listener, 'connection')
  const client = connect(await listen(listener), '127.0.0.1')
  const [server] = (await accepted) as [Socket]
  listener.close()
  return owned({ client, server })
}

export async function tlsPair(): Promise<ConnectedPair> {
  const { caPem, certPem, keyPem } = await createTlsFixture()
  const listener = createTlsServer({ cert: certPem, key: keyPem })
  const accepted = once(listener, 'secureConnection')
  const port = await listen(listener)
  const client = tlsConnect({ port, host: '127.0.0.1', servername: 'localhost', ca: caPem })
  const [server] = (await accepted) as [Socket]
  listener.close()
  return owned({ client, server })
}

/** The same connection with the roles swapped: the side that dialed serves. */
export function reversed(connectPair: () => Promise<ConnectedPair>): () => Promise<ConnectedPair> {
  return async () => {
    const { client, server } = await connectPair()
    return { client: server, server: client }
  }
}

class PipeEnd extends Duplex {
  #peer: PipeEnd | undefined
  /** The peer's write that waits until this side reads. */
  #peerDone: (() => void) | undefined

  constructor() {
    super({ allowHalfOpen: false })
  }

  join(peer: PipeEnd): void {
    this.#peer = peer
  }

  override _read(): void {
    const done = this.#peerDone
    this.#peerDone = undefined
    done?.()
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    const peer = this.#peer
    if (peer === undefined || peer.push(Buffer.from(chunk))) done()
    else peer.#peerDone = done
  }

  override _final(done: () => void): void {
    this.#peer?.push(null)
    done()
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (!this.writableFinished) this.#peer?.push(null)
    done(error)
  }
}

async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

function owned(pair: ConnectedPair): ConnectedPair {
  for (const transport of [pair.client, pair.server]) {
    transport.on('error', () => {})
    onTestFinished(() => {
      transport.destroy()
    })
  }
  return pair
}

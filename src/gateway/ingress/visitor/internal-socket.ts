import { Duplex } from 'node:stream'
import type { Connection } from '../../../policy/exchange/policy-exchange.ts'
import type { ClientSocket } from '../common/client-socket.ts'

type Done = (error?: Error | null) => void

/**
 * One end of a connection within the process that behaves like TCP. Writes wait for the reader, and each
 * direction ends separately. An end that is destroyed before its last byte resets the other. Data is never
 * delivered within the call that sent it.
 */
export class InternalSocket extends Duplex implements ClientSocket {
  readonly remoteAddress: string
  readonly remotePort: number
  readonly localAddress: string
  readonly localPort: number
  bytesRead = 0
  bytesWritten = 0
  #peer: InternalSocket | undefined
  /** Callback of the write that waits until the other end reads. */
  #blocked: Done | undefined

  /**
   * Creates both ends. At the gateway's end, the connection has the addresses of `from`, the outside client.
   */
  static pair(from: Connection): { readonly client: Duplex; readonly gateway: ClientSocket } {
    const [client, gateway] = [new InternalSocket(from), new InternalSocket(from)]
    client.#peer = gateway
    gateway.#peer = client
    // The user has already noticed the break; `close` follows.
    client.on('error', () => {})
    return { client, gateway }
  }

  private constructor({ clientIp, clientPort, serverIp, serverPort }: Connection) {
    super({ allowHalfOpen: true })
    this.remoteAddress = clientIp
    this.remotePort = clientPort
    this.localAddress = serverIp
    this.localPort = serverPort
  }

  setNoDelay(): void {}

  resetAndDestroy(): void {
    this.destroy()
  }

  override _read(): void {
    if (this.#peer) this.#peer.#goOn()
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    this.bytesWritten += chunk.length
    process.nextTick(() => {
      const peer = this.#peer
      if (!peer || peer.destroyed) {
        done(broken())
        return
      }
      peer.bytesRead += chunk.length
      this.#blocked = done
      if (peer.push(chunk)) this.#goOn()
    })
  }

  override _final(done: Done): void {
    process.nextTick(() => {
      this.#peer?.push(null)
      done()
    })
  }

  override _destroy(error: Error | null, done: Done): void {
    const peer = this.#peer
    const isWhole = this.writableFinished
    process.nextTick(() => {
      if (!isWhole) peer?.destroy(broken())
      else if (peer) peer.#goOn(broken())
    })
    done(error)
  }

  #goOn(error?: Error): void {
    const done = this.#blocked
    this.#blocked = undefined
    done?.(error)
  }
}

function broken(): Error {
  return Object.assign(new Error('the other end was closed'), { code: 'ECONNRESET' })
}

import { Duplex } from 'node:stream'
import type { ClientSocket } from '../../src/gateway/ingress/common/client-socket.ts'

/** Bytes that lie between the two ends before a write has to wait, as in the buffers of a system. */
const WIRE_BYTES = 16_384

/**
 * The gateway's end of a connection in memory. The other end is what a client does: `send`, `read`,
 * `finish`, `reset`; nothing is read unless it asks. It ends as TCP does: by a FIN behind the last
 * byte, which a `destroy` sends too, behind what was flushed; or by a reset.
 */
export class MemorySocket extends Duplex implements ClientSocket {
  readonly remoteAddress: string
  readonly remotePort = 40_000
  readonly localAddress = '192.0.2.1'
  readonly localPort = 80
  bytesRead = 0
  bytesWritten = 0
  /** What the client has read. */
  readonly received: Buffer[] = []
  receivedBytes = 0
  /** What became of the connection, as the client knows it. */
  ending: 'end' | 'reset' | undefined
  readonly #wire: Buffer[] = []
  #wireBytes = 0
  #isFinSent = false
  /** The write that waits for room. */
  #blocked: { readonly rest: Buffer; readonly done: () => void } | undefined
  readonly #unread: (Buffer | null)[] = []
  #wantsInput = false

  constructor(remoteAddress = '192.0.2.7') {
    super({ allowHalfOpen: true })
    this.remoteAddress = remoteAddress
  }

  /** Sends bytes to the gateway. */
  send(bytes: Buffer | string): void {
    this.#unread.push(Buffer.from(bytes as string, 'latin1'))
    this.#pushUnread()
  }

  /** Closes the client's side behind what it has sent. */
  finish(): void {
    this.#unread.push(null)
    this.#pushUnread()
  }

  /** Goes away without a word. */
  reset(): void {
    this.ending ??= 'reset'
    this.destroy(Object.assign(new Error('reset by the client'), { code: 'ECONNRESET' }))
  }

  /** Reads up to `bytes`; answers how many there were. */
  consume(bytes: number): number {
    if (this.ending === 'reset') return 0
    let left = bytes
    for (let first = this.#wire[0]; first && left > 0; first = this.#wire[0]) {
      const part = first.subarray(0, left)
      this.received.push(part)
      left -= part.length
      if (part.length === first.length) this.#wire.shift()
      else this.#wire[0] = first.subarray(part.length)
    }
    const taken = bytes - left
    this.#wireBytes -= taken
    this.receivedBytes += taken
    if (this.#isFinSent && this.#wireBytes === 0 && !this.#blocked) this.ending ??= 'end'
    this.#refill()
    return taken
  }

  setNoDelay(): void {}

  resetAndDestroy(): void {
    this.ending ??= 'reset'
    this.destroy()
  }

  override _read(): void {
    this.#wantsInput = true
    this.#pushUnread()
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.bytesWritten += chunk.length
    this.#blocked = { rest: chunk, done }
    this.#refill()
  }

  override _final(done: () => void): void {
    this.#isFinSent = true
    done()
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    // What was not flushed is lost, and the client sees an end behind what was.
    this.#blocked = undefined
    this.#isFinSent = true
    done(error)
  }

  #refill(): void {
    const blocked = this.#blocked
    if (!blocked) return
    const part = blocked.rest.subarray(0, WIRE_BYTES - this.#wireBytes)
    if (part.length > 0) this.#wire.push(Buffer.from(part))
    this.#wireBytes += part.length
    const rest = blocked.rest.subarray(part.length)
    this.#blocked = rest.length > 0 ? { rest, done: blocked.done } : undefined
    if (!this.#blocked) blocked.done()
  }

  #pushUnread(): void {
    while (this.#wantsInput && this.#unread.length > 0 && !this.destroyed) {
      const next = this.#unread.shift() as Buffer | null
      this.bytesRead += next?.length ?? 0
      this.#wantsInput = this.push(next)
    }
  }
}

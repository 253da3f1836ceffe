import type { TLSSocket } from 'node:tls'
import type { TransportSocket } from '../common/client-socket.ts'
import type { IngressContext } from '../common/ingress-context.ts'
import { ClientOutput } from './client-output.ts'
import { LingeringClose } from './lingering-close.ts'

export interface VisitorSocketOptions {
  readonly socket: TransportSocket
  readonly context: IngressContext
  onDrain(): void
  onClose(): void
  /** What waits for the visitor may have changed. */
  onHeld(): void
}

/** The visitor's end of a TCP connection. TLS may come to end on it, before anything is written. */
export class VisitorSocket {
  readonly #options: VisitorSocketOptions
  #socket: TransportSocket
  #output: ClientOutput
  #linger: LingeringClose

  constructor(options: VisitorSocketOptions) {
    this.#options = options
    const { socket, context, onHeld } = options
    this.#socket = socket
    this.#output = new ClientOutput(socket, context.coalescer, onHeld)
    this.#linger = new LingeringClose(socket, context.limits)
  }

  get socket(): TransportSocket {
    return this.#socket
  }

  /** Bytes that the visitor has not taken. */
  get heldBytes(): number {
    return this.#output.heldBytes
  }

  /** Bytes that it has taken, or its machine for it. */
  get takenBytes(): number {
    return this.#output.takenBytes
  }

  listen(): void {
    const socket = this.#socket
    const { onDrain, onClose } = this.#options
    socket.on('drain', () => {
      if (socket === this.#socket) onDrain()
    })
    // What went wrong with a visitor is the visitor's affair; `close` follows.
    socket.on('error', () => {})
    socket.on('close', () => {
      if (socket === this.#socket) onClose()
    })
  }

  /** TLS ends here: what counts from now on is what stands in it. */
  secure(secured: TLSSocket): void {
    const { context, onHeld } = this.#options
    this.#socket = secured
    this.#output = new ClientOutput(secured, context.coalescer, onHeld)
    this.#linger = new LingeringClose(secured, context.limits)
    this.listen()
  }

  /** Takes all bytes; false: wait for `onDrain`. */
  write(chunk: Buffer): boolean {
    return this.#output.write(chunk)
  }

  flush(): void {
    this.#output.flush()
  }

  /** Ends behind what was written. */
  end(): void {
    this.#output.end()
  }

  /** Breaks it off, so that the visitor sees that something is missing. */
  abort(): void {
    this.#socket.resetAndDestroy()
  }

  /** Looks after what was ended; `now` is monotonic. */
  sweepEnded(now: number): void {
    const verdict = this.#linger.sweep(now)
    if (verdict === 'abort') this.abort()
    else if (verdict === 'close') this.#socket.destroy()
  }
}

import { Socket, type SocketConstructorOpts } from 'node:net'
import type { Duplex } from 'node:stream'

/** Largest read of a socket, as Node has it. */
const READ_BYTES = 65_536

/** Node's handle of a socket, as far as it is used here. */
interface Handle {
  useUserBuffer?(buffer: Buffer): void
}

/** Names under which Node keeps the option `onread` of a socket. */
interface OptionNames {
  readonly buffer: symbol
  readonly callback: symbol
  readonly generator: symbol
}

/**
 * Reads sockets into one buffer, instead of new memory for each read. Node does this for sockets with the
 * option `onread`, but accepts none for the connections of a server. So the option is set here afterwards, as
 * Node's constructor sets it. Where a version of Node keeps it in another way, sockets are read as usual.
 */
export class SharedReads {
  readonly #buffer = Buffer.allocUnsafeSlow(READ_BYTES)
  readonly #names: OptionNames | undefined

  constructor(findNames = findOptionNames) {
    this.#names = findNames(this.#buffer)
  }

  /** Whether this version of Node has the way in. */
  get isPossible(): boolean {
    return this.#names !== undefined
  }

  /**
   * Calls `onBytes` with all that the socket receives from now on, in place of its event `data`. True: the
   * bytes are valid only during the call, because the next read of any socket overwrites them. Do not write an
   * empty buffer to a TLS socket in the call: Node reads the socket then.
   */
  begin(socket: Duplex, onBytes: (bytes: Buffer) => void): boolean {
    // Also for bytes that the socket holds already.
    socket.on('data', onBytes)
    if (!(socket instanceof Socket) || !this.#names) return false
    const { _handle: handle } = socket as { _handle?: Handle | null }
    if (typeof handle?.useUserBuffer !== 'function') return false
    const { buffer, callback, generator } = this.#names
    const onRead = (length: number) => {
      const bytes = this.#buffer.subarray(0, length)
      // TLS gives decrypted bytes even after a pause. They wait behind earlier bytes.
      // False stops the reads: Node starts them again after a push, also of a paused socket.
      if (socket.readableLength > 0 || socket.isPaused()) return socket.push(Buffer.from(bytes))
      onBytes(bytes)
      return true
    }
    Object.assign(socket, { [buffer]: this.#buffer, [callback]: onRead, [generator]: null })
    handle.useUserBuffer(this.#buffer)
    return true
  }
}

/** Finds the names at a socket that has the option; undefined if Node keeps it in another way. */
function findOptionNames(buffer: Buffer): OptionNames | undefined {
  const callback = () => true
  const socket = new Socket({ onread: { buffer, callback } } as SocketConstructorOpts)
  const nameOf = (description: string, value: unknown) =>
    Object.getOwnPropertySymbols(socket).find(
      (name) => name.description === description && Reflect.get(socket, name) === value,
    )
  const names = {
    buffer: nameOf('kBuffer', buffer),
    callback: nameOf('kBufferCb', callback),
    generator: nameOf('kBufferGen', null),
  }
  const isComplete = names.buffer && names.callback && names.generator
  return isComplete ? (names as OptionNames) : undefined
}

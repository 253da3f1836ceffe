import { GrowingBuffer } from '../syntax/growing-buffer.ts'

/** Maximum bytes from a client before the requested host is known. Browsers need less than 2 kB. */
export const MAX_HELLO_BYTES = 16_384

const RECORD_HEADER_BYTES = 5
const HANDSHAKE_RECORD = 22
const MESSAGE_HEADER_BYTES = 4
const CLIENT_HELLO = 1
/** The obsolete version field and the client's random number. */
const VERSION_AND_RANDOM_BYTES = 34
const SERVER_NAME = 0
const HOST_NAME = 0
const PROTOCOLS = 16
const MAX_NAME_BYTES = 255

export type HelloVerdict =
  | { readonly kind: 'partial' }
  /** More than `MAX_HELLO_BYTES`. */
  | { readonly kind: 'too-large' }
  /** No valid ClientHello. The TLS library that reads the bytes next reports the error to the client. */
  | { readonly kind: 'unreadable' }
  | ({ readonly kind: 'hello' } & Hello)

/** The parts of a ClientHello that choose the certificate. */
export interface Hello {
  /** Lower case; undefined if the client names no host. */
  readonly serverName: string | undefined
  /** Offered application protocols (RFC 7301). */
  readonly protocols: readonly string[]
}

const PARTIAL: HelloVerdict = { kind: 'partial' }
const TOO_LARGE: HelloVerdict = { kind: 'too-large' }
const UNREADABLE: HelloVerdict = { kind: 'unreadable' }

/**
 * Reads the ClientHello, the first message of a TLS client (RFC 8446 4.1.2), however it is split into chunks
 * and records. Keeps all bytes for the TLS library.
 */
export class ClientHelloReader {
  readonly #bytes = new GrowingBuffer()
  /** The message without its record headers. */
  readonly #message = new GrowingBuffer()
  /** Offset of the next record. */
  #at = 0

  /** Number of bytes received. */
  get length(): number {
    return this.#bytes.length
  }

  /** Adds a chunk and returns the verdict on all bytes so far. */
  read(chunk: Buffer): HelloVerdict {
    this.#bytes.append(chunk)
    for (;;) {
      const verdict = this.#readMessage() ?? this.#readRecord()
      if (!verdict) continue
      const isOver = verdict === PARTIAL && this.#bytes.length >= MAX_HELLO_BYTES
      return isOver ? TOO_LARGE : verdict
    }
  }

  /** Returns all received bytes and forgets them. */
  takeBytes(): Buffer {
    return this.#bytes.take()
  }

  /** Returns undefined while a record is missing. */
  #readMessage(): HelloVerdict | undefined {
    const { bytes, length } = this.#message
    if (length < MESSAGE_HEADER_BYTES) return undefined
    if (bytes[0] !== CLIENT_HELLO) return UNREADABLE
    const end = MESSAGE_HEADER_BYTES + bytes.readUIntBE(1, 3)
    if (end > MAX_HELLO_BYTES) return TOO_LARGE
    if (length < end) return undefined
    try {
      return { kind: 'hello', ...helloIn(new Reader(bytes.subarray(MESSAGE_HEADER_BYTES, end))) }
    } catch (error) {
      if (error instanceof RangeError) return UNREADABLE
      throw error
    }
  }

  /** Returns undefined after it has read another record. */
  #readRecord(): HelloVerdict | undefined {
    const { bytes, length } = this.#bytes
    const from = this.#at + RECORD_HEADER_BYTES
    if (length > this.#at && bytes[this.#at] !== HANDSHAKE_RECORD) return UNREADABLE
    if (length < from) return PARTIAL
    const size = bytes.readUInt16BE(from - 2)
    if (size === 0) return UNREADABLE
    if (length < from + size) return PARTIAL
    this.#message.append(bytes, from, from + size)
    this.#at = from + size
    return undefined
  }
}

/** Reads numbers and vectors from a message. Throws a RangeError if the message is shorter than it states. */
class Reader {
  readonly #bytes: Buffer
  #at = 0

  constructor(bytes: Buffer) {
    this.#bytes = bytes
  }

  get isEmpty(): boolean {
    return this.#at >= this.#bytes.length
  }

  readBytes(size: number): Buffer {
    const from = this.#at
    this.#at += size
    if (this.#at > this.#bytes.length)
      throw new RangeError('a message is shorter than its declared length')
    return this.#bytes.subarray(from, this.#at)
  }

  number(size: 1 | 2): number {
    return this.readBytes(size).readUIntBE(0, size)
  }

  /** Reads a length of `lengthBytes` bytes and returns as many bytes. */
  vector(lengthBytes: 1 | 2): Buffer {
    return this.readBytes(this.number(lengthBytes))
  }
}

function helloIn(hello: Reader): Hello {
  hello.readBytes(VERSION_AND_RANDOM_BYTES)
  // Session id, cipher suites and compression methods.
  hello.vector(1)
  hello.vector(2)
  hello.vector(1)
  let serverName: string | undefined
  const protocols: string[] = []
  const extensions = new Reader(hello.isEmpty ? Buffer.alloc(0) : hello.vector(2))
  while (!extensions.isEmpty) {
    const type = extensions.number(2)
    const extension = extensions.vector(2)
    if (type === SERVER_NAME) serverName ??= hostNameIn(listIn(extension))?.toLowerCase()
    else if (type === PROTOCOLS) {
      const names = listIn(extension)
      while (!names.isEmpty) protocols.push(names.vector(1).toString('latin1'))
    }
  }
  return { serverName, protocols }
}

const listIn = (extension: Buffer) => new Reader(new Reader(extension).vector(2))

/** Returns the first valid host name of the list (RFC 6066 3). */
function hostNameIn(names: Reader): string | undefined {
  while (!names.isEmpty) {
    const type = names.number(1)
    const name = names.vector(2)
    if (type === HOST_NAME && name.length <= MAX_NAME_BYTES) return name.toString('latin1')
  }
  return undefined
}

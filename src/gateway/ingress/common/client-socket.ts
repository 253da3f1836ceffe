import type { Duplex } from 'node:stream'

/** What a client's connection needs of its TCP or TLS socket. It has to allow half-open connections. */
export interface ClientSocket extends Duplex {
  readonly remoteAddress?: string | undefined
  readonly remotePort?: number | undefined
  readonly localAddress?: string | undefined
  readonly localPort?: number | undefined
  readonly bytesRead: number
  readonly bytesWritten: number
  setNoDelay(isWanted: boolean): unknown
  /** Drops what was written and not sent; the client sees a reset. TCP alone. */
  resetAndDestroy(): unknown
}

/** The same for bytes that pass by as they are: of TCP, or of a visitor of another node. */
export interface TransportSocket extends ClientSocket {
  setKeepAlive(isWanted: boolean, delayMs: number): unknown
}

import type { TLSSocket } from 'node:tls'

/** The part of Node's handle that HTTP/2 reads and writes through, past the socket's own methods. */
interface StreamHandle {
  readonly writeQueueSize?: number
  readonly readStart?: () => number
  readonly readStop?: () => number
}

const handleOf = (socket: TLSSocket) =>
  (socket as unknown as { readonly _handle: StreamHandle | null })._handle

/**
 * Reads nothing more from the network; bytes that are read already still arrive. False: Node offers
 * no way to do so. Node itself reads on after each write, so this has to be repeated.
 */
export function stopReading(socket: TLSSocket): boolean {
  const handle = handleOf(socket)
  if (typeof handle?.readStop !== 'function') return false
  handle.readStop()
  return true
}

/** Reads again, also where Node has stopped. */
export function startReading(socket: TLSSocket): void {
  handleOf(socket)?.readStart?.()
}

/** True when the system has taken all bytes that were written. */
export function isFlushed(socket: TLSSocket): boolean {
  return handleOf(socket)?.writeQueueSize === 0
}

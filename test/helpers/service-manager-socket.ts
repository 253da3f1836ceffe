import { DgramSocket } from 'node-unix-socket'

/** What services say to a service manager at `address`: a path, or an abstract name after `@`. */
export function openServiceManager(address: string): {
  readonly told: string[]
  close(): void
} {
  const told: string[] = []
  const socket = new DgramSocket()
  socket.on('data', (bytes: Buffer) => told.push(bytes.toString()))
  socket.bind(address.replace(/^@/, '\0'))
  return { told, close: () => socket.close() }
}

import { DgramSocket } from 'node-unix-socket'
import { onTestFinished } from 'vitest'

/** What services say to a service manager at `address`: a path, or an abstract name after `@`. */
export function listenAsServiceManager(address: string): string[] {
  const { told, close } = openServiceManager(address)
  onTestFinished(close)
  return told
}

/** The same for who closes it. */
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

import { onTestFinished } from 'vitest'
import { openServiceManager } from './service-manager-socket.ts'

/** What services say to a service manager at `address`, while the test runs. */
export function listenAsServiceManager(address: string): string[] {
  const { told, close } = openServiceManager(address)
  onTestFinished(close)
  return told
}

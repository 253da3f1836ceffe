import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { StartError } from '../base/app-error.ts'
import {
  formatListenAddress,
  type ListenAddress,
  listenOn,
  listenProblem,
} from '../base/listen-address.ts'

/** An address that a program is about to listen on. */
export interface WantedAddress {
  readonly listen: ListenAddress
  readonly setting: string
  /** Begin of the error, such as `Agents cannot connect`. */
  readonly failure: string
}

/** For other errors, the listeners have their own advice. */
const CHECKED = ['EADDRINUSE', 'EACCES']

/**
 * Checks before a first start that the addresses are free. So a start that fails leaves no data directory with new
 * keys. Does nothing if the directory exists. Throws a StartError.
 */
export async function checkFirstStart(
  dataDir: string,
  addresses: readonly WantedAddress[],
): Promise<void> {
  if (existsSync(dataDir)) return
  const probes: Server[] = []
  try {
    for (const { listen, setting, failure } of addresses) {
      if (listen.fd !== undefined || listen.port === 0) continue
      // A connection that stays open would delay the close.
      const probe = createServer((socket) => socket.destroy())
      try {
        await listenOn(probe, { ...listen })
        probes.push(probe)
      } catch (error) {
        if (!CHECKED.includes(String((error as NodeJS.ErrnoException).code))) continue
        throw new StartError(
          `${failure} on ${formatListenAddress(listen)}: ${listenProblem(error, setting)}.`,
          { cause: error },
        )
      }
    }
  } finally {
    // Open until here: two settings can have the same address.
    await Promise.all(probes.map((probe) => once(probe.close(), 'close')))
  }
}

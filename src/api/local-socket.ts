import { join } from 'node:path'

/** The socket of the command line, where the installed service has it. */
export const INSTALLED_SOCKET = '/run/device-agent/agent.sock'

interface Folders {
  readonly dataDir: string
  /** Made by the service manager for as long as the service runs. */
  readonly runtimeDir: string | undefined
}

/**
 * Address of the local socket: in the runtime directory for its group, else in the data directory for its
 * user.
 */
export function localSocket({ dataDir, runtimeDir }: Folders): {
  readonly socketPath: string
  readonly mode: number
} {
  if (runtimeDir === undefined) return { socketPath: join(dataDir, 'local.sock'), mode: 0o600 }
  return { socketPath: join(runtimeDir, 'agent.sock'), mode: 0o660 }
}

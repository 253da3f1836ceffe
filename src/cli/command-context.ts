import type { InheritedSockets } from '../base/listen-address.ts'
import type { Predecessor } from './reload/predecessor.ts'

/** The parts of the process that a subcommand may use. */
export interface CommandContext {
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Folder that installed services are below; default: `/`. */
  readonly root?: string
  readonly stdout: NodeJS.WritableStream
  readonly stderr: NodeJS.WritableStream
  /** Sockets that the service manager opened. */
  readonly sockets?: InheritedSockets
  /** The process that this process replaces. */
  readonly predecessor?: Predecessor | undefined
  /** Calls the listener whenever the process is asked to reload. */
  readonly onReload?: (listener: () => void) => void
  /** Fires when the process is asked to stop. */
  readonly stop: AbortSignal
}

import type { InheritedSockets } from '../base/listen-address.ts'
import type { Predecessor } from './reload/predecessor.ts'

/** What a subcommand may touch of its process. */
export interface CommandContext {
  readonly environment: Readonly<Record<string, string | undefined>>
  readonly stdout: NodeJS.WritableStream
  readonly stderr: NodeJS.WritableStream
  /** What the service manager has opened for this process. */
  readonly sockets?: InheritedSockets
  /** The process whose place this one takes. */
  readonly predecessor?: Predecessor | undefined
  /** Calls the listener whenever the process is asked to reload. */
  readonly onReload?: (listener: () => void) => void
  /** Fires when the process is asked to stop. */
  readonly stop: AbortSignal
}

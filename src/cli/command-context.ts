import type { InheritedSockets } from '../base/net/inherited-sockets.ts'

/** What a subcommand may touch of its process. */
export interface CommandContext {
  readonly environment: Readonly<Record<string, string | undefined>>
  readonly stdout: NodeJS.WritableStream
  readonly stderr: NodeJS.WritableStream
  /** What the service manager has opened for this process. */
  readonly sockets?: InheritedSockets
  /** Fires when the process is asked to stop. */
  readonly stop: AbortSignal
}

/** What a subcommand may touch of its process. */
export interface CommandContext {
  readonly environment: Readonly<Record<string, string | undefined>>
  readonly stdout: NodeJS.WritableStream
  readonly stderr: NodeJS.WritableStream
  /** Fires when the process is asked to stop. */
  readonly stop: AbortSignal
}

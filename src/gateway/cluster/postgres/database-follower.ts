import type { Clock } from '../../../base/clock.ts'
import { AutoResetEvent } from '../../../base/deferred.ts'
import { type ConnectionOptions, PostgresConnection } from './postgres-connection.ts'

/** Interval of a test statement: a connection that only listens does not notice a dead server. */
const PROBE_MS = 5_000
/** Shortest time between two polls of a cursor: every role that may connect can send notifications. */
const PAUSE_MS = 20

/** Receives the notifications of one channel. */
export interface ChannelListener {
  /** The payload has at most 8,000 bytes. */
  readonly onNotice?: (payload: string) => void
  /** Listening has started, or started again. Earlier notifications may be lost: poll now. */
  readonly onListening?: () => void
}

/**
 * The connection of a node that listens for NOTIFY. Claims and certificates are also read on it, in short
 * statements. Records are read on the connection that changes them, so that a full reload excludes changes
 * of this node. A notification is a hint: it may be lost, but it is never wrong.
 */
export class DatabaseFollower {
  readonly #clock: Clock
  readonly #listeners = new Map<string, ChannelListener>()
  readonly #stopping = new AbortController()
  readonly connection: PostgresConnection
  #probing: Promise<void> | undefined

  constructor(options: Omit<ConnectionOptions, 'prepare' | 'onNotice'>) {
    this.#clock = options.clock
    this.connection = new PostgresConnection({
      ...options,
      onNotice: (channel, payload) => this.#listeners.get(channel)?.onNotice?.(payload),
      prepare: async (statements) => {
        for (const channel of this.#listeners.keys()) await statements.query(`LISTEN ${channel}`)
        for (const { onListening } of this.#listeners.values()) onListening?.()
      },
    })
  }

  /** Listens on a channel from now on, and on each later session. The name is not escaped. */
  listen(channel: string, listener: ChannelListener): void {
    this.#listeners.set(channel, listener)
    if (!this.#probing) return
    this.connection.query(`LISTEN ${channel}`).then(
      () => listener.onListening?.(),
      // The next session listens.
      () => {},
    )
  }

  start(): void {
    this.connection.start()
    this.#probing ??= this.#probe()
  }

  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    await this.connection.stop()
    await this.#probing
  }

  /** A statement without an answer ends the session; the next session listens again. */
  async #probe(): Promise<void> {
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await this.#clock.sleep(PROBE_MS, signal).catch(() => {})
      if (!signal.aborted) await this.connection.query('SELECT 1').catch(() => {})
    }
  }
}

export interface CursorOptions {
  /** Reads what is new. Never rejects. */
  readonly poll: () => Promise<unknown>
  /** Interval of polls without a notification. */
  readonly pollMs: number
  readonly clock: Clock
}

/** Polls for the changes of other nodes: at an interval, and sooner when `wake()` is called. */
export class Cursor {
  readonly #options: CursorOptions
  readonly #wake = new AutoResetEvent()
  readonly #stopping = new AbortController()
  #polling: Promise<void> | undefined

  constructor(options: CursorOptions) {
    this.#options = options
  }

  get isRunning(): boolean {
    return this.#polling !== undefined && !this.#stopping.signal.aborted
  }

  /** Aborted by `stop()`. */
  get signal(): AbortSignal {
    return this.#stopping.signal
  }

  start(): void {
    this.#polling ??= this.#run()
  }

  /** There may be something new. */
  wake(): void {
    this.#wake.set()
  }

  /** Resolves after the last poll. */
  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    this.#wake.set()
    await this.#polling
  }

  async #run(): Promise<void> {
    const { poll, pollMs, clock } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await this.#wake.wait(clock, pollMs)
      if (!signal.aborted) await poll()
      await clock.sleep(PAUSE_MS, signal).catch(() => {})
    }
  }
}

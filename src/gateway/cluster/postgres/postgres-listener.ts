import type { DatabaseError } from './database-error.ts'
import {
  type ConnectionOptions,
  type ConnectionState,
  PostgresConnection,
} from './postgres-connection.ts'

/** A connection that only listens says nothing: whether it is alive has to be asked. */
const ASK_MS = 5_000
/** PostgreSQL's names are no longer, and ours have nothing to escape. */
const CHANNEL = /^[a-z][a-z0-9_]{0,62}$/

export interface ListenerOptions extends Omit<ConnectionOptions, 'prepare'> {
  readonly channels: readonly string[]
  /** Called for each notification; the payload has at most 8,000 bytes. */
  readonly onNotice: (channel: string, payload: string) => void
  /** Called when it listens (again): what was told before that is lost, so look for yourself. */
  readonly onListening: () => void
}

/** Hears what other sessions tell with NOTIFY. A notification is a hint: it may be lost, never wrong. */
export class PostgresListener {
  readonly #options: ListenerOptions
  readonly #connection: PostgresConnection
  readonly #stopping = new AbortController()
  #asking: Promise<void> | undefined

  constructor(options: ListenerOptions) {
    const wrong = options.channels.find((channel) => !CHANNEL.test(channel))
    if (wrong !== undefined) throw new Error(`${wrong} is not a valid channel name`)
    this.#options = options
    this.#connection = new PostgresConnection({
      ...options,
      prepare: async (statements) => {
        for (const channel of options.channels) await statements.query(`LISTEN ${channel}`)
        options.onListening()
      },
    })
  }

  get state(): ConnectionState {
    return this.#connection.state
  }

  get problem(): DatabaseError | undefined {
    return this.#connection.problem
  }

  start(): void {
    this.#connection.start()
    this.#asking ??= this.#ask()
  }

  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    await this.#connection.stop()
    await this.#asking
  }

  /** A statement that stays without an answer ends the session, and the next one listens. */
  async #ask(): Promise<void> {
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await this.#options.clock.sleep(ASK_MS, signal).catch(() => {})
      if (!signal.aborted) await this.#connection.query('SELECT 1').catch(() => {})
    }
  }
}

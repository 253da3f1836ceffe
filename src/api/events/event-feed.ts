import type { Agent } from '../../agent/agent.ts'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { Database } from '../../store/database.ts'
import { type AgentEvent, EventLog } from './event-log.ts'
import { type Snapshot, StatusChanges } from './status-changes.ts'

/** Changes are looked for no more often. */
const POLL_STEP_MS = 100
/** With many tunnels each look is work: it may take the n-th part of the time. */
const POLL_SHARE = 20
/** Interval of storage checks: the storage does not report faults itself. */
const STORAGE_MS = 10_000

export interface EventFeedOptions {
  readonly agent: Pick<Agent, 'list' | 'status' | 'onChange'>
  readonly database: Database
  readonly version: string
  readonly clock: Clock
  readonly log: Logger
}

/** A listener for events. */
export interface Subscriber {
  onEvent(event: AgentEvent): void
  /** The agent stops. */
  onEnd(): void
}

/** Turns status changes of the agent into events, and passes them to subscribers. */
export class EventFeed {
  readonly #options: EventFeedOptions
  readonly #log: EventLog
  readonly #subscribers = new Set<Subscriber>()
  readonly #stopping = new AbortController()
  #changes: StatusChanges | undefined
  #unfollow: (() => void) | undefined
  #isLooking = false
  /** No look before this, monotonic. */
  #restsUntil = Number.NEGATIVE_INFINITY
  readonly #counts = new Map<string, number>()

  constructor(options: EventFeedOptions) {
    this.#options = options
    this.#log = new EventLog(options)
  }

  /** To be called when the tunnels are restored: that they come online is news, that they are there is not. */
  start(): void {
    const { agent, version } = this.#options
    this.#changes = new StatusChanges(this.#snapshot())
    this.#tell('agent.started', { version })
    this.#unfollow = agent.onChange(() => this.#lookSoon())
    void this.#watchStorage()
  }

  stop(): void {
    if (this.#stopping.signal.aborted) return
    this.#poll()
    this.#stopping.abort()
    this.#unfollow?.()
    for (const subscriber of this.#subscribers) subscriber.onEnd()
    this.#subscribers.clear()
    this.#log.stop()
  }

  get subscribers(): number {
    return this.#subscribers.size
  }

  /** How many events of a type there were since the start. */
  countOf(type: string): number {
    return this.#counts.get(type) ?? 0
  }

  /** Kept events after an id. */
  after(id: number): ReturnType<EventLog['after']> {
    return this.#log.after(id)
  }

  /** Returns how to stop listening. */
  subscribe(subscriber: Subscriber): () => void {
    this.#subscribers.add(subscriber)
    return () => this.#subscribers.delete(subscriber)
  }

  #lookSoon(): void {
    if (this.#isLooking || this.#stopping.signal.aborted) return
    this.#isLooking = true
    const { clock } = this.#options
    const waitMs = Math.max(0, this.#restsUntil - clock.monotonic())
    const look = () => {
      this.#isLooking = false
      this.#poll()
    }
    clock.sleep(waitMs, this.#stopping.signal).then(look, () => {})
  }

  #poll(): void {
    if (!this.#changes || this.#stopping.signal.aborted) return
    const { clock, log } = this.#options
    const begunAt = clock.monotonic()
    try {
      for (const { type, data } of this.#changes.changesIn(this.#snapshot())) this.#tell(type, data)
    } catch (error) {
      log.warn({ err: error }, 'cannot detect changes, retrying with the next change')
    }
    const tookMs = clock.monotonic() - begunAt
    this.#restsUntil = begunAt + Math.max(POLL_STEP_MS, POLL_SHARE * tookMs)
  }

  #tell(type: AgentEvent['type'], data: AgentEvent['data']): void {
    const event = this.#log.append({ type, data })
    this.#counts.set(type, this.countOf(type) + 1)
    for (const subscriber of [...this.#subscribers]) subscriber.onEvent(event)
  }

  async #watchStorage(): Promise<void> {
    const { clock, database } = this.#options
    const { signal } = this.#stopping
    let { fault } = database
    for (;;) {
      await clock.sleep(STORAGE_MS, signal).catch(() => {})
      if (signal.aborted) return
      if (database.fault !== fault) this.#poll()
      fault = database.fault
    }
  }

  #snapshot(): Snapshot {
    const { agent, database } = this.#options
    const { link, defaultPolicy } = agent.status()
    return { tunnels: agent.list(), link, defaultPolicy, storage: { fault: database.fault } }
  }
}

import type { EventStore, GatewayEvent } from '../../records/event-store.ts'

/** Events that become notices in one transaction. */
const BATCH = 500

/** Reads the log in batches. Channels with the same position share a batch. */
export class EventBatches {
  readonly #events: EventStore
  #last:
    | { readonly from: number; readonly newest: number; readonly batch: GatewayEvent[] }
    | undefined

  constructor(events: EventStore) {
    this.#events = events
  }

  /** Events after `from`, oldest first. */
  after(from: number): readonly GatewayEvent[] {
    const { newest } = this.#events
    if (this.#last?.from !== from || this.#last.newest !== newest) {
      this.#last = { from, newest, batch: this.#events.after(from, BATCH) }
    }
    return this.#last.batch
  }

  /** Sequence of an account's newest event that was removed; 0 if there is none. */
  newestRemovedOf(ownerId: string): number {
    return this.#events.newestRemovedOf(ownerId)
  }
}

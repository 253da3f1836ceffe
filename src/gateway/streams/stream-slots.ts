import { type Clock, systemClock } from '../../base/clock.ts'
import type { Session } from '../../muxado/session.ts'
import type { NoStreamReason, ProxyStream, StreamWaiter } from './proxy-stream.ts'

export interface StreamSlotsLimits {
  /** How long an unused stream is kept; below the keep-alive of common servers (Node: 5 s). */
  readonly idleMs: number
  /** How long an exchange may wait for a stream. */
  readonly queueMs: number
  /** How many exchanges may wait at once. */
  readonly queueLength: number
}

export const STREAM_SLOTS_LIMITS: StreamSlotsLimits = {
  idleMs: 4_000,
  queueMs: 30_000,
  queueLength: 4_096,
}

export interface StreamSlotsOptions {
  readonly session: Session
  readonly clock?: Clock
  readonly limits?: Partial<StreamSlotsLimits>
}

/** One of those that share the slots. */
export interface SlotUser {
  /** Opens a stream at once; undefined when there is no slot, or no session. */
  open(clientAddr: string): ProxyStream | undefined
  /** The tick since which its oldest idle stream is unused; infinite when there is none. */
  readonly oldestIdle: number
  retireOldest(): void
  /** Retires what is idle since `tick` or longer. */
  retireIdle(tick: number): void
}

interface Waiting {
  readonly user: SlotUser
  readonly clientAddr: string
  readonly until: number
}

/** How often idle streams and waiting exchanges are looked at. */
const TICK_MS = 500

/**
 * The stream budget of one agent session, shared by the pools of its endpoints; all but `close()` is
 * theirs to call. The SDK's session dies silently above its limit, so who finds no slot waits in one
 * line, first come first served.
 */
export class StreamSlots {
  readonly session: Session
  readonly #clock: Clock
  readonly #limits: StreamSlotsLimits
  readonly #users = new Set<SlotUser>()
  readonly #queue = new Map<StreamWaiter, Waiting>()
  readonly #closing = new AbortController()
  #isTicking = false
  #isAwaitingSlot = false
  #ticks = 0

  constructor({ session, clock = systemClock, limits }: StreamSlotsOptions) {
    this.session = session
    this.#clock = clock
    this.#limits = { ...STREAM_SLOTS_LIMITS, ...limits }
  }

  /** How many exchanges may wait at once. */
  get queueLength(): number {
    return this.#limits.queueLength
  }

  /** Exchanges that wait for a stream. */
  get waiting(): number {
    return this.#queue.size
  }

  /** Counts up while a stream is idle or somebody waits. */
  get tick(): number {
    return this.#ticks
  }

  /** Opens a stream of a user, as soon as there is a slot. */
  request(user: SlotUser, clientAddr: string, waiter: StreamWaiter): void {
    if (this.#closing.signal.aborted) {
      waiter.onNoStream('session-over')
    } else if (this.#queue.size === 0 && this.session.freeSlots > 0) {
      this.#open(user, clientAddr, waiter)
    } else if (this.#queue.size >= this.#limits.queueLength) {
      waiter.onNoStream('queue-full')
    } else {
      const until = this.#clock.monotonic() + this.#limits.queueMs
      this.#queue.set(waiter, { user, clientAddr, until })
      this.#evictOldest()
      this.#awaitSlot()
      this.#startTicking()
    }
  }

  /** Takes a waiter out of the line; nothing is called any more. */
  cancel(waiter: StreamWaiter): void {
    this.#queue.delete(waiter)
  }

  /**
   * Finds a use for a stream that a user has back: who is first in line gets it when it waits for
   * the same user, else the slot. True when the user may keep it.
   */
  offer(stream: ProxyStream, user: SlotUser): boolean {
    if (this.#closing.signal.aborted) {
      stream.retire()
      return false
    }
    const [first] = this.#queue
    if (!first) {
      this.#users.add(user)
      this.#startTicking()
      return true
    }
    const [waiter, waiting] = first
    if (waiting.user === user) {
      this.#queue.delete(waiter)
      waiter.onStream(stream)
    } else {
      stream.retire()
    }
    return false
  }

  /** Refuses the waiters of a user. */
  leave(user: SlotUser): void {
    this.#users.delete(user)
    for (const [waiter, waiting] of this.#queue) {
      if (waiting.user === user) this.#refuse(waiter, 'session-over')
    }
  }

  /** Ends the idle streams and refuses who waits; call it when the session is over. */
  close(): void {
    if (this.#closing.signal.aborted) return
    this.#closing.abort()
    for (const user of this.#users) user.retireIdle(Number.POSITIVE_INFINITY)
    for (const waiter of this.#queue.keys()) this.#refuse(waiter, 'session-over')
  }

  #open(user: SlotUser, clientAddr: string, waiter: StreamWaiter): void {
    const stream = user.open(clientAddr)
    if (stream) waiter.onStream(stream)
    else waiter.onNoStream('session-over')
  }

  #refuse(waiter: StreamWaiter, reason: NoStreamReason): void {
    if (this.#queue.delete(waiter)) waiter.onNoStream(reason)
  }

  #awaitSlot(): void {
    if (this.#isAwaitingSlot) return
    this.#isAwaitingSlot = true
    this.session.whenFree(() => {
      this.#isAwaitingSlot = false
      this.#serve()
    })
  }

  #serve(): void {
    while (this.session.freeSlots > 0) {
      const [first] = this.#queue
      if (!first) return
      const [waiter, { user, clientAddr }] = first
      this.#queue.delete(waiter)
      this.#open(user, clientAddr, waiter)
    }
    if (this.#queue.size > 0) this.#awaitSlot()
  }

  /** Gives up the longest unused stream of all pools, for the sake of somebody who waits. */
  #evictOldest(): void {
    let oldest: SlotUser | undefined
    for (const user of this.#users) {
      if (user.oldestIdle < (oldest?.oldestIdle ?? Number.POSITIVE_INFINITY)) oldest = user
    }
    oldest?.retireOldest()
  }

  #startTicking(): void {
    if (this.#isTicking) return
    this.#isTicking = true
    // The sleep rejects when the slots are closed; nothing is left to do then.
    this.#tickWhileNeeded().catch(() => {})
  }

  async #tickWhileNeeded(): Promise<void> {
    try {
      while (this.#queue.size > 0 || this.#users.size > 0) {
        await this.#clock.sleep(TICK_MS, this.#closing.signal)
        this.#tick()
      }
    } finally {
      this.#isTicking = false
    }
  }

  #tick(): void {
    this.#ticks += 1
    const idleTicks = Math.ceil(this.#limits.idleMs / TICK_MS)
    for (const user of this.#users) {
      user.retireIdle(this.#ticks - idleTicks)
      if (user.oldestIdle === Number.POSITIVE_INFINITY) this.#users.delete(user)
    }
    const now = this.#clock.monotonic()
    for (const [waiter, { until }] of this.#queue) {
      if (until > now) break
      this.#refuse(waiter, 'queue-timeout')
    }
  }
}

import { type Clock, systemClock } from '../../base/clock.ts'

/** After a refusal it takes so long until one connection more is tried; it doubles up to the most. */
const RECOVER_MS = 10_000
const MAX_RECOVER_MS = 600_000
/** A service that has answered so lately is there, though it refuses a connection. */
const RECENT_MS = 1_000
/** A service that refuses without any connection of ours gets time to close its last ones. */
const PAUSE_MS = 250

/** How a service has refused a connection: `closed` after it took it, so that it may have read the request. */
export type RefusalKind = 'unreached' | 'closed'

export interface ServiceConnectionsOptions {
  /** Key of the service within its device. */
  readonly key: string
  readonly clock?: Clock
  /** Configured limit of simultaneous connections; undefined: learned from refusals. */
  readonly max?: number | undefined
}

/** State of a service whose connections are all in use. */
export interface ServicePressure {
  /** Connections to it. */
  readonly connections: number
  /** Connections with an endless stream, such as a WebSocket. */
  readonly streams: number
  /** Requests that wait for one. */
  readonly waiting: number
  readonly oldestWaitMs: number
}

/**
 * The connections to one service of a device, for all of its endpoints. A service that refuses a connection
 * while it has others accepts only as many as those: further requests wait. Sometimes one more is tried
 * (additive increase), less often after each refusal.
 */
export class ServiceConnections {
  readonly key: string
  /** Endpoints that lead to it. */
  users = 0
  /** Idle streams. */
  idle = 0
  readonly #clock: Clock
  readonly #max: number
  /** Undefined until it has refused one. */
  #learnt: number | undefined
  /**
   * The limit from before connections were closed that the service had taken: their requests may be the
   * reason. Undefined when there is no doubt.
   */
  #doubted: { readonly limitBefore: number | undefined } | undefined
  /** Until this time, an accepted and closed connection is no sign of a limit. */
  #ignoresClosedUntil = 0
  /** One connection more is tried, and was not refused yet. */
  #isTrying = false
  #recoverMs = RECOVER_MS
  #changedAt = 0
  #pausedUntil = 0
  #workedAt = Number.NEGATIVE_INFINITY
  /** Opened streams whose slots are not free yet. */
  #open = 0
  /** Opened streams that are not retired. */
  #live = 0

  constructor({ key, clock = systemClock, max }: ServiceConnectionsOptions) {
    this.key = key
    this.#clock = clock
    this.#max = max ?? Number.POSITIVE_INFINITY
  }

  get connections(): number {
    return this.#open
  }

  /** How many it takes at once, as far as is known. */
  get limit(): number {
    return Math.min(this.#max, this.#learnt ?? Number.POSITIVE_INFINITY)
  }

  /** True when it would take no connection more. */
  get isFull(): boolean {
    if (this.#open < this.limit) {
      return this.#learnt !== undefined && this.#clock.monotonic() < this.#pausedUntil
    }
    this.#recover()
    return this.#open >= this.limit
  }

  opened(): void {
    this.#open += 1
    this.#live += 1
  }

  givenUp(): void {
    this.#live -= 1
  }

  closed(): void {
    this.#open -= 1
  }

  /** It has answered on a connection. */
  worked(): void {
    this.#workedAt = this.#clock.monotonic()
  }

  /**
   * It has refused a connection, which counts unless it was given up already. True: it is busy, and will take one when
   * another ends. False: there is no sign that it runs.
   */
  refused(kind: RefusalKind, wasGivenUp: boolean): boolean {
    const now = this.#clock.monotonic()
    if (kind === 'closed' && now < this.#ignoresClosedUntil) return false
    const live = this.#live - (wasGivenUp ? 0 : 1)
    // A service may close a connection because of the request: only used connections are a sign of a limit.
    const others = kind === 'closed' ? live - this.idle : live
    if (others === 0 && (kind === 'closed' || now - this.#workedAt > RECENT_MS)) {
      if (live === 0) this.#learnt = undefined
      return false
    }
    if (this.#isTrying && !this.#doubted) {
      this.#recoverMs = Math.min(this.#recoverMs * 2, MAX_RECOVER_MS)
    }
    this.#isTrying = false
    if (kind === 'unreached') this.#doubted = undefined
    else if (this.#learnt === undefined || others < this.#learnt) {
      this.#doubted ??= { limitBefore: this.#learnt }
    }
    this.#learnt = Math.max(1, Math.min(others, this.limit))
    this.#changedAt = now
    if (others === 0) this.#pausedUntil = now + PAUSE_MS
    return true
  }

  /** It has answered a request after closing its connection before: it was busy. */
  confirmClosed(): void {
    this.#doubted = undefined
  }

  /**
   * It closes the connection of a request each time, because of the request. Its limit is restored, and such
   * requests cannot lower it again for a while.
   */
  denyClosed(): void {
    if (!this.#doubted) return
    this.#ignoresClosedUntil = this.#clock.monotonic() + MAX_RECOVER_MS
    this.#learnt = this.#doubted.limitBefore
    this.#doubted = undefined
    this.#pausedUntil = 0
  }

  /** Only a limit that is in the way is tried. */
  #recover(): void {
    if (this.#learnt === undefined || this.#learnt >= this.#max) return
    const now = this.#clock.monotonic()
    // A request that may be the reason itself is soon sent again.
    if (now - this.#changedAt < (this.#doubted ? PAUSE_MS : this.#recoverMs)) return
    if (this.#isTrying) this.#recoverMs = RECOVER_MS
    this.#isTrying = true
    this.#learnt += 1
    this.#changedAt = now
  }
}

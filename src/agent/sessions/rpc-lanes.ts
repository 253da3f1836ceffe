import type { Clock } from '../../base/clock.ts'

/**
 * Calls given to a lane: the running one and the next one, so that the lane never waits for our event loop.
 */
const AT_ONCE = 2
/** Maximum number of connections, including the first. */
const MAX_LANES = 16
/** A shorter queue does not justify another connection. */
const WORTH_MS = 500
/** Maximum number of awaited names without a call. */
const MAX_AWAITED = 4_096

/** Time limits for the answer to a call, in milliseconds. */
export interface RpcBounds {
  /** Limit while no data at all is received. */
  readonly silenceMs: number
  /** Limit while other data is received. */
  readonly longestMs: number
}

export interface RpcLanesOptions<Lane> {
  readonly first: Lane
  /** Duration of the first connect. A round trip is about a quarter of it. */
  readonly connectMs: number
  /** Opens another connection like the first. Undefined: only one connection. */
  readonly openLane?: (() => Promise<Lane>) | undefined
  readonly bounds: RpcBounds
  /** Called if a lane no longer answers. */
  readonly onStalled: (detail: string) => void
  readonly clock: Clock
}

export interface RpcOptions<Lane> {
  /** The only lane for this call. */
  readonly lane?: Lane
  /** The public name that the call is for. */
  readonly name?: string
  /** Added to the limits. */
  readonly longestMs?: number
}

interface Call {
  readonly lane: LaneState<unknown> | undefined
  readonly name: string | undefined
  start(lane: LaneState<unknown>): void
  refuse(error: Error): void
}

interface LaneState<Lane> {
  readonly lane: Lane
  running: number
  /** Monotonic time at which the next call to be answered reached the head of the queue. */
  headSince: number
}

/**
 * Calls to the service over several connections, each of which runs one call at a time. While the queue takes
 * much longer than a connect, more connections are opened, up to 16. So recovery is limited by the link and
 * not by the queue.
 *
 * INVARIANTS
 * - The time limit of a call starts when earlier calls on its lane are answered. It is extended while the
 *   link shows signs of life, so that a slow link is not closed.
 * - Calls for a certain lane come before calls for any lane. Among the latter, names that visitors wait for
 *   come first.
 */
export class RpcLanes<Lane> {
  readonly #options: RpcLanesOptions<Lane>
  readonly #lanes: LaneState<Lane>[]
  readonly #queue: Call[] = []
  /** The longest wait first. */
  readonly #awaited = new Set<string>()
  /** Monotonic time of the latest answer of any kind. */
  #heardAt: number
  #roundTripMs: number
  #isOpening = false
  #mayOpen: boolean
  #isClosed = false

  constructor(options: RpcLanesOptions<Lane>) {
    const now = options.clock.monotonic()
    this.#options = options
    this.#lanes = [{ lane: options.first, running: 0, headSince: now }]
    this.#heardAt = now
    this.#roundTripMs = options.connectMs / 4
    this.#mayOpen = options.openLane !== undefined
  }

  get all(): Lane[] {
    return this.#lanes.map(({ lane }) => lane)
  }

  /** Reports an answered heartbeat. */
  heard(): void {
    this.#heardAt = this.#options.clock.monotonic()
  }

  /** Starts no more calls and opens no more lanes. */
  close(): void {
    this.#isClosed = true
    for (const { refuse } of this.#queue.splice(0)) refuse(closed())
  }

  /** Visitors wait for these names: their calls come first, now and later. */
  prefer(names: readonly string[]): void {
    for (const name of names) if (this.#awaited.size < MAX_AWAITED) this.#awaited.add(name)
    this.#sort()
  }

  #sort(): void {
    const ranks = new Map([...this.#awaited].map((name, rank) => [name, rank]))
    const rankOf = ({ lane, name = '' }: Call) => (lane ? -1 : (ranks.get(name) ?? MAX_AWAITED))
    this.#queue.sort((one, other) => rankOf(one) - rankOf(other))
  }

  /** Runs a call on any free lane, or on the given one. */
  run<T>(
    work: (lane: Lane) => Promise<T>,
    what: string,
    { lane, name, longestMs = 0 }: RpcOptions<Lane> = {},
  ): Promise<T> {
    const on = lane === undefined ? undefined : this.#lanes.find((it) => it.lane === lane)
    return new Promise<T>((resolve, reject) => {
      const start = (state: LaneState<unknown>) => {
        this.#answered(state as LaneState<Lane>, work, what, longestMs).then(resolve, reject)
      }
      const call: Call = { lane: on, name, start, refuse: reject }
      if (this.#isClosed) {
        reject(closed())
        return
      }
      if (on) this.#queue.unshift(call)
      else this.#queue.push(call)
      if (name !== undefined && this.#awaited.has(name)) this.#sort()
      this.#next()
    })
  }

  #next(): void {
    for (let at = 0; at < this.#queue.length; ) {
      const call = this.#queue[at] as Call
      const lane = this.#freeLaneFor(call)
      if (lane) {
        this.#queue.splice(at, 1)
        if (call.name !== undefined) this.#awaited.delete(call.name)
        if (lane.running === 0) lane.headSince = this.#options.clock.monotonic()
        lane.running += 1
        call.start(lane)
      } else if (call.lane === undefined) break
      else at += 1
    }
    void this.#openWhereWorthIt()
  }

  #freeLaneFor({ lane }: Call): LaneState<unknown> | undefined {
    if (lane) return lane.running < AT_ONCE ? lane : undefined
    const [least] = this.#lanes.toSorted((a, b) => a.running - b.running)
    return least && least.running < AT_ONCE ? least : undefined
  }

  async #answered<T>(
    state: LaneState<Lane>,
    work: (lane: Lane) => Promise<T>,
    what: string,
    longestMs: number,
  ): Promise<T> {
    const { clock } = this.#options
    const over = new AbortController()
    const late = this.#awaitStall(state, what, longestMs, over.signal)
    try {
      return await Promise.race([work(state.lane), late])
    } finally {
      // An explicit reason, because the default one costs a stack trace.
      over.abort('answered')
      const now = clock.monotonic()
      this.#roundTripMs = Math.max(1, now - state.headSince)
      state.headSince = now
      this.#heardAt = now
      state.running -= 1
      this.#next()
    }
  }

  /** Rejects when the time limit of the call has passed. */
  async #awaitStall(
    state: LaneState<Lane>,
    what: string,
    moreMs: number,
    signal: AbortSignal,
  ): Promise<never> {
    const { clock, bounds, connectMs, onStalled } = this.#options
    const silenceMs = Math.max(bounds.silenceMs, 4 * connectMs) + moreMs
    const longestMs = Math.max(bounds.longestMs, 2 * silenceMs) + moreMs
    for (;;) {
      const { headSince } = state
      const quietSince = Math.max(headSince, this.#heardAt)
      const by = Math.min(quietSince + silenceMs, headSince + longestMs)
      const leftMs = by - clock.monotonic()
      if (leftMs <= 0) {
        const error = new Error(
          `${what} took longer than ${Math.round(clock.monotonic() - headSince)} ms`,
        )
        onStalled(error.message)
        throw error
      }
      // After an answer in time, the rejection is not needed, so this never settles.
      await clock.sleep(leftMs, signal).catch(() => new Promise<never>(() => {}))
    }
  }

  /** Opens one lane at a time, because the SDK makes one connect at a time. */
  async #openWhereWorthIt(): Promise<void> {
    const { openLane, clock } = this.#options
    if (!openLane || this.#isOpening) return
    this.#isOpening = true
    try {
      while (this.#isWorthALane) {
        const lane = await openLane()
        this.#lanes.push({ lane, running: 0, headSince: clock.monotonic() })
        this.#next()
      }
    } catch {
      // The service accepts no more connections, or the link fails. The existing lanes continue.
      this.#mayOpen = false
    } finally {
      this.#isOpening = false
    }
  }

  /** Whether the queue takes longer than the connect of another lane. */
  get #isWorthALane(): boolean {
    const queueMs = (this.#queue.length * this.#roundTripMs) / this.#lanes.length
    const isWorthIt = queueMs > this.#options.connectMs + WORTH_MS
    return isWorthIt && this.#mayOpen && !this.#isClosed && this.#lanes.length < MAX_LANES
  }
}

const closed = () => new Error('the session has ended')

import type { Clock } from '../../base/clock.ts'

/** Handed over to a lane: one on its way, and the next one, so that it never waits for our event loop. */
const AT_ONCE = 2
/** So many connections at most, the first one included. */
const MAX_LANES = 16
/** A queue that is through sooner is not worth another connection. */
const WORTH_MS = 500
/** Names that visitors wait for and no call has come for. */
const MAX_AWAITED = 4_096

/** Bounds in milliseconds for an answer to one call. */
export interface RpcBounds {
  /** Nothing at all comes back. */
  readonly silenceMs: number
  /** Other things do come back. */
  readonly longestMs: number
}

export interface RpcLanesOptions<Lane> {
  readonly first: Lane
  /** How long the first one took to connect: a round trip is about a quarter of it. */
  readonly connectMs: number
  /** Opens another one like the first; unset: there is one alone. */
  readonly openLane?: (() => Promise<Lane>) | undefined
  readonly bounds: RpcBounds
  /** A lane gives no answers any more. */
  readonly onStalled: (detail: string) => void
  readonly clock: Clock
}

export interface RpcOptions<Lane> {
  /** The only one that may do it. */
  readonly lane?: Lane
  /** The public name that it is for. */
  readonly name?: string
  /** Added to the bounds. */
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
  /** When the call that is answered next came to the head of the queue, monotonic. */
  headSince: number
}

/**
 * Calls to the service on connections that each do one after the other. As long as a queue takes much
 * longer than to connect, there are more connections, up to 16: recovery is limited by the link and not by
 * the queue.
 *
 * INVARIANTS
 * - A call has its time from when those before it on its lane are answered. It gets more while the link
 *   shows signs of life: what is slow is not torn down.
 * - A call on a certain lane goes before those that any lane may do, and of these the names that visitors
 *   wait for go first.
 */
export class RpcLanes<Lane> {
  readonly #options: RpcLanesOptions<Lane>
  readonly #lanes: LaneState<Lane>[]
  readonly #queue: Call[] = []
  /** The longest wait first. */
  readonly #awaited = new Set<string>()
  /** The latest answer of any kind, monotonic. */
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

  /** A heartbeat was answered. */
  heard(): void {
    this.#heardAt = this.#options.clock.monotonic()
  }

  /** No call begins, and no lane is opened from now on. */
  close(): void {
    this.#isClosed = true
    for (const { refuse } of this.#queue.splice(0)) refuse(closed())
  }

  /** Visitors wait for these names: their calls go first, now and when they come. */
  prefer(names: readonly string[]): void {
    for (const name of names) if (this.#awaited.size < MAX_AWAITED) this.#awaited.add(name)
    this.#sort()
  }

  #sort(): void {
    const ranks = new Map([...this.#awaited].map((name, rank) => [name, rank]))
    const rankOf = ({ lane, name = '' }: Call) => (lane ? -1 : (ranks.get(name) ?? MAX_AWAITED))
    this.#queue.sort((one, other) => rankOf(one) - rankOf(other))
  }

  /** On whichever lane is free, or on the one that is given. */
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
      // A reason of our own: the default one costs a stack trace.
      over.abort('answered')
      const now = clock.monotonic()
      this.#roundTripMs = Math.max(1, now - state.headSince)
      state.headSince = now
      this.#heardAt = now
      state.running -= 1
      this.#next()
    }
  }

  /** Rejects when the call has waited in vain. */
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
      // Answered in time: nobody waits for this any more.
      await clock.sleep(leftMs, signal).catch(() => new Promise<never>(() => {}))
    }
  }

  /** One after the other: the SDK connects no two at once. */
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
      // The service wants no more of them, or the link breaks: the others go on.
      this.#mayOpen = false
    } finally {
      this.#isOpening = false
    }
  }

  /** Whether the queue takes longer than another lane would take to connect. */
  get #isWorthALane(): boolean {
    const queueMs = (this.#queue.length * this.#roundTripMs) / this.#lanes.length
    const isWorthIt = queueMs > this.#options.connectMs + WORTH_MS
    return isWorthIt && this.#mayOpen && !this.#isClosed && this.#lanes.length < MAX_LANES
  }
}

const closed = () => new Error('the session has ended')

import { Scheduler } from '../../base/scheduler.ts'

/** What runs at a stretch before others may go on, in steps: a fifth of a millisecond. */
const STRETCH_STEPS = 4_000
/** Stretches this short do not matter to others. */
const SHORT_STEPS = 1_000
/** Who never was long, or has been short so many times in a row, is trusted again. */
const SHORT_IN_A_ROW = 64
/** Who waits for one member. */
const MAX_WAITING = 256

/**
 * How a member has been, by its stretches:
 *
 *     state    waits                          becomes
 *     usual    when the round is crowded      long by a long stretch, short by 64 short ones in a row
 *     short    never                          long by a long stretch, usual by one that is not short
 *     long     always, for the lane           short by 64 short ones in a row
 */
type Costs = 'usual' | 'short' | 'long'

/**
 * One lane for all that is costly: one stretch in each round of the event loop, members take turns,
 * and the lane rests for as long as it ran. So they wait for each other, and everybody else has at
 * least half of the thread, with no more than one stretch ahead of each thing that he does.
 */
export class Lane {
  readonly #costly = new Scheduler()
  /** Those of which nobody knows yet: they wait for a round, and not for those that are costly. */
  readonly #usual = new Scheduler()
  /** Steps of this round. */
  #roundSteps = 0

  /** True while this round has had as much as it should. */
  get isCrowded(): boolean {
    return this.#roundSteps >= STRETCH_STEPS
  }

  /** Counts a stretch of this round; short ones do not matter. */
  count(steps: number): void {
    if (steps < SHORT_STEPS) return
    if (this.#roundSteps === 0) {
      setImmediate(() => {
        this.#roundSteps = 0
      })
    }
    this.#roundSteps += steps
  }

  waiting(member: LaneMember): number {
    return this.#costly.waiting(member) + this.#usual.waiting(member)
  }

  /** Does something when it is the member's turn. */
  async inTurn<T>(member: LaneMember, work: () => T): Promise<T> {
    if (!member.isCostly) {
      await this.#usual.yield(member)
      return work()
    }
    await this.#costly.yield(member)
    const since = performance.now()
    try {
      return work()
    } finally {
      this.#costly.restAfter(performance.now() - since)
    }
  }
}

/** Something that may become costly, such as a policy: it waits for turns while it is. */
export class LaneMember {
  readonly #lane: Lane
  #costs: Costs
  #shortInARow = 0

  constructor(lane: Lane, costs: Costs = 'usual') {
    this.#lane = lane
    this.#costs = costs
  }

  get isCostly(): boolean {
    return this.#costs === 'long'
  }

  /** True when a stretch has to wait for its turn. */
  get hasToWait(): boolean {
    return this.#costs === 'long' || (this.#costs === 'usual' && this.#lane.isCrowded)
  }

  /** True when so many wait already that one more would wait for too long. */
  get isFull(): boolean {
    return this.#lane.waiting(this) >= MAX_WAITING
  }

  /** Does something when it is its turn. */
  inTurn<T>(work: () => T): Promise<Awaited<T>> {
    return this.#lane.inTurn(this, work) as Promise<Awaited<T>>
  }

  /** True when a stretch should end here. */
  isLong(steps: number): boolean {
    return steps >= STRETCH_STEPS
  }

  /** Tells how long a stretch was, before anything else runs. */
  ran(steps: number): void {
    this.#shortInARow = steps < SHORT_STEPS ? this.#shortInARow + 1 : 0
    if (steps >= STRETCH_STEPS) this.#costs = 'long'
    else if (this.#shortInARow >= SHORT_IN_A_ROW) this.#costs = 'short'
    else if (this.#shortInARow === 0 && this.#costs === 'short') this.#costs = 'usual'
    this.#lane.count(steps)
  }
}

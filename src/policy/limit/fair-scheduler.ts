import { Scheduler } from '../../base/scheduler.ts'

/** Steps in a row before other work gets a turn: about 0.3 ms on a quiet core. */
const STRETCH_STEPS = 4_000
/** Stretches this short do not matter to others. */
const SHORT_STEPS = 1_000
/** Short stretches in a row until a member never waits. */
const SHORT_IN_A_ROW = 64
/** Waiting callers of one member. */
const MAX_WAITING = 256

/**
 * State of a member by its stretches:
 *
 *     state    waits                       next state
 *     usual    in a crowded round          long by a long stretch, short by 64 short stretches in a row
 *     short    never                       long by a long stretch, usual by a longer stretch
 *     long     always, for the lane        short by 64 short stretches in a row
 */
type Costs = 'usual' | 'short' | 'long'

/**
 * Scheduler of all costly work. It runs a single stretch in each round of the event loop. Its members take
 * turns, and it rests for as long as it ran. So costly members wait for each other. All other work gets at
 * least half of the thread, and waits for at most a single stretch each time.
 */
export class FairScheduler {
  readonly #costly = new Scheduler()
  /** Members without a history. They wait for a round, but not for the costly members. */
  readonly #usual = new Scheduler()
  /** Steps of this round. */
  #roundSteps = 0

  /** True while this round has had as much as it should. */
  get isCrowded(): boolean {
    return this.#roundSteps >= STRETCH_STEPS
  }

  /** Counts a stretch of this round. Short stretches do not matter. */
  count(steps: number): void {
    if (steps < SHORT_STEPS) return
    if (this.#roundSteps === 0) {
      setImmediate(() => {
        this.#roundSteps = 0
      })
    }
    this.#roundSteps += steps
  }

  waiting(member: SchedulerMember): number {
    return this.#costly.waiting(member) + this.#usual.waiting(member)
  }

  /** Does something when it is the member's turn. */
  async inTurn<T>(member: SchedulerMember, work: () => T): Promise<T> {
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
export class SchedulerMember {
  readonly #lane: FairScheduler
  #costs: Costs
  #shortInARow = 0

  constructor(lane: FairScheduler, costs: Costs = 'usual') {
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

  /** Whether so many callers wait that another would wait too long. */
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

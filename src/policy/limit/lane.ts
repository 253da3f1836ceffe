import { Scheduler } from '../../base/scheduler.ts'

/** What runs at a stretch before others may go on, in steps: a fifth of a millisecond. */
const STRETCH_STEPS = 4_000
/** A member whose stretches become so short again no longer waits for its turns. */
const SHORT_STEPS = 1_000
/** Who waits for one member. */
const MAX_WAITING = 256

/**
 * One lane for all that is costly: one stretch in each round of the event loop, and members take
 * turns. So they wait for each other, and nobody else waits for more than one stretch.
 */
export class Lane {
  readonly #scheduler = new Scheduler()
  /** Steps of this round that were not waited for. */
  #roundSteps = 0

  /** True while this round has had as much as it should. */
  get isCrowded(): boolean {
    return this.#roundSteps >= STRETCH_STEPS
  }

  /** Counts a stretch that did not wait; short ones do not matter. */
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
    return this.#scheduler.waiting(member)
  }

  turn(member: LaneMember): Promise<void> {
    return this.#scheduler.yield(member)
  }
}

/** Something that may become costly, such as a policy: it waits for turns while it is. */
export class LaneMember {
  readonly #lane: Lane
  #isCostly = false

  constructor(lane: Lane) {
    this.#lane = lane
  }

  /** True when a stretch has to wait for its turn. */
  get hasToWait(): boolean {
    return this.#isCostly || this.#lane.isCrowded
  }

  /** True when so many wait already that one more would wait for too long. */
  get isFull(): boolean {
    return this.#lane.waiting(this) >= MAX_WAITING
  }

  turn(): Promise<void> {
    return this.#lane.turn(this)
  }

  /** True when a stretch should end here. */
  isLong(steps: number): boolean {
    return steps >= STRETCH_STEPS
  }

  /** Tells how long a stretch was. */
  ran(steps: number): void {
    if (steps >= STRETCH_STEPS) this.#isCostly = true
    else if (steps < SHORT_STEPS) this.#isCostly = false
    this.#lane.count(steps)
  }
}

import { BoundedCache } from '../../base/bounded-cache.ts'
import { type Cidr, parseCidr } from '../../base/cidr.ts'
import type { Clock } from '../../base/clock.ts'
import { Pattern } from './pattern.ts'

/**
 * What one expression may spend, in steps of about 50 ns: items of macros times the nodes that run
 * for each, characters that functions go through, text times size of patterns: 2 to 5 ms.
 */
const MAX_STEPS = 32_768
/** What it takes to compile one instruction of a pattern. */
const PATTERN_STEPS = 8
/** What it takes to find a time zone. */
const ZONE_STEPS = 8_192
/** Characters of a string that an expression makes. */
const MAX_TEXT = 1_048_576

/** An expression that failed while it ran. */
export class EvaluationError extends Error {
  override readonly name = 'EvaluationError'
  /** True when it had spent all that it may, false when its values did not fit. */
  readonly isOverspent: boolean

  constructor(message: string, { isOverspent = false } = {}) {
    super(message)
    this.isOverspent = isOverspent
  }
}

/**
 * What functions and variables see while an expression runs: its subject, such as the exchange
 * that a policy judges. Evaluation never waits or nests.
 */
export class Evaluation<Subject = unknown> {
  readonly clock: Clock
  /** Compiled once for each source; throws PatternError. */
  readonly patterns = new BoundedCache((source) => {
    const pattern = new Pattern(source)
    this.spend(PATTERN_STEPS * pattern.steps(0))
    return pattern
  })
  readonly ranges = new BoundedCache<Cidr | undefined>(parseCidr)
  /** By the name of a time zone; throws RangeError. Finding one takes a millisecond. */
  readonly zones = new BoundedCache((timeZone) => {
    this.spend(ZONE_STEPS)
    return new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' })
  })
  #subject: Subject | undefined
  #stepsLeft = 0

  constructor(clock: Clock) {
    this.clock = clock
  }

  /** Starts the account of one expression; without a subject only constants can be read. */
  begin(subject: Subject | undefined): void {
    this.#subject = subject
    this.#stepsLeft = MAX_STEPS
  }

  get subject(): Subject {
    if (!this.#subject) throw new EvaluationError('there is no request yet')
    return this.#subject
  }

  get isOverspent(): boolean {
    return this.#stepsLeft < 0
  }

  /** Throws EvaluationError when the expression has spent all it may. */
  spend(steps: number): void {
    this.#stepsLeft -= steps
    if (this.#stepsLeft < 0) throw new EvaluationError('the expression takes too long')
  }

  /** Throws EvaluationError when an expression is about to make a text of that length. */
  limitText(length: number): void {
    if (length > MAX_TEXT) throw new EvaluationError('the expression makes too long a text')
  }
}

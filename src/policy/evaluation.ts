import type { Clock } from '../base/clock.ts'
import { BoundedCache } from './bounded-cache.ts'
import { type Cidr, parseCidr } from './cidr.ts'
import type { Exchange } from './exchange.ts'
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
}

/** What functions and variables see while an expression runs. Evaluation never waits or nests. */
export class Evaluation {
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
  #exchange: Exchange | undefined
  #stepsLeft = 0

  constructor(clock: Clock) {
    this.clock = clock
  }

  /** Starts the account of one expression; without an exchange only constants can be read. */
  begin(exchange: Exchange | undefined): void {
    this.#exchange = exchange
    this.#stepsLeft = MAX_STEPS
  }

  get exchange(): Exchange {
    if (!this.#exchange) throw new EvaluationError('there is no request yet')
    return this.#exchange
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

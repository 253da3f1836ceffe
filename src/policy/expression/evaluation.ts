import { BoundedCache } from '../../base/bounded-cache.ts'
import type { Clock } from '../../base/clock.ts'
import { type Cidr, parseCidr } from '../../base/net/network.ts'
import { Account, type Price } from './account.ts'
import { EvaluationError } from './expression-problem.ts'
import { PatternCache } from './pattern.ts'

/** Steps of finding a time zone. */
const ZONE_STEPS = 12_000
/** Steps of parsing an address range: IPv4, IPv6. */
const RANGE_STEPS = [30, 200] as const
/** Characters of a string that an expression makes. */
const MAX_TEXT = 1_048_576

/**
 * Context of functions and variables while an expression runs. The subject is, for example, the exchange that
 * a policy judges. Evaluation never waits or nests.
 */
export class Evaluation<Subject = unknown> {
  readonly clock: Clock
  readonly patterns = new PatternCache()
  readonly ranges = new BoundedCache<Cidr | undefined>((range) => {
    this.spend(RANGE_STEPS[range.includes(':') ? 1 : 0])
    return parseCidr(range)
  })
  /** By the name of a time zone; throws RangeError. Finding one takes a millisecond. */
  readonly zones = new BoundedCache((timeZone) => {
    this.spend(ZONE_STEPS)
    return new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' })
  })
  #subject: Subject | undefined
  #account = new Account()

  constructor(clock: Clock) {
    this.clock = clock
  }

  /** Turns to an expression; without a subject only constants can be read. */
  setSubject(subject: Subject | undefined, account: Account): void {
    this.#subject = subject
    this.#account = account
  }

  get subject(): Subject {
    if (!this.#subject) throw new EvaluationError('there is no request yet')
    return this.#subject
  }

  get account(): Account {
    return this.#account
  }

  /** Throws EvaluationError when all that there is has been spent. */
  spend(steps: number): void {
    this.#account.spend(steps)
  }

  /** Spends the steps of a call with these operands. */
  pay(price: Price, operands: readonly unknown[]): void {
    this.#account.pay(price, operands)
  }

  /** Throws EvaluationError when an expression is about to make a text of that length. */
  limitText(length: number): void {
    if (length > MAX_TEXT)
      throw new EvaluationError('the expression produces a string that is too long')
  }
}

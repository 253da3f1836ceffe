import { EvaluationError } from '../evaluation-error.ts'
import { type Price, stepsOf } from './price.ts'

/** What may be spent for one subject, in steps of about 50 ns: 3 ms. */
export const MAX_STEPS = 65_536
/** What one expression may spend of it, and all of an action: nobody else can go on while they run. */
export const MAX_EXPRESSION_STEPS = 16_384

/** What all the work for one subject costs, such as for the request that a policy judges. */
export class Account {
  readonly #sentence: string
  #left: number
  /** What is there, and not for the expression that runs. */
  #held = 0
  /** What expressions may spend before others can go on, and what was spent when one began. */
  #stretch = MAX_EXPRESSION_STEPS
  #begunAt = 0
  #spent = 0

  /** `sentence`: what the error says when more is spent than there is. */
  constructor(maxSteps = MAX_STEPS, sentence = 'the policy takes too long for a request') {
    this.#left = maxSteps
    this.#sentence = sentence
  }

  /** Steps so far. */
  get spent(): number {
    return this.#spent
  }

  /** Steps that there are still; negative when too many were spent. */
  get left(): number {
    return this.#left
  }

  get isOverspent(): boolean {
    return this.#left < 0
  }

  /** Throws EvaluationError when it comes to more than there is, now and from then on. */
  spend(steps: number): void {
    this.#spent += steps
    this.#left -= steps
    if (this.#left < 0) this.refuse()
  }

  /** Others could go on just now: expressions may hold them up again. */
  beginStretch(): void {
    this.#stretch = MAX_EXPRESSION_STEPS
  }

  /** Leaves an expression, or the like, no more than there is for a stretch, until it is released. */
  hold(): void {
    this.#begunAt = this.#spent
    this.#held = Math.max(0, this.#left - this.#stretch)
    this.#left -= this.#held
  }

  /** Gives back what was held, unless all of the rest was spent. */
  release(): void {
    this.#stretch -= this.#spent - this.#begunAt
    if (this.#left >= 0) this.#left += this.#held
    this.#held = 0
  }

  /** Spends what a call with these operands costs. */
  pay(price: Price, operands: readonly unknown[]): void {
    this.spend(stepsOf(price, operands, this.#left))
  }

  /** Throws the EvaluationError of who has spent more than there is. */
  refuse(): never {
    throw new EvaluationError(this.#sentence, { isOverspent: true })
  }
}

import type { Phase } from '../phase.ts'
import type { Evaluation } from './evaluation.ts'
import type { ValueInput } from './value.ts'

/** A name that expressions can read. It is computed when an expression asks for it, not before. */
export interface Variable<Subject> {
  /** `string`, `list(string)`, `map(dyn)`, … */
  readonly type: string
  readonly phases?: readonly Phase[]
  /** Undefined when the subject has no such thing. */
  readonly read: (subject: Subject, evaluation: Evaluation) => ValueInput | undefined
}

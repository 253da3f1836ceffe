import type { z } from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { ProblemKind, ProblemOptions } from '../document/problem.ts'
import type { MaybePromise, Outcome } from '../exchange/outcome.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import type { CompiledExpression, Template } from '../expression/compiled-expression.ts'
import type { LimiterTables } from '../limit/limiter-tables.ts'
import type { PolicyReach } from '../outbound/outbound-allow.ts'
import type { Phase } from '../phase.ts'
import type { ReplacedBody } from '../rewriting/body-rewriter.ts'
import type { Replacement } from '../rewriting/rewrite-text.ts'

/** Path of a value inside a configuration. */
export type ConfigPath = readonly (string | number)[]

/** Everything that an action is built with. Problems are collected, so building never stops. */
export interface ActionContext {
  readonly phase: Phase
  readonly clock: Clock
  readonly log: Logger
  readonly reach: PolicyReach
  readonly limits: LimiterTables
  /** A text with `${…}`. */
  template(text: string, path: ConfigPath): Template<PolicyExchange>
  /** A field that is an expression as a whole; `names` and their types are known to it alone. */
  expression(
    source: string,
    path: ConfigPath,
    names?: Readonly<Record<string, string>>,
  ): CompiledExpression<PolicyExchange> | undefined
  problem(kind: ProblemKind, path: ConfigPath, message: string, options?: ProblemOptions): void
  /** Whether an example replaced an unusable value of the author. */
  isMended(path: ConfigPath): boolean
  /** The action decides by the path of the request: see `CompiledPolicy`. */
  readPath(): void
  /** State that lives on when the policy is replaced and this action is not changed. */
  carry<T>(create: () => T): T
  /** Makes `vars.<name>` known to later rules of this phase. Undefined: any name. */
  declare(name: string | undefined): void
  /** Runs work on a whole body when it is its turn, because such work blocks everything else. */
  inTurn<T>(work: () => T): Promise<T>
  /** Replaces in a whole body, outside the serving thread. Throws EvaluationError. */
  rewrite(body: Buffer, replacements: readonly Replacement[]): Promise<ReplacedBody>
}

/** Runs for an exchange whose rule matched. It may throw EvaluationError: the response is then 500. */
export interface RunningAction {
  (exchange: PolicyExchange): MaybePromise<Outcome>
  /**
   * Requests that the rule applies to whatever its expressions say, because the action told clients to send
   * them. The action ends the phase for them.
   */
  readonly isFor?: ((exchange: PolicyExchange) => boolean) | undefined
  /** The URL that it hands exchanges on to, where that is the same for all. */
  readonly forwardsTo?: string | undefined
}

export interface ActionDefinition {
  /** As documents name it: `rate-limit`. */
  readonly type: string
  readonly phases: readonly Phase[]
  readonly config: z.ZodType
  /** The meaning of each field, for editors and the docs. Fields of fields have paths: `replacements.from`. */
  readonly fields: Readonly<Record<string, string>>
  /** A configuration with every field, which can be used in each of the phases. */
  readonly example: unknown
  /** Results by name below `actions.ngrok.<namespace>`, such as `error.code`, and their types. */
  readonly results: Readonly<Record<string, string>>
  readonly namespace: string
  /** True when nothing can follow it in its phase. */
  readonly isTerminating: boolean
  /** Whether the phase always continues after this action, unless it fails. */
  readonly neverEnds: boolean
  /** Whether an action with this configuration lets no request, or no connection, go on. */
  readonly alwaysEnds: (config: unknown) => boolean
  readonly build: (config: unknown, context: ActionContext) => RunningAction
}

/** A text for each field. The compiler asks for fields at the top, a test for those below. */
type FieldTexts<T> = { readonly [Field in keyof T]-?: string } & {
  readonly [path: `${string}.${string}`]: string
}

interface ActionParts<S extends z.ZodType> {
  readonly type: string
  readonly phases: readonly Phase[]
  readonly config: S
  readonly fields: FieldTexts<z.input<S>>
  readonly example: z.input<S>
  readonly results?: Readonly<Record<string, string>>
  /** The type with underscores unless given. */
  readonly namespace?: string
  readonly isTerminating?: boolean
  readonly neverEnds?: boolean
  /** Default: the value of `terminating`. */
  readonly alwaysEnds?: (config: z.output<S>) => boolean
  readonly build: (config: z.output<S>, context: ActionContext) => RunningAction
}

export function defineAction<S extends z.ZodType>(parts: ActionParts<S>): ActionDefinition {
  const { isTerminating = false, neverEnds = false, alwaysEnds = () => isTerminating } = parts
  return {
    namespace: parts.type.replaceAll('-', '_'),
    results: {},
    ...parts,
    isTerminating,
    neverEnds,
    // Called only with results of the schema in the same definition.
    alwaysEnds: alwaysEnds as ActionDefinition['alwaysEnds'],
    build: parts.build as ActionDefinition['build'],
  }
}

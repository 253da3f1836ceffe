import type { SourcePosition } from './source-position.ts'

/** Something wrong with a policy document. */
export interface PolicyProblem {
  /** RFC 6901 JSON pointer into the document as it was written. */
  readonly pointer: string
  /** One sentence for people. */
  readonly message: string
  /** The service's own code: `ERR_NGROK_22xx`. */
  readonly code: string
  /** A warning does not keep the policy from being used. */
  readonly severity: 'error' | 'warning'
  /** True when only this gateway objects: the hosted service may know what is not known here. */
  readonly isForeign: boolean
  /** Known for texts that could not be parsed; the pointer says the place of everything else. */
  readonly position?: SourcePosition | undefined
}

/** A document that cannot be used; `problems` has every error, not just the first. */
export class PolicyError extends Error {
  override readonly name = 'PolicyError'
  readonly problems: readonly PolicyProblem[]

  constructor(problems: readonly PolicyProblem[]) {
    super(problems[0]?.message ?? 'The policy cannot be used.')
    this.problems = problems
  }
}

/** Numbers of the service's codes, `ERR_NGROK_…`, by what is wrong. */
export const CODES = {
  expression: 2200,
  unknownAction: 2201,
  actionNotInPhase: 2202,
  badValue: 2204,
  noActions: 2206,
  unreachable: 2207,
  badHeader: 2208,
  compressAlgorithm: 2214,
  outOfRange: 2215,
  policyReference: 2216,
  badCidr: 2217,
  tooManyEntries: 2218,
  notAllowedValue: 2219,
  tooLong: 2221,
  empty: 2223,
  interpolation: 2224,
  badDuration: 2225,
  unparsable: 2236,
  badRewritePattern: 2247,
  tooDeep: 2250,
  badVariable: 2252,
  notAvailable: 2256,
  badRedirectPattern: 2261,
  noConnections: 2262,
  tooManyRules: 2264,
  tooManyItems: 2265,
  emptyUser: 359,
  passwordLength: 360,
  hostHeader: 398,
  bodyNotAllowed: 3604,
  badReplacePattern: 3902,
} as const

export type ProblemKind = keyof typeof CODES

/** Collects what is wrong with one document. */
export class ProblemList {
  readonly #problems: PolicyProblem[] = []

  get all(): readonly PolicyProblem[] {
    return this.#problems
  }

  get hasErrors(): boolean {
    return this.#problems.some(({ severity }) => severity === 'error')
  }

  add(kind: ProblemKind, pointer: string, message: string, options: ProblemOptions = {}): void {
    const code = `ERR_NGROK_${CODES[kind]}`
    const { severity = 'error', isForeign = false, position } = options
    this.#problems.push({ pointer, message, code, severity, isForeign, position })
  }
}

export interface ProblemOptions {
  readonly severity?: 'error' | 'warning'
  readonly isForeign?: boolean
  readonly position?: SourcePosition | undefined
}

/** Appends a step to a JSON pointer (RFC 6901 3). */
export function child(pointer: string, key: string | number): string {
  return `${pointer}/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`
}

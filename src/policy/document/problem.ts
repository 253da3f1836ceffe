/** A place in a text, both counted from 1. */
export interface SourcePosition {
  readonly line: number
  readonly column: number
}

/** Appends a step to a JSON pointer (RFC 6901 3). */
export function child(pointer: string, key: string | number): string {
  return `${pointer}/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`
}

/** The steps of a JSON pointer. */
export function stepsOf(pointer: string): string[] {
  const steps = pointer.split('/').slice(1)
  return steps.map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'))
}

/** Whether a pointer equals one of the others, or lies below one. */
export function isWithin(pointer: string, others: Iterable<string>): boolean {
  for (const other of others) {
    if (pointer === other || pointer.startsWith(`${other}/`)) return true
  }
  return false
}

/** Position of a part in a document: its index at each level, from the top. */
type Rank = readonly number[]

/** Ranks of JSON pointers. A missing part has the rank of the place to add it. */
function documentRanks(document: unknown): (pointer: string) => Rank {
  const places = new WeakMap<object, Map<string, number>>()
  const placesIn = (parent: object) => {
    const known = places.get(parent) ?? new Map(Object.keys(parent).map((key, at) => [key, at]))
    places.set(parent, known)
    return known
  }
  return (pointer) => {
    const rank: number[] = []
    let node = document
    for (const step of stepsOf(pointer)) {
      if (typeof node !== 'object' || node === null) break
      const place = placesIn(node).get(step)
      if (place === undefined) break
      rank.push(place)
      node = (node as Readonly<Record<string, unknown>>)[step]
    }
    return rank
  }
}

/** A container comes before its content. */
function compareRanks(a: Rank, b: Rank): number {
  for (const [index, place] of a.entries()) {
    const other = b[index]
    if (other === undefined) return 1
    if (place !== other) return place - other
  }
  return a.length - b.length
}

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
  /** Whether only this gateway objects: the hosted service may support it. */
  readonly isForeign: boolean
  /**
   * Whether only new policies are refused. A stored policy keeps running, and its owner is warned. The rules
   * have to run as they did before this check was added.
   */
  readonly isOnlyForNew: boolean
  /** Characters from the start of the text that the pointer leads to; undefined for all of it. */
  readonly offset?: number | undefined
  /** Set for texts that could not be parsed. Other problems have a pointer. */
  readonly position?: SourcePosition | undefined
}

/** A document that cannot be used; `problems` has every error, not just the first. */
export class PolicyError extends Error {
  override readonly name = 'PolicyError'
  readonly problems: readonly PolicyProblem[]

  constructor(problems: readonly PolicyProblem[]) {
    super(problems[0]?.message ?? 'The policy is not valid.')
    this.problems = problems
  }
}

/** Numbers of the service's codes `ERR_NGROK_…`, by kind of problem. */
export const CODES = {
  expression: 2200,
  unknownAction: 2201,
  actionNotInPhase: 2202,
  badValue: 2204,
  actionNotForProtocol: 2205,
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
  phaseNotForProtocol: 2230,
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
  unknownSecret: 24009,
} as const

export type ProblemKind = keyof typeof CODES

/** Problems that are told apart at once; people do not read more. */
const MAX_PROBLEMS = 100

/** Collects the problems of one document. */
export class ProblemList {
  readonly #problems = new Map<string, PolicyProblem>()
  #document: unknown

  /** In the order of the document. The last problem stands for all that were left out. */
  get all(): readonly PolicyProblem[] {
    if (this.isEmpty) return []
    const rankOf = documentRanks(this.#document)
    const sorted = Array.from(this.#problems.values(), (problem) => ({
      problem,
      rank: rankOf(problem.pointer),
    }))
      .sort((a, b) => compareRanks(a.rank, b.rank))
      .map(({ problem }) => problem)
    return sorted.length > MAX_PROBLEMS ? shorten(sorted) : sorted
  }

  get isEmpty(): boolean {
    return this.#problems.size === 0
  }

  get hasErrors(): boolean {
    for (const { severity } of this.#problems.values()) if (severity === 'error') return true
    return false
  }

  /** Whether even a stored policy cannot run. */
  get stopsStored(): boolean {
    for (const { severity, isOnlyForNew } of this.#problems.values()) {
      if (severity === 'error' && !isOnlyForNew) return true
    }
    return false
  }

  /** Says which document it is about: it gives the problems their order. */
  about(document: unknown): void {
    this.#document = document
  }

  /** Adds the problems of another list. */
  addAll(others: ProblemList): void {
    for (const [key, problem] of others.#problems) {
      if (!this.#problems.has(key)) this.#problems.set(key, problem)
    }
  }

  /** Adds a problem, once. */
  add(kind: ProblemKind, pointer: string, message: string, options: ProblemOptions = {}): void {
    const code = `ERR_NGROK_${CODES[kind]}`
    const { severity = 'error', isForeign = false, isOnlyForNew = false } = options
    const { offset, position } = options
    const flags = { severity, isForeign, isOnlyForNew }
    this.addFound([{ pointer, message, code, ...flags, offset, position }])
  }

  /** Adds problems that were found elsewhere, each once. */
  addFound(problems: readonly PolicyProblem[]): void {
    for (const problem of problems) {
      const key = `${problem.pointer} ${problem.code} ${problem.message}`
      if (!this.#problems.has(key)) this.#problems.set(key, problem)
    }
  }
}

/** The sentence of a problem, with its place in the text if that is known. */
export function placedMessage(message: string, position: SourcePosition | undefined): string {
  if (!position) return message
  const { line, column } = position
  return `${message.replace(/\.$/, '')} (line ${line}, column ${column}).`
}

export interface ProblemOptions {
  readonly severity?: 'error' | 'warning'
  readonly isForeign?: boolean
  /** See `PolicyProblem`. */
  readonly isOnlyForNew?: boolean
  readonly offset?: number | undefined
  readonly position?: SourcePosition | undefined
}

/** Rather an error than a warning, in their order; the last one says how many are left out. */
function shorten(sorted: readonly PolicyProblem[]): PolicyProblem[] {
  const isError = ({ severity }: PolicyProblem) => severity === 'error'
  const wanted = [...sorted.filter(isError), ...sorted.filter((problem) => !isError(problem))]
  const kept = new Set(wanted.slice(0, MAX_PROBLEMS))
  const shown = sorted.filter((problem) => kept.has(problem))
  const last = shown.at(-1)
  const hidden = sorted.length - shown.length
  return last
    ? [
        ...shown.slice(0, -1),
        { ...last, message: `${last.message} ${hidden} more problems are not shown.` },
      ]
    : shown
}

import { systemClock } from '../base/clock.ts'
import { createLogger } from '../base/logger.ts'
import { Compiler } from './compile.ts'
import { type PolicyProblem, ProblemList } from './document/problem.ts'
import { SourcePositions } from './document/source-position.ts'
import type { SourcePosition } from './document/yaml-text.ts'
import { LimiterTables } from './limit/limiter-tables.ts'

/** A problem with its place in the text. */
export interface PlacedProblem extends PolicyProblem {
  readonly position: SourcePosition
}

export interface PolicyCheckOptions {
  /** For the hosted service, what only that service can know becomes a warning. */
  readonly service: 'embedded' | 'hosted'
}

/** Everything that is wrong with a document, in the order of its text; nothing is run. */
export function checkPolicy(text: string, { service }: PolicyCheckOptions): PlacedProblem[] {
  const problems = new ProblemList()
  const base = { clock: systemClock, log: createLogger('silent') }
  const limits = new LimiterTables(base)
  new Compiler({ ...base, reach: {}, limits, previous: undefined }, problems).compile(text)
  const positions = new SourcePositions(text)
  return problems.all.map((problem): PlacedProblem => {
    const isWarning = service === 'hosted' && problem.isForeign
    return {
      ...problem,
      severity: isWarning ? 'warning' : problem.severity,
      position: problem.position ?? positions.find(problem.pointer, problem.offset),
    }
  })
}

import { systemClock } from '../base/clock.ts'
import { createLogger } from '../base/logger.ts'
import { Compiler } from './compile.ts'
import { ALLOW_AMBIGUOUS_PATHS } from './document/document.ts'
import { KnownDocuments } from './document/known-documents.ts'
import { atOnce, readPolicyText, SourcePositions } from './document/policy-text.ts'
import { child, type PolicyProblem, ProblemList, type SourcePosition } from './document/problem.ts'
import { FairScheduler } from './limit/fair-scheduler.ts'
import { LimiterTables } from './limit/limiter-tables.ts'
import { BodyRewriter } from './rewriting/body-rewriter.ts'

/** A problem with its place in the text. */
export interface PlacedProblem extends PolicyProblem {
  readonly position: SourcePosition
}

export interface PolicyCheckOptions {
  /** For the hosted service, rules that only that service can check give warnings. */
  readonly service: 'embedded' | 'hosted'
}

/** All problems of a document, in the order of its text. Nothing is executed. */
export function checkPolicy(text: string, { service }: PolicyCheckOptions): PlacedProblem[] {
  const problems = new ProblemList()
  const base = { clock: systemClock, log: createLogger('silent') }
  const options = {
    ...base,
    limits: new LimiterTables(base),
    reach: {},
    previous: undefined,
    lane: new FairScheduler(),
    rewriter: new BodyRewriter(),
    documents: new KnownDocuments(),
    reading: undefined,
    isRun: false,
  }
  atOnce(new Compiler(options, problems).compile(text))
  if (service === 'hosted') warnOfOwnOptions(text, problems)
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

/** The hosted service may refuse options that only this gateway has. */
function warnOfOwnOptions(text: string, problems: ProblemList): void {
  const { value } = atOnce(readPolicyText(text, new ProblemList())) ?? {}
  if (typeof value !== 'object' || value === null || !(ALLOW_AMBIGUOUS_PATHS in value)) return
  const sentence = `${ALLOW_AMBIGUOUS_PATHS} is an option of this gateway. The hosted service may refuse it: remove it there.`
  const pointer = child('', ALLOW_AMBIGUOUS_PATHS)
  problems.add('notAvailable', pointer, sentence, { severity: 'warning', isForeign: true })
}

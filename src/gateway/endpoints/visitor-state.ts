import type { OutcomeCounts } from './visitor-outcomes.ts'

/**
 * What visitors of an endpoint get as of late; `unknown`: there were none. `busy`: they wait for a
 * connection of a service that takes no more of them.
 */
export type VisitorState = 'unknown' | 'answered' | 'slow' | 'busy' | 'garbage' | 'unreachable'

/** A wait that is longer is said, unless the service has answered later ones. */
const SLOW_MS = 10_000
/** The same for a wait for a connection. */
const BUSY_MS = 4_000
/** A service that takes long as a rule is slow when it takes twice that. */
const PATIENCE = 2

export interface VisitorEvidence {
  /** Since the last look. */
  readonly counts: OutcomeCounts
  readonly oldestWaitMs: number
  /** See `VisitorOutcomes`. */
  readonly longestMs: number
  /** The longest wait for a connection of a service that takes no more. */
  readonly busyMs?: number | undefined
}

/**
 * The state that the evidence speaks for, by majority: one visitor of many who got nothing is no
 * failing service. Undefined where there is none.
 */
export function judgeVisitors(evidence: VisitorEvidence): VisitorState | undefined {
  const { counts, oldestWaitMs, longestMs, busyMs = 0 } = evidence
  if (busyMs >= BUSY_MS) return 'busy'
  const isWaitSlow = oldestWaitMs >= Math.max(SLOW_MS, longestMs * PATIENCE)
  const bad: readonly (readonly [VisitorState, number])[] = [
    ['garbage', counts.garbage],
    ['unreachable', counts.unreachable],
    ['slow', counts.late + counts.gaveUp + (isWaitSlow ? 1 : 0)],
  ]
  const [worst] = [...bad].sort(([, a], [, b]) => b - a)
  const failed = bad.reduce((sum, [, count]) => sum + count, 0)
  if (failed > counts.answered) return worst?.[0]
  return counts.answered > 0 ? 'answered' : undefined
}

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

interface VisitorEvidence {
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

/**
 * What became of a request that was sent on to a device. `garbage`: no HTTP, or not all of it.
 * `unreachable`: its service takes no connection. `late`: no answer in time. `abandoned`: the visitor
 * left before there was one.
 */
export type VisitorOutcome = 'answered' | 'garbage' | 'unreachable' | 'late' | 'abandoned'

/** A request that waits for the begin of its answer. */
export interface VisitorWait {
  /** Monotonic. */
  readonly since: number
}

/** Who leaves sooner says nothing about the service. */
const PATIENCE_MS = 5_000

const COUNTERS = ['answered', 'garbage', 'unreachable', 'late', 'abandoned', 'gaveUp'] as const

/** How many requests ended how. `gaveUp`: those that were abandoned after a while. */
export type OutcomeCounts = Record<(typeof COUNTERS)[number], number>

/** What visitors of one endpoint got since it opened, and who still waits. */
export class VisitorOutcomes {
  readonly counts: OutcomeCounts = {
    answered: 0,
    garbage: 0,
    unreachable: 0,
    late: 0,
    abandoned: 0,
    gaveUp: 0,
  }
  /** In the order of their begins. */
  readonly #waiting = new Set<VisitorWait>()
  /** The longest wait that was answered: that is how slow this service is when it is well. */
  longestMs = 0
  /** Somebody waits, or has got something. */
  onNews: (() => void) | undefined

  get waiting(): number {
    return this.#waiting.size
  }

  begin(now: number): VisitorWait {
    const wait = { since: now }
    this.#waiting.add(wait)
    this.onNews?.()
    return wait
  }

  /** Undefined: it goes on elsewhere, or ended for a reason that is not the service's. */
  end(wait: VisitorWait, outcome: VisitorOutcome | undefined, now: number): void {
    if (!this.#waiting.delete(wait) || outcome === undefined) return
    const waitedMs = now - wait.since
    this.counts[outcome] += 1
    if (outcome === 'abandoned' && waitedMs >= PATIENCE_MS) this.counts.gaveUp += 1
    if (outcome === 'answered') this.longestMs = Math.max(this.longestMs, waitedMs)
    this.onNews?.()
  }

  /** An answer that had begun was no whole one. */
  takeBack(outcome: VisitorOutcome): void {
    this.counts.answered -= 1
    this.counts[outcome] += 1
    this.onNews?.()
  }

  oldestWaitMs(now: number): number {
    const [oldest] = this.#waiting
    return oldest ? now - oldest.since : 0
  }
}

/** What counts there are beside those of an earlier look. */
export function countsSince(counts: OutcomeCounts, before: OutcomeCounts): OutcomeCounts {
  const entries = COUNTERS.map((name) => [name, counts[name] - before[name]])
  return Object.fromEntries(entries)
}

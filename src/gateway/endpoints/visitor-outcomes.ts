/**
 * Recent results of an endpoint's visitors. `unknown`: no visitors. `busy`: they wait for a connection,
 * because the service accepts no more.
 */
export type VisitorState = 'unknown' | 'answered' | 'slow' | 'busy' | 'garbage' | 'unreachable'

/** Longer waits are reported, unless the service has answered later requests. */
const SLOW_MS = 5_000
/** The same for a wait for a connection. */
const BUSY_MS = 4_000
/** A service counts as slow at twice its longest answered wait. */
const PATIENCE = 2

interface VisitorEvidence {
  /** Counts since the last check. */
  readonly counts: OutcomeCounts
  readonly oldestWaitMs: number
  /** See `VisitorOutcomes`. */
  readonly longestMs: number
  /** Outcome of the latest visitor. */
  readonly last?: VisitorOutcome | undefined
  /** Longest wait for a connection, in milliseconds, because the service accepts no more connections. */
  readonly busyMs?: number | undefined
}

/**
 * Returns the state that most of the evidence supports, because one failed visitor among many is no failing
 * service. If the latest visitor could not connect, that counts: the agent checks the service then. Undefined
 * without evidence.
 */
export function judgeVisitors(evidence: VisitorEvidence): VisitorState | undefined {
  const { counts, oldestWaitMs, longestMs, last, busyMs = 0 } = evidence
  if (busyMs >= BUSY_MS) return 'busy'
  const isWaitSlow = oldestWaitMs >= Math.max(SLOW_MS, longestMs * PATIENCE)
  const bad: readonly (readonly [VisitorState, number])[] = [
    ['garbage', counts.garbage],
    ['unreachable', counts.unreachable],
    ['slow', counts.late + counts.gaveUp + (isWaitSlow ? 1 : 0)],
  ]
  const [worst] = [...bad].sort(([, a], [, b]) => b - a)
  const failed = bad.reduce((sum, [, count]) => sum + count, 0)
  if (counts.unreachable > 0 && last === 'unreachable') return 'unreachable'
  const isFailing = last === 'garbage' || last === 'late'
  if (failed > counts.answered || (isFailing && failed === counts.answered)) return worst?.[0]
  return counts.answered > 0 ? 'answered' : undefined
}

/**
 * Outcome of a request that was sent to a device. `garbage`: the answer was not HTTP, or incomplete.
 * `unreachable`: the service accepts no connection. `late`: no answer in time. `abandoned`: the visitor left
 * before an answer.
 */
export type VisitorOutcome = 'answered' | 'garbage' | 'unreachable' | 'late' | 'abandoned'

/** A request that waits for its answer to begin. */
export interface VisitorWait {
  /** Monotonic. */
  readonly since: number
}

/** A visitor that leaves sooner tells nothing about the service. */
const PATIENCE_MS = 5_000

const COUNTERS = ['answered', 'garbage', 'unreachable', 'late', 'abandoned', 'gaveUp'] as const

/** Number of requests by outcome. `gaveUp`: abandoned requests whose visitor had waited for `PATIENCE_MS`. */
export type OutcomeCounts = Record<(typeof COUNTERS)[number], number>

/** Results of the visitors of one endpoint since it opened, and the requests that still wait. */
export class VisitorOutcomes {
  readonly counts: OutcomeCounts = {
    answered: 0,
    garbage: 0,
    unreachable: 0,
    late: 0,
    abandoned: 0,
    gaveUp: 0,
  }
  /** In the order of their start. */
  readonly #waiting = new Set<VisitorWait>()
  /** Longest wait that was answered, in milliseconds: the normal slowness of this service. */
  longestMs = 0
  /** Outcome of the latest visitor. */
  last: VisitorOutcome | undefined
  /** Judged at the last check with visitors. `unknown` if the gateway does not check this endpoint. */
  state: VisitorState = 'unknown'
  /** Time of that check, in milliseconds since the epoch. */
  judgedAt = 0
  /** Called when a visitor begins to wait, and with the result of a visitor. */
  onNews: ((outcome?: VisitorOutcome) => void) | undefined

  get waiting(): number {
    return this.#waiting.size
  }

  begin(now: number): VisitorWait {
    const wait = { since: now }
    this.#waiting.add(wait)
    this.onNews?.()
    return wait
  }

  /** `outcome` is undefined if the request continues elsewhere, or ended for a reason outside the service. */
  end(wait: VisitorWait, outcome: VisitorOutcome | undefined, now: number): void {
    if (!this.#waiting.delete(wait) || outcome === undefined) return
    const waitedMs = now - wait.since
    this.counts[outcome] += 1
    this.last = outcome
    if (outcome === 'abandoned' && waitedMs >= PATIENCE_MS) this.counts.gaveUp += 1
    if (outcome === 'answered') this.longestMs = Math.max(this.longestMs, waitedMs)
    this.onNews?.(outcome)
  }

  /** Corrects the outcome of an answer that began but was incomplete. */
  takeBack(outcome: VisitorOutcome): void {
    this.counts.answered -= 1
    this.counts[outcome] += 1
    this.last = outcome
    this.onNews?.(outcome)
  }

  oldestWaitMs(now: number): number {
    const [oldest] = this.#waiting
    return oldest ? now - oldest.since : 0
  }
}

/** Counts since an earlier check. */
export function countsSince(counts: OutcomeCounts, before: OutcomeCounts): OutcomeCounts {
  const entries = COUNTERS.map((name) => [name, counts[name] - before[name]])
  return Object.fromEntries(entries)
}

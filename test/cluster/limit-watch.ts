import type { Visit } from './visit-log.ts'

/** A time of the trial, in ms of its clock. */
export interface Interval {
  readonly begin: number
  readonly end: number
}

export interface LimitWatchOptions {
  readonly capacity: number
  readonly windowMs: number
  /** While something planned was done: a move then has to pass on what was counted. */
  readonly planned: readonly Interval[]
  /** While, and soon after, something else was: a move then may be for that. */
  readonly unplanned: readonly Interval[]
  /** When names may have moved that show no endpoint of their own, such as those in the cloud. */
  readonly givenUp: readonly Interval[]
}

export interface LimitFindings {
  /** Windows that hold no unplanned move. */
  readonly windows: number
  /** The most that one of them admitted. */
  readonly most: number
  readonly over: readonly { readonly host: string; readonly at: number; readonly count: number }[]
}

const overlaps = (a: Interval, b: Interval) => a.begin <= b.end && b.begin <= a.end

/**
 * Counts what was admitted in each window that begins with an admission. What was under way for the
 * whole of it was counted in it, wherever in between: so nothing is found that was not there.
 */
export function watchLimit(visits: readonly Visit[], options: LimitWatchOptions): LimitFindings {
  const admitted = visits
    .filter(({ outcome }) => outcome === '200')
    .sort((a, b) => a.begin - b.begin)
  const moves = unplannedMoves(admitted, options)
  const found = { windows: 0, most: 0, over: [] as LimitFindings['over'][number][] }
  for (const [index, { host, begin }] of admitted.entries()) {
    const window = { begin, end: begin + options.windowMs }
    if (moves.some((move) => overlaps(move, window))) continue
    found.windows += 1
    let count = 0
    for (let at = index; at < admitted.length; at += 1) {
      const visit = admitted[at] as Visit
      if (visit.begin > window.end) break
      if (visit.end <= window.end) count += 1
    }
    found.most = Math.max(found.most, count)
    if (count > options.capacity) found.over.push({ host, at: begin, count })
  }
  return found
}

/**
 * From the last answer of one endpoint to the first of the next, unless that was planned: of a limit that is
 * used up, a minute may lie between the two, with more than one thing in it.
 */
function unplannedMoves(
  admitted: readonly Visit[],
  { planned, unplanned, givenUp }: LimitWatchOptions,
): Interval[] {
  const isIn = (times: readonly Interval[], move: Interval) =>
    times.some((it) => overlaps(it, move))
  const moves: Interval[] = []
  let before: Visit | undefined
  for (const visit of admitted) {
    if (visit.endpoint === undefined) continue
    if (before && before.endpoint !== visit.endpoint) {
      const move = { begin: Math.min(before.begin, visit.begin), end: visit.end }
      if (isIn(unplanned, move) || !isIn(planned, move)) moves.push(move)
    }
    before = visit
  }
  return admitted.some(({ endpoint }) => endpoint !== undefined) ? moves : [...givenUp]
}

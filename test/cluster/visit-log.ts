/** Where visitors come in: at one node, or by the balancer in front of all. */
export type Entrance = 'node 1' | 'node 2' | 'node 3' | 'balancer'
export const ENTRANCES: readonly Entrance[] = ['node 1', 'node 2', 'node 3', 'balancer']

/** One request of a visitor; times in ms of the trial's only clock. */
export interface Visit {
  readonly host: string
  readonly entrance: Entrance
  readonly begin: number
  readonly end: number
  /** `200`, `429`, another status with its code, or what became of the connection. */
  readonly outcome: string
  /** Which endpoint has answered: another one each time that a device binds the name. */
  readonly endpoint?: string | undefined
  readonly isDownload?: boolean
}

/** What is no failure: a limit that refuses is an answer of the name. */
export const isServed = ({ outcome }: Visit): boolean => outcome === '200' || outcome === '429'

/** When a name was served again at an entrance. */
export interface Recovery {
  readonly host: string
  readonly entrance: Entrance
  /** Ms after the end of the fault; `Infinity` when it was not, before the next one. */
  readonly ms: number
  /** What visitors got last before that. */
  readonly last: string
}

/** Everything that visitors got. */
export class VisitLog {
  readonly #visits: Visit[] = []

  add(visit: Visit): void {
    this.#visits.push(visit)
  }

  get all(): readonly Visit[] {
    return this.#visits
  }

  /** Those that were under way at some moment of a time. */
  during(begin: number, end: number): Visit[] {
    return this.#visits.filter((visit) => visit.end >= begin && visit.begin <= end)
  }

  /**
   * When each name was served again at each entrance after `end`: the first answer after the last
   * failure. What had not ended at `until` is left out: the next fault may have met it. Latest first.
   */
  recoveries(end: number, until: number): Recovery[] {
    const groups = new Map<string, Visit[]>()
    for (const visit of this.#visits) {
      if (visit.isDownload || visit.end < end || visit.end > until) continue
      const key = `${visit.host} ${visit.entrance}`
      const group = groups.get(key)
      if (group) group.push(visit)
      else groups.set(key, [visit])
    }
    return [...groups.values()]
      .flatMap((group) => recoveryOf(group, end) ?? [])
      .sort((a, b) => b.ms - a.ms)
  }
}

function recoveryOf(group: readonly Visit[], end: number): Recovery | undefined {
  const [first] = group
  if (!first) return undefined
  // What began before the end may fail after it.
  const failed = group.filter((visit) => visit.begin >= end && !isServed(visit))
  const lastFailed = failed.reduce<Visit | undefined>(
    (last, visit) => (last && last.begin > visit.begin ? last : visit),
    undefined,
  )
  const from = lastFailed?.begin ?? Number.NEGATIVE_INFINITY
  const served = group.filter((visit) => isServed(visit) && visit.begin > from)
  const { host, entrance } = first
  const ms = Math.max(0, Math.min(...served.map((visit) => visit.end)) - end)
  return { host, entrance, ms, last: lastFailed?.outcome ?? first.outcome }
}

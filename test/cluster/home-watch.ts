import type { Visit } from './visit-log.ts'

/** A name that one endpoint answered for, then another one, then the first again. */
export interface TwoHomes {
  readonly host: string
  readonly endpoints: readonly [first: string, second: string]
  /** When the second one answered, on the clock of the visits. */
  readonly at: number
}

/**
 * Moments in which a name had two live homes. An endpoint is made when a device binds a name, and
 * does not come back: so one that answers a request that began after the answer of another one,
 * while it had answered itself before that was asked, was there all the while.
 */
export function findTwoHomes(visits: readonly Visit[]): TwoHomes[] {
  const byHost = new Map<string, Map<string, Visit[]>>()
  for (const visit of visits) {
    if (visit.outcome !== '200' || visit.endpoint === undefined) continue
    const endpoints = byHost.get(visit.host) ?? new Map<string, Visit[]>()
    byHost.set(visit.host, endpoints)
    const answered = endpoints.get(visit.endpoint)
    if (answered) answered.push(visit)
    else endpoints.set(visit.endpoint, [visit])
  }
  const found: TwoHomes[] = []
  for (const [host, endpoints] of byHost) {
    for (const [first, answered] of endpoints) {
      const since = Math.min(...answered.map(({ end }) => end))
      const until = Math.max(...answered.map(({ begin }) => begin))
      for (const [second, others] of endpoints) {
        if (second === first) continue
        const between = others.find(({ begin, end }) => begin > since && end < until)
        if (between) found.push({ host, endpoints: [first, second], at: between.end })
      }
    }
  }
  return found
}

import * as z from 'zod'
import type { UpstreamEvent } from './upstream-state.ts'

/** Longer than any notice is. */
const MAX_LENGTH = 4_096
const MAX_HOST = 253

const Count = z.number().int().nonnegative()
const Report = z.object({
  host: z.string().max(MAX_HOST),
  state: z.enum(['answered', 'slow', 'garbage', 'unreachable']),
  answered: Count,
  abandoned: Count,
  failed: Count,
  oldest_wait_ms: Count,
  busy: z.object({ connections: Count, streams: Count, waiting: Count }).optional(),
})
const Notice = z.object({ 'device-agent': z.object({ visitors: z.array(Report) }) })

/** What visitors of one tunnel got, as our gateway told it last. Counts are since it opened there. */
export interface VisitorReport {
  readonly state: z.infer<typeof Report>['state'] | 'busy'
  readonly answered: number
  /** Left before an answer began. */
  readonly abandoned: number
  /** Got an error because of the service. */
  readonly failed: number
  readonly oldestWaitMs: number
  /** With the state `busy`. */
  readonly busy?: UpstreamLoad | undefined
}

/** How the connections to a service are used that takes no more of them. */
export interface UpstreamLoad {
  readonly connections: number
  /** Those of them with a stream that has no end in sight. */
  readonly streams: number
  /** Requests that wait for one. */
  readonly waiting: number
}

const EVENTS: Record<VisitorReport['state'], UpstreamEvent> = {
  answered: 'answered',
  slow: 'hung',
  busy: 'crowded',
  garbage: 'garbled',
  unreachable: 'failed',
}

export function eventOf({ state }: VisitorReport): UpstreamEvent {
  return EVENTS[state]
}

/** The reports in a notice, by host; empty for any other text. */
export function visitorReportsIn(text: string): Map<string, VisitorReport> {
  const reports = new Map<string, VisitorReport>()
  for (const { host, oldest_wait_ms: oldestWaitMs, busy, state, ...counts } of parse(text)) {
    // Agents that know nothing of busy services are told that they are slow.
    const load = busy && { busy }
    reports.set(host, { ...counts, state: busy ? 'busy' : state, oldestWaitMs, ...load })
  }
  return reports
}

function parse(text: string): z.infer<typeof Report>[] {
  if (text.length > MAX_LENGTH) return []
  try {
    return Notice.safeParse(JSON.parse(text)).data?.['device-agent'].visitors ?? []
  } catch {
    return []
  }
}

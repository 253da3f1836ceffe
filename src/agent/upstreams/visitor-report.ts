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
})
const Notice = z.object({ 'device-agent': z.object({ visitors: z.array(Report) }) })

/** What visitors of one tunnel got, as our gateway told it last. Counts are since it opened there. */
export interface VisitorReport {
  readonly state: z.infer<typeof Report>['state']
  readonly answered: number
  /** Left before an answer began. */
  readonly abandoned: number
  /** Got an error because of the service. */
  readonly failed: number
  readonly oldestWaitMs: number
}

const EVENTS: Record<VisitorReport['state'], UpstreamEvent> = {
  answered: 'answered',
  slow: 'hung',
  garbage: 'garbled',
  unreachable: 'failed',
}

export function eventOf({ state }: VisitorReport): UpstreamEvent {
  return EVENTS[state]
}

/** The reports in a notice, by host; empty for any other text. */
export function visitorReportsIn(text: string): Map<string, VisitorReport> {
  const reports = new Map<string, VisitorReport>()
  for (const { host, oldest_wait_ms: oldestWaitMs, ...counts } of parse(text)) {
    reports.set(host, { ...counts, oldestWaitMs })
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

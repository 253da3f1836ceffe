import type { Logger } from '../base/logger.ts'

/** Release lines of Node with the day of their last security fixes (schedule of nodejs/Release). */
const LAST_FIXES: ReadonlyMap<string, string> = new Map([
  ['20', '2026-04-30'],
  ['22', '2027-04-30'],
  ['23', '2025-06-01'],
  ['24', '2028-04-30'],
  ['25', '2026-06-01'],
  ['26', '2029-04-30'],
])

export interface NodeSupportOptions {
  /** As `process.versions.node` has it, such as `20.19.0`. */
  readonly version: string
  /** Wall time, milliseconds since the epoch. */
  readonly now: number
  readonly log: Logger
}

/** Warns when the Node that runs this gets no security fixes any more. */
export function warnOfEndedNode({ version, now, log }: NodeSupportOptions): void {
  const [line = version] = version.split('.')
  const day = LAST_FIXES.get(line)
  if (day === undefined || now < Date.parse(`${day}T23:59:59Z`)) return
  const message = `Node.js ${line} gets no security fixes since ${day}: install a newer version`
  log.warn({ node: version }, message)
}

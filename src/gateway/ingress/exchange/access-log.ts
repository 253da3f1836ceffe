import type { Logger } from '../../../base/logger.ts'
import type { RequestHead } from '../syntax/request-head.ts'

export interface ExchangeSummary {
  readonly head: RequestHead
  readonly clientIp: string
  readonly status: number
  readonly bytesIn: number
  readonly bytesOut: number
  readonly ms: number
}

/** One line per exchange, at debug level. A query may hold secrets, so it stays out. */
export function logExchange(log: Logger, summary: ExchangeSummary): void {
  const { head, clientIp, status, bytesIn, bytesOut, ms } = summary
  const [path] = head.target.split('?', 1)
  log.debug(
    { method: head.method, host: head.hostname, path, status, bytesIn, bytesOut, ms, clientIp },
    'exchange',
  )
}

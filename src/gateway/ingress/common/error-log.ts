import type { Clock } from '../../../base/clock.ts'
import { TokenBuckets } from '../../../base/limiter.ts'
import type { Logger } from '../../../base/logger.ts'
import type { VisitorError } from './error-reply.ts'

/** Lines of each kind of error: a burst, then one line in five seconds. */
const LINES = { capacity: 20, refillPerS: 0.2, maxKeys: 16 }

interface FailedRequest {
  readonly requestId: string
  readonly host: string
  readonly endpoint: string | undefined
  readonly clientIp: string
}

/** Logs errors by the request id that visitors see. A flood of errors leaves a few lines of each kind. */
export class ErrorLog {
  readonly #log: Logger
  readonly #lines: TokenBuckets

  constructor(log: Logger, clock: Clock) {
    this.#log = log
    this.#lines = new TokenBuckets({ ...LINES, clock })
  }

  note({ status, code, kind }: VisitorError, request: FailedRequest): void {
    if (this.#lines.tryCount(kind) > 0) return
    this.#log.info({ ...request, status, code }, 'a visitor got an error')
  }
}

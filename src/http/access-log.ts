import type { Request, RequestHandler } from 'express'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { requestIdOf } from './request-id.ts'

export interface AccessLogOptions {
  readonly log: Logger
  readonly clock: Clock
  readonly clientOf: (request: Request) => string
  /** Paths that are requested all the time: logged as debug unless the answer is a 5xx. */
  readonly quiet: (path: string) => boolean
}

/**
 * One line for each request, when its answer is over; without the query, which may hold secrets.
 * A successful read is logged as debug: a monitor that polls each second would fill the log.
 */
export function accessLog({ log, clock, clientOf, quiet }: AccessLogOptions): RequestHandler {
  return (request, response, next) => {
    const startedAt = clock.monotonic()
    const { method, path } = request
    response.once('close', () => {
      const { statusCode: status, writableFinished } = response
      const line = {
        method,
        path,
        status,
        ms: Math.round(clock.monotonic() - startedAt),
        client: clientOf(request),
        request_id: requestIdOf(response),
        ...(writableFinished ? {} : { aborted: true }),
      }
      if (status >= 500) log.warn(line, 'request')
      else if (quiet(path) || (isRead(method) && status < 400 && writableFinished))
        log.debug(line, 'request')
      else log.info(line, 'request')
    })
    next()
  }
}

function isRead(method: string): boolean {
  return method === 'GET' || method === 'HEAD'
}

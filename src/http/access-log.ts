import { randomUUID } from 'node:crypto'
import { isIP } from 'node:net'
import type { Request, RequestHandler, Response } from 'express'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { TrustedProxies } from '../base/net/trusted-proxies.ts'

const HEADER = 'x-request-id'
/** A request id sent by the client is kept if it cannot forge a log line. */
const ACCEPTED = /^[\w-]{8,64}$/

/** Gives each request an id, which is added to the answer, its errors and the log. */
export const requestId: RequestHandler = (request, response, next) => {
  const given = request.get(HEADER)
  response.setHeader(HEADER, given && ACCEPTED.test(given) ? given : randomUUID())
  next()
}

/** Returns the id of the request that `response` answers. */
export function requestIdOf(response: Response): string {
  return String(response.getHeader(HEADER))
}

/** Address of a TCP listener's peer, or of the client that a trusted proxy reports. */
export function peerAddress(request: Request): string {
  return request.ip ?? 'unknown'
}

/** Sets `ip` and `protocol` of a request to the values reported by trusted proxies. */
export function forwardedClient(proxies: TrustedProxies): RequestHandler {
  return (request, _response, next) => {
    const ip = request.socket.remoteAddress ?? ''
    const valuesOf = (name: string) => [request.headers[name] ?? []].flat()
    const client = proxies.trusts(ip) ? proxies.clientOf(ip, valuesOf) : undefined
    if (client) {
      Object.defineProperty(request, 'ip', { value: client.ip })
      if (client.scheme) Object.defineProperty(request, 'protocol', { value: client.scheme })
    }
    next()
  }
}

/**
 * Returns the client address seen by the service, for a listener that is reached only through the service's
 * tunnel. It is the last entry of x-forwarded-for. Earlier entries are written by the client.
 */
export function forwardedAddress(request: Request): string {
  const last = request.get('x-forwarded-for')?.split(',').at(-1)?.trim() ?? ''
  return isIP(last) === 0 ? 'unknown' : last
}

interface AccessLogOptions {
  readonly log: Logger
  readonly clock: Clock
  readonly clientOf: (request: Request) => string
  /** Paths that are requested all the time. They are logged as debug unless the answer is a 5xx. */
  readonly quiet: (path: string) => boolean
}

/**
 * Logs one line per request when its answer ends. The query is left out, because it may hold secrets. A
 * successful read is logged as debug, because a monitor that polls every second would fill the log.
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

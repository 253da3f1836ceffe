import { randomUUID } from 'node:crypto'
import { isIP } from 'node:net'
import type { Request, RequestHandler, Response } from 'express'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { TrustedProxies } from '../base/net/trusted-proxies.ts'

const HEADER = 'x-request-id'
/** A caller's own id is kept when it cannot forge a log line. */
const ACCEPTED = /^[\w-]{8,64}$/

/** Gives each request an id that the answer, its errors and the log carry. */
export const requestId: RequestHandler = (request, response, next) => {
  const given = request.get(HEADER)
  response.setHeader(HEADER, given && ACCEPTED.test(given) ? given : randomUUID())
  next()
}

/** The id of the request that `response` answers. */
export function requestIdOf(response: Response): string {
  return String(response.getHeader(HEADER))
}

/** The address of the peer of a TCP listener, or of the client that a trusted proxy names. */
export function peerAddress(request: Request): string {
  return request.ip ?? 'unknown'
}

/** Sets `ip` and `protocol` of requests to what the trusted proxies in front say. */
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
 * The address that the service saw, for a listener that only the service's tunnel reaches: the
 * last entry of x-forwarded-for. Those before it are the caller's own words.
 */
export function forwardedAddress(request: Request): string {
  const last = request.get('x-forwarded-for')?.split(',').at(-1)?.trim() ?? ''
  return isIP(last) === 0 ? 'unknown' : last
}

interface AccessLogOptions {
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

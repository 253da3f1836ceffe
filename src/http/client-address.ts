import { isIP } from 'node:net'
import type { Request, RequestHandler } from 'express'
import type { TrustedProxies } from '../base/net/trusted-proxies.ts'

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

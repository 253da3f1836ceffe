import { isIP } from 'node:net'
import type { Request } from 'express'

/** The address of the peer of a TCP listener. */
export function peerAddress(request: Request): string {
  return request.socket.remoteAddress ?? 'unknown'
}

/**
 * The address that the service saw, for a listener that only the service's tunnel reaches: the
 * last entry of x-forwarded-for. Those before it are the caller's own words.
 */
export function forwardedAddress(request: Request): string {
  const last = request.get('x-forwarded-for')?.split(',').at(-1)?.trim() ?? ''
  return isIP(last) === 0 ? 'unknown' : last
}

import { isIP } from 'node:net'
import type { Request } from 'express'
import { forwardedAddress, peerAddress } from '../http/client-address.ts'

/** A way into the API: which host names belong to it, and how a caller's address is told. */
export interface Entrance {
  serves(hostname: string): boolean
  /** What to do about another name, one sentence. */
  readonly advice: string
  clientOf(request: Request): string
}

/**
 * The listener on the device. A name that resolves here can be anybody's, an address cannot:
 * DNS rebinding needs a name. `host` is what the listener was told to listen on.
 */
export function localEntrance(host: string): Entrance {
  const own = new Set(['localhost', host.toLowerCase()])
  return {
    serves: (hostname) => own.has(hostname) || isIP(hostname.replace(/^\[|\]$/g, '')) !== 0,
    advice: 'Use localhost, or the IP address of the device.',
    clientOf: peerAddress,
  }
}

/** The socket at the end of the agent's own tunnel: the public domain, and callers far away. */
export function tunnelEntrance(domain: string): Entrance {
  return {
    serves: (hostname) => hostname === domain,
    advice: 'Use the domain that AGENT_DOMAIN names.',
    clientOf: forwardedAddress,
  }
}

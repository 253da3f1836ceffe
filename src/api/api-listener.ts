import { isIP } from 'node:net'
import type { Request } from 'express'
import { forwardedAddress, peerAddress } from '../http/access-log.ts'
import type { Caller } from '../http/caller.ts'

/** One listener of the API: its host names, and how it identifies clients. */
export interface ApiListener {
  serves(hostname: string): boolean
  /** Sentence for clients that use another host name. */
  readonly advice: string
  clientOf(request: Request): string
  /**
   * Caller of every request: the file system restricts access to the listener. Undefined: requests need a
   * token.
   */
  readonly caller?: Caller
}

/**
 * The listener on the device. It rejects unknown host names, but accepts addresses: DNS rebinding needs a
 * name, and an address cannot belong to another host. `host` is the configured listen address.
 */
export function localListener(host: string): ApiListener {
  const own = new Set(['localhost', host.toLowerCase()])
  return {
    serves: (hostname) => own.has(hostname) || isIP(hostname.replace(/^\[|\]$/g, '')) !== 0,
    advice: 'Use localhost or the IP address of the device.',
    clientOf: peerAddress,
  }
}

/** The socket at the end of the agent's own tunnel: the public domain, and callers far away. */
export function tunnelListener(domain: string): ApiListener {
  return {
    serves: (hostname) => hostname === domain,
    advice: 'Use the domain set in AGENT_DOMAIN.',
    clientOf: forwardedAddress,
  }
}

/**
 * The socket of the command line on the device. No token: root and the group of the service open it,
 * as the file system says, and no browser does.
 */
export function commandLineListener(): ApiListener {
  return {
    serves: (hostname) => hostname === 'localhost',
    advice: 'Use localhost.',
    clientOf: () => 'local',
    caller: { actor: { kind: 'command-line', id: null, name: 'local socket' }, scope: 'write' },
  }
}

import type { Asker } from '../../../policy/outbound/outbound-allow.ts'
import type { NameState } from '../../endpoints/host-table.ts'
import type { LocalReply } from './local-reply.ts'

/** Origin of a policy's request, and the account whose internal endpoints it can find. */
export interface InternalAsk {
  readonly asker: Asker
  readonly ownerId: string | null
}

/** A request that a policy at another node forwarded, in the form for the device. */
export interface HandedOn {
  readonly url: URL
  /** Account whose internal endpoints it may reach. */
  readonly ownerId: string | null
  readonly askDepth: number
  /** How many endpoints have handed it on. */
  readonly hops: number
  /** The cookies of a log-in are no business of the device. */
  readonly withholdsLogin: boolean
}

/** Another node, by which a visitor has come. */
export interface PeerEntry {
  readonly nodeId: string
  /** Breaks the connection off, and tells the node why. */
  refuse(reason: RefusalReason): void
  readonly handed: HandedOn | undefined
}

/** A policy has closed the connection, or the endpoint is not served here. */
export type RefusalReason = 'policy' | 'not-mine'

/**
 * Entry of a connection: one of the two listeners of an ingress, a policy, or the listener of another node.
 */
export interface IngressListener {
  readonly scheme: 'http' | 'https'
  /** A plain listener that others than this machine can reach redirects visitors of `https` endpoints. */
  readonly redirectsToHttps: boolean
  /** A policy's request to an internal endpoint; undefined for visitors, which cannot find these. */
  readonly internal?: InternalAsk | undefined
  readonly peer?: PeerEntry
  /** The visitor came through another node, so it is not passed on again: no circles. */
  readonly staysHere?: boolean
}

/** Facts of a name that are known while its device is disconnected. */
type Addressed = Pick<NameState, 'protocol' | 'url'>

/** Whether requests for the endpoint belong here, or have to go to the other listener. */
export function admit(
  listener: IngressListener,
  endpoint: Addressed,
): 'serve' | 'redirect' | 'refuse' | 'misdirect' {
  if (endpoint.protocol === listener.scheme) return 'serve'
  // The name belongs to a TLS endpoint. A browser that reused the connection of another name under the same
  // certificate then opens a separate connection (RFC 9110 15.5.20).
  if (listener.scheme === 'https' && endpoint.protocol === 'tls') return 'misdirect'
  if (listener.scheme === 'https' || endpoint.protocol !== 'https') return 'refuse'
  return listener.redirectsToHttps ? 'redirect' : 'serve'
}

/** 308 keeps the method. The port is that of the endpoint's URL. */
export function redirectToHttps(endpoint: Addressed, hostname: string, target: string): LocalReply {
  const port = /:[0-9]+$/.exec(endpoint.url)?.[0] ?? ''
  const path = target === '*' ? '/' : target
  return { status: 308, fields: ['location', `https://${hostname}${port}${path}`], body: '' }
}

import type { Endpoint } from '../endpoints/endpoint.ts'
import type { LocalReply } from './local-reply.ts'

/** One of the two listeners of an ingress, as the connections that it accepts know it. */
export interface IngressListener {
  readonly scheme: 'http' | 'https'
  /** A plain listener that others than this machine can reach redirects visitors of `https` endpoints. */
  readonly redirectsToHttps: boolean
}

/** Whether requests for the endpoint belong here, or have to go to the other listener. */
export function admit(
  listener: IngressListener,
  endpoint: Endpoint,
): 'serve' | 'redirect' | 'refuse' {
  if (endpoint.protocol === listener.scheme) return 'serve'
  if (listener.scheme === 'https') return 'refuse'
  return listener.redirectsToHttps ? 'redirect' : 'serve'
}

/** 308 keeps the method; the port is the one that the endpoint's URL has. */
export function redirectToHttps(endpoint: Endpoint, hostname: string, target: string): LocalReply {
  const port = /:[0-9]+$/.exec(endpoint.url)?.[0] ?? ''
  const path = target === '*' ? '/' : target
  return { status: 308, fields: ['location', `https://${hostname}${port}${path}`], body: '' }
}

import type { Endpoint } from '../endpoints/endpoint.ts'
import type { LocalReply } from './local-reply.ts'

/** One of the two doors of an ingress. */
export interface Front {
  readonly scheme: 'http' | 'https'
  /** A plain door that others than this machine can reach sends visitors of `https` endpoints on. */
  readonly redirectsToHttps: boolean
}

/** Whether requests for the endpoint belong here, or have to go to the other door. */
export function admit(front: Front, endpoint: Endpoint): 'serve' | 'redirect' | 'refuse' {
  if (endpoint.protocol === front.scheme) return 'serve'
  if (front.scheme === 'https') return 'refuse'
  return front.redirectsToHttps ? 'redirect' : 'serve'
}

/** 308 keeps the method; the port is the one that the endpoint's URL has. */
export function redirectToHttps(endpoint: Endpoint, hostname: string, target: string): LocalReply {
  const port = /:[0-9]+$/.exec(endpoint.url)?.[0] ?? ''
  const path = target === '*' ? '/' : target
  return { status: 308, fields: ['location', `https://${hostname}${port}${path}`], body: '' }
}

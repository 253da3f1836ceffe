import type { EndpointFacts } from '../../policy/exchange/policy-exchange.ts'
import type { Endpoint } from './endpoint.ts'

const PORT = /:([0-9]+)$/

/** What a policy may know of its endpoint. */
export function endpointFacts({ id, url, host, protocol }: Endpoint): EndpointFacts {
  const port = Number(PORT.exec(url)?.[1] ?? (protocol === 'http' ? 80 : 443))
  return { id, url, host: host.replace(PORT, ''), port, protocol }
}

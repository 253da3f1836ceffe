import type { EndpointFacts } from '../../policy/exchange/policy-exchange.ts'
import type { Endpoint } from './endpoint.ts'

const PORT = /:([0-9]+)$/

const known = new WeakMap<Endpoint, EndpointFacts>()

/** What a policy may know of its endpoint. It stays the same, and is asked for with each request. */
export function endpointFacts(endpoint: Endpoint): EndpointFacts {
  let facts = known.get(endpoint)
  if (!facts) {
    facts = readFacts(endpoint)
    known.set(endpoint, facts)
  }
  return facts
}

function readFacts({ id, url, host, protocol }: Endpoint): EndpointFacts {
  const port = Number(PORT.exec(url)?.[1] ?? (protocol === 'http' ? 80 : 443))
  return { id, url, host: host.replace(PORT, ''), port, protocol }
}

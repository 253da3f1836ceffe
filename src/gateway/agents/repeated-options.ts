import type { BindRequest } from './control-message.ts'

/** What those of TLS endpoints are, where the SDK wants to hear them again. */
const NOTHING = { MutualTLSAtEdge: null, TLSTermination: null, IPRestriction: null }

/**
 * The options of a bind as its answer repeats them. The SDK reads them and does nothing with them;
 * those of a TLS endpoint may hold a private key, which is not sent about.
 */
export function repeatedOptions({ Proto, Opts }: BindRequest): object {
  if (Proto !== 'tls') return Opts
  const { Domain, Hostname, Subdomain, ProxyProto = 0 } = Opts
  const named = { Domain, Hostname, Subdomain, ProxyProto }
  return { ...named, MutualTLSAtAgent: false, ...NOTHING, TrafficPolicy: null }
}

import { asDuplex } from '../../muxado/duplex.ts'
import type { PolicyReach } from '../../policy/outbound/policy-reach.ts'
import { IpPolicyRanges, type IpPolicyRangesOptions } from '../access/ip-policy-ranges.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'

/** Whom a device sees that a policy calls. */
const OWN_ADDRESS = '127.0.0.1:0'

export interface PolicyReachDeps extends IpPolicyRangesOptions {
  readonly registry: EndpointRegistry
}

/** What policies find here: internal endpoints and IP policies. */
export function policyReach({ registry, ...stores }: PolicyReachDeps): PolicyReach {
  const ranges = new IpPolicyRanges(stores)
  return {
    ipPolicy: (id) => ranges.of(id),
    hasInternal: (url) => registry.matchInternal(url) !== undefined,
    connectInternal: (url) => {
      const endpoint = registry.matchInternal(url)
      // Only a device has a service to connect to.
      if (endpoint?.type !== 'agent') return undefined
      const stream = endpoint.streams.open(OWN_ADDRESS)
      return stream && asDuplex(stream.stream).once('close', () => stream.retire())
    },
  }
}

import type { PolicyReach } from '../../policy/outbound/policy-reach.ts'
import { IpPolicyRanges, type IpPolicyRangesOptions } from '../access/ip-policy-ranges.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'

export interface PolicyReachDeps
  extends IpPolicyRangesOptions,
    Pick<PolicyReach, 'connectInternal' | 'sealDepth'> {
  readonly registry: EndpointRegistry
}

/** What policies find here: internal endpoints and IP policies. */
export function policyReach({
  registry,
  connectInternal,
  sealDepth,
  ...stores
}: PolicyReachDeps): PolicyReach {
  const ranges = new IpPolicyRanges(stores)
  return {
    ipPolicy: (id) => ranges.of(id),
    hasInternal: (url) => registry.matchInternal(url) !== undefined,
    connectInternal,
    sealDepth,
  }
}

import type { Duplex } from 'node:stream'
import { type AllowEntry, mayDial, mayRead } from '../../policy/outbound/outbound-allow.ts'
import type { Asker, PolicyReach } from '../../policy/outbound/policy-reach.ts'
import type { AccountSecrets } from '../access/account-secrets.ts'
import { IpPolicyRanges, type IpPolicyRangesOptions } from '../access/ip-policy-ranges.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'

/** Where requests of policies come in like those of visitors. */
export interface InternalEntry {
  /** See `PolicyReach`; the endpoint is one that policies of this account find. */
  connectInternal(url: URL, ownerId: string | null, asker: Asker | undefined): Duplex | undefined
  /** See `PolicyReach`. */
  sealDepth(depth: number): string
}

export interface PolicyReachDeps extends IpPolicyRangesOptions, Pick<PolicyReach, 'hasTable'> {
  /** Who has internal endpoints, at this node or another one. */
  readonly registry: Pick<EndpointRegistry, 'hasInternal'>
  readonly ingress: InternalEntry
  readonly secrets: AccountSecrets
  /** Where policies may connect to beside internal endpoints, and which files they may read. */
  readonly outboundAllow: readonly AllowEntry[]
}

/** What the policies of an account reach: its internal endpoints, IP policies, what is listed. */
export function policyReach({
  registry,
  ingress,
  secrets,
  outboundAllow,
  hasTable,
  ...stores
}: PolicyReachDeps): (ownerId: string | null) => PolicyReach {
  const ranges = new IpPolicyRanges(stores)
  return (ownerId) => ({
    hasTable,
    ipPolicy: (id) => ranges.of(id),
    mayDial: (target) => mayDial(outboundAllow, target),
    mayRead: (path) => mayRead(outboundAllow, path),
    secretFor: (purpose) => secrets.secretFor(ownerId, purpose),
    hasInternal: (url) => registry.hasInternal(url, ownerId),
    connectInternal: (url, asker) => ingress.connectInternal(url, ownerId, asker),
    sealDepth: (depth) => ingress.sealDepth(depth),
  })
}

import type { WantedName } from '../access/name-claims.ts'
import type { Endpoint } from '../endpoints/endpoint.ts'
import { carriesRequests, type EndpointProtocol } from '../records/endpoint-protocol.ts'
import type { AgentDeps } from './agent-deps.ts'
import type { Binding, CompiledBinding } from './binder.ts'
import type { BindRequest } from './control-message.ts'
import { findPredecessor } from './predecessor.ts'
import type { TableEntry } from './session-table.ts'

/**
 * What it takes for a session to open an endpoint: a right, a certificate or a port, a policy. Throws
 * the ServiceError that the agent is refused with.
 */
export async function prepareBinding(
  request: BindRequest,
  session: TableEntry,
  deps: AgentDeps,
): Promise<CompiledBinding> {
  const { binder, sessions, coverHost, openAddress } = deps
  const binding = binder.judge(request, {
    ...session.identity,
    pairedHost: (protocol, forwardsTo) => pairedHost(session, protocol, forwardsTo),
  })
  sessions.checkRoom(session, binding)
  checkQuota(binding, findPredecessor(binding, session, deps)?.endpoint, deps)
  const { host, protocol } = binding
  if (protocol !== 'tcp') await coverHost(host)
  const compiled = await binder.compile(binding, session.identity.credentialId)
  // Last: a port is listened on for as long as the registry has its address.
  if (protocol === 'tcp') await openAddress(host)
  return compiled
}

/**
 * Agents of version 2 bind a tunnel twice, for HTTP and for HTTPS, and show both as one: a random name
 * is the same for both.
 */
function pairedHost(
  session: TableEntry,
  protocol: EndpointProtocol,
  forwardsTo: string,
): string | undefined {
  if (!session.identity.isOfVersion2 || !carriesRequests(protocol)) return undefined
  const others = session
    .endpoints()
    .filter((one) => one.isDrawn && one.protocol !== protocol && carriesRequests(one.protocol))
  return others.find((one) => one.forwardsTo === forwardsTo)?.host
}

/**
 * Throws ServiceError 18021 when the account may have no more online. What a device takes back counts as
 * it did: only a longer policy needs room.
 */
export function checkQuota(
  {
    ownerId,
    trafficPolicy,
    ...address
  }: Pick<Binding, 'ownerId' | 'trafficPolicy' | 'host' | 'protocol'>,
  before: Pick<Endpoint, 'trafficPolicy'> | undefined,
  { quotas, registry }: Pick<AgentDeps, 'quotas' | 'registry'>,
): void {
  if (!before) {
    // A name that is held for its device stays above a quota, too.
    if (!registry.awayAt(address, ownerId)) quotas.checkBind(ownerId, address, trafficPolicy)
    return
  }
  const grown =
    Buffer.byteLength(trafficPolicy ?? '') - Buffer.byteLength(before.trafficPolicy ?? '')
  quotas.check(ownerId, 'policy_bytes', grown)
}

type NameField =
  | ('host' | 'protocol' | 'url' | 'ownerId')
  | ('isShared' | 'isPooled' | 'poolMember' | 'policy')

/** The name of an endpoint that a session is about to open. */
export function wantedName(
  {
    host,
    protocol,
    url,
    ownerId,
    isShared,
    isPooled,
    poolMember,
    policy,
  }: Pick<CompiledBinding, NameField>,
  session: TableEntry,
  id: string,
): WantedName {
  return {
    ...{ host, protocol, url, ownerId, isShared, session, policy },
    member: isPooled ? (poolMember ?? id) : '',
    endsTls: policy.hasConnectRules && policy.has('on_tcp_connect', 'terminate-tls'),
  }
}

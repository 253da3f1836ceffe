import { PolicyError } from '../../policy/document/problem.ts'
import type { WantedName } from '../access/name-claims.ts'
import { isSameDevice } from '../endpoints/away-name.ts'
import type { AgentEndpoint, Endpoint } from '../endpoints/endpoint.ts'
import { checkAddressFree } from '../endpoints/endpoint-host.ts'
import { problemsText } from '../endpoints/endpoint-policies.ts'
import { isPooled } from '../endpoints/endpoint-pool.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import { carriesRequests, type EndpointProtocol } from '../records/endpoint-protocol.ts'
import { ServiceError } from '../records/service-error.ts'
import type { AgentDeps } from './agent-deps.ts'
import { upstreamNoticeIn } from './agent-notice.ts'
import { type Binding, type CompiledBinding, checkTexts } from './binder.ts'
import type { BindRequest, PatchRequest } from './control-message.ts'
import {
  isSameInstance,
  isSameProcess,
  type SessionTable,
  type TableEntry,
} from './session-table.ts'

/** The endpoint that a bind takes over, and whose it is. */
interface Predecessor {
  readonly endpoint: AgentEndpoint
  readonly session: TableEntry
}

interface Places {
  readonly registry: EndpointRegistry
  readonly sessions: SessionTable
}

/**
 * The endpoint whose name a session may take over: one of its own, where its agent says which device
 * it is, or one of another session of the same process. Of a pool it is the place that the device has
 * in it. Undefined when the name is free, or there is room in the pool. Throws the ServiceError of
 * `checkAddressFree` when others keep it off.
 */
export function findPredecessor(
  binding: Pick<Binding, 'host' | 'ownerId' | 'protocol' | 'isShared' | 'isPooled'>,
  asking: TableEntry,
  { registry, sessions }: Places,
): Predecessor | undefined {
  const { ownerId, protocol } = binding
  let found: Predecessor | undefined
  for (const endpoint of registry.holdersOf(binding, ownerId)) {
    if (endpoint.type !== 'agent') continue
    if (endpoint.ownerId !== ownerId || endpoint.protocol !== protocol) continue
    const session = sessions.find(endpoint.sessionId)
    if (session && mayReplace(session, asking)) found = { endpoint, session }
  }
  announceHeir(binding, asking, { registry, sessions })
  checkAddressFree(binding, registry, found?.endpoint)
  checkHeld(binding, asking, registry)
  return found
}

/**
 * The authtoken of a process is one of another account now: its older session has to unbind the name
 * first. That session learns which one comes next, so that visitors wait in between.
 */
function announceHeir(
  binding: Pick<Binding, 'host' | 'ownerId' | 'protocol' | 'isShared' | 'isPooled'>,
  asking: TableEntry,
  { registry, sessions }: Places,
): void {
  const { host, protocol, ownerId, isShared, isPooled } = binding
  const holder = registry.foreignHolder(binding, ownerId)
  if (holder?.type !== 'agent') return
  const session = sessions.find(holder.sessionId)
  if (!session || !isSameInstance(session.identity, asking.identity)) return
  const { credentialId, deviceId, instance } = asking.identity
  const device = { ownerId, credentialId, deviceId, instance }
  const facts = { ...device, host, protocol, url: holder.url, isShared, isPooled }
  session.leaveTo(holder, { sessionId: asking.id, facts })
}

/** Throws ServiceError 334 while a name is held for another device of the account. */
function checkHeld(
  binding: Parameters<typeof findPredecessor>[0],
  { identity }: TableEntry,
  registry: EndpointRegistry,
): void {
  const name = registry.awayAt(binding, binding.ownerId)
  if (!name || name.isPooled || !registry.isHeld(name) || isSameDevice(name, identity)) return
  throw new ServiceError(
    334,
    `The name ${name.host} is held for another device, which was here a moment ago. Try again in some seconds.`,
  )
}

function mayReplace(session: TableEntry, asking: TableEntry): boolean {
  if (session === asking) return asking.identity.deviceId !== undefined
  return isSameProcess(session.identity, asking.identity)
}

/**
 * Changes an endpoint that is online: only what the agent names. Its address, id, streams and counts stay,
 * and the rules of its options stand around the new policy. `isCurrent` says whether the endpoint is still
 * the session's. Throws the ServiceError that the agent is refused with.
 */
export async function patchEndpoint(
  before: AgentEndpoint,
  change: PatchRequest,
  session: TableEntry,
  deps: AgentDeps,
  isCurrent: () => boolean,
): Promise<AgentEndpoint> {
  const { registry, names, quotas, sessions, clock } = deps
  const { Name: name = before.name ?? '', Description: description = before.description ?? '' } =
    change
  const { Metadata: metadata = before.metadata, PoolingEnabled: isMember = isPooled(before) } =
    change
  const trafficPolicy =
    change.TrafficPolicy === undefined ? before.trafficPolicy : change.TrafficPolicy || null
  checkTexts({ metadata, name, description })
  sessions.countBind(session)
  const poolMember = isMember
    ? (before.poolMember ?? session.identity.deviceId ?? before.id)
    : undefined
  const policy =
    change.TrafficPolicy === undefined && poolMember === before.poolMember
      ? before.policy
      : await compile({ ...before, trafficPolicy, poolMember }, before, deps)
  const after: AgentEndpoint = {
    ...{ ...before, name, description, metadata, trafficPolicy, policy, poolMember },
    updatedAt: clock.now(),
    answerMs: upstreamNoticeIn(metadata)?.answerMs,
  }
  const isShared = registry.isShared(before)
  const open = () => {
    if (!isCurrent()) throw new ServiceError(333, 'The endpoint was closed meanwhile.')
    checkAddressFree({ ...after, isShared, isPooled: isMember }, registry, before)
    checkQuota(after, before, { quotas, registry })
    registry.replace(before, after)
    return after
  }
  const wanted = { ...after, poolMember, isShared, isPooled: isMember }
  return names.open(wantedName(wanted, session, before.id), open)
}

async function compile(
  after: AgentEndpoint,
  before: AgentEndpoint,
  { policies }: Pick<AgentDeps, 'policies'>,
) {
  try {
    return await policies.compileInTurns(after.trafficPolicy, after, () => before.policy)
  } catch (error) {
    if (error instanceof PolicyError) throw new ServiceError(9026, problemsText(error))
    throw error
  }
}

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
  // Must run last: a port is kept open only while the registry has its address.
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

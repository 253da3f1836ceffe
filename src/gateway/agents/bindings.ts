import type { WantedName } from '../access/name-claims.ts'
import { isSameDevice } from '../endpoints/disconnected-name.ts'
import type { AgentEndpoint, Endpoint } from '../endpoints/endpoint.ts'
import { checkAddressFree } from '../endpoints/endpoint-host.ts'
import { refusedTodayText } from '../endpoints/endpoint-policies.ts'
import { isPooled } from '../endpoints/endpoint-pool.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import { isPortTaken } from '../endpoints/tcp-addresses.ts'
import { carriesRequests, type EndpointProtocol } from '../records/endpoint-protocol.ts'
import { ServiceError } from '../records/service-error.ts'
import type { AgentDeps } from './agent-deps.ts'
import { upstreamNoticeIn } from './agent-notice.ts'
import { type Binding, bindRefusal, type CompiledBinding, checkTexts } from './binder.ts'
import type { BindRequest, PatchRequest } from './control-message.ts'
import {
  isSameInstance,
  isSameProcess,
  type SessionTable,
  type TableEntry,
} from './session-table.ts'

/** The endpoint that a bind takes over, and its session. */
interface Predecessor {
  readonly endpoint: AgentEndpoint
  readonly session: TableEntry
}

/** Maximum number of ports that one bind tries. */
const MAX_DRAWS = 32

interface Places {
  readonly registry: EndpointRegistry
  readonly sessions: SessionTable
}

/**
 * Returns the endpoint whose name a session may take over. It is an endpoint of another session of the same
 * process, or its own if the agent reports a device id. In a pool, it is the device's own member. Undefined
 * if the name is free, or the pool has room. Throws the ServiceError of `checkAddressFree` if the address is
 * taken.
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
 * Handles a process that changes to an authtoken of another account: its older session must unbind the name
 * first. Tells that session which session comes next, so that visitors wait in between.
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
  const name = registry.disconnectedAt(binding, binding.ownerId)
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
 * Applies the changes that the agent names to an online endpoint. It keeps its address, id, streams and
 * counters. The rules of its options stay around the new policy. `isCurrent` tells whether the endpoint still
 * belongs to the session. Throws a ServiceError as refusal.
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
  const { credentialId } = session.identity
  checkTexts({ metadata, name, description })
  sessions.countBind(session)
  const poolMember = isMember
    ? (before.poolMember ?? session.identity.deviceId ?? before.id)
    : undefined
  const policy =
    change.TrafficPolicy === undefined && poolMember === before.poolMember
      ? before.policy
      : await compile({ ...before, trafficPolicy, poolMember, credentialId }, before, deps)
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
  after: AgentEndpoint & Pick<Binding, 'credentialId'>,
  before: AgentEndpoint,
  { policies }: Pick<AgentDeps, 'policies'>,
) {
  try {
    const isStored = after.trafficPolicy === before.trafficPolicy
    return await policies.compileInTurns(
      after.trafficPolicy,
      { ...after, isStored },
      () => before.policy,
    )
  } catch (error) {
    throw bindRefusal(error)
  }
}

/**
 * Prepares an endpoint of a session: checks the right, gets a certificate or port, and compiles the policy.
 * Skips ports that other programs have, if the gateway chooses the port. Throws a ServiceError as refusal.
 */
export async function prepareBinding(
  request: BindRequest,
  session: TableEntry,
  deps: AgentDeps,
): Promise<CompiledBinding> {
  let refused: { readonly host: string; readonly error: unknown } | undefined
  for (let draws = 1; ; draws += 1) {
    const binding = await prepareOnce(request, session, deps)
    const { host, protocol, isDrawn } = binding
    if (protocol !== 'tcp') return binding
    // A tunnel gets the address that it had before, even if the port is taken.
    if (refused?.host === host) throw refused.error
    try {
      // Must run last: a port without an endpoint is closed after some time.
      await deps.openAddress(host)
      return binding
    } catch (error) {
      const isTaken = error instanceof ServiceError && isPortTaken(error.cause)
      if (!isDrawn || !isTaken || draws === MAX_DRAWS) throw error
      refused = { host, error }
    }
  }
}

async function prepareOnce(
  request: BindRequest,
  session: TableEntry,
  deps: AgentDeps,
): Promise<CompiledBinding> {
  const { binder, sessions, coverHost, log } = deps
  const binding = binder.judge(request, {
    ...session.identity,
    pairedHost: (protocol, forwardsTo) => pairedHost(session, protocol, forwardsTo),
  })
  sessions.checkRoom(session, binding)
  checkQuota(binding, findPredecessor(binding, session, deps)?.endpoint, deps)
  const { host, protocol, ownerId } = binding
  if (protocol !== 'tcp') await coverHost(host, ownerId)
  const compiled = await binder.compile(binding, session.identity.credentialId)
  const problem = refusedTodayText(compiled.policy)
  if (problem) log.warn({ session: session.id, host, problem }, 'endpoint has an outdated policy')
  return compiled
}

/**
 * Agents of version 2 bind a tunnel twice, for HTTP and for HTTPS, and show both as one. So a random name is
 * the same for both.
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
 * Throws ServiceError 18021 if the account may have no more endpoints online. Endpoints that a device takes
 * back are already counted: only a longer policy needs room.
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
    // A name that is held for its device is accepted even above the quota.
    if (!registry.disconnectedAt(address, ownerId))
      quotas.checkBind(ownerId, address, trafficPolicy)
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

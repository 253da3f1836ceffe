import { PolicyError } from '../../policy/document/problem.ts'
import type { AgentEndpoint } from '../endpoints/endpoint.ts'
import { checkAddressFree } from '../endpoints/endpoint-host.ts'
import { problemsText } from '../endpoints/endpoint-policies.ts'
import { isPooled } from '../endpoints/endpoint-pool.ts'
import { ServiceError } from '../records/service-error.ts'
import type { AgentDeps } from './agent-deps.ts'
import { checkTexts } from './binder.ts'
import type { PatchRequest } from './control-message.ts'
import { checkQuota, wantedName } from './prepare-binding.ts'
import type { TableEntry } from './session-table.ts'
import { upstreamNoticeIn } from './upstream-notice.ts'

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

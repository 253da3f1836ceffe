import type { AgentEndpoint } from '../endpoints/endpoint.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import { ServiceError } from '../records/service-error.ts'
import type { Binding } from './binder.ts'
import { isSameProcess, type SessionTable, type TableEntry } from './session-table.ts'

/** The endpoint that a bind takes over, and whose it is. */
export interface Predecessor {
  readonly endpoint: AgentEndpoint
  readonly session: TableEntry
}

interface Places {
  readonly registry: EndpointRegistry
  readonly sessions: SessionTable
}

/**
 * The endpoint whose name a session may take over: one of its own, where its agent says which device
 * it is, or one of another session of the same process. Undefined when the name is free. Throws
 * ServiceError 334 when somebody else has it.
 */
export function findPredecessor(
  binding: Pick<Binding, 'host' | 'ownerId' | 'protocol' | 'isShared'>,
  asking: TableEntry,
  { registry, sessions }: Places,
): Predecessor | undefined {
  const { host, ownerId, protocol, isShared } = binding
  const holder = registry.holderOf(binding, ownerId)
  const sharer = isShared ? registry.sharerOf(binding) : undefined
  if (!holder && !sharer) return undefined
  const isOwn = holder?.type === 'agent' && holder.ownerId === ownerId
  if (isOwn && holder.protocol === protocol && (sharer ?? holder) === holder) {
    const session = sessions.find(holder.sessionId)
    if (session && mayReplace(session, asking)) return { endpoint: holder, session }
  }
  throw new ServiceError(334, `The endpoint ${(holder ?? sharer)?.url ?? host} is online already.`)
}

function mayReplace(session: TableEntry, asking: TableEntry): boolean {
  if (session === asking) return asking.identity.deviceId !== undefined
  return isSameProcess(session.identity, asking.identity)
}

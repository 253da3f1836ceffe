import { isSameDevice } from '../endpoints/away-name.ts'
import type { AgentEndpoint } from '../endpoints/endpoint.ts'
import { checkAddressFree } from '../endpoints/endpoint-host.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import { ServiceError } from '../records/service-error.ts'
import type { Binding } from './binder.ts'
import {
  isSameInstance,
  isSameProcess,
  type SessionTable,
  type TableEntry,
} from './session-table.ts'

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

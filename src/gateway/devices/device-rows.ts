import type { AgentIdentity, ConnectedAgent } from '../endpoints/connected-agent.ts'
import { type Device, type DeviceFacts, MOST_URLS } from '../records/device-store.ts'
import type { IdSource } from '../records/resource-id.ts'

/** Devices of one account. */
export const MOST_DEVICES = 10_000

const NO_FACTS: DeviceFacts = {
  ip: '',
  hostname: '',
  agentVersion: '',
  os: '',
  arch: '',
  endpoints: [],
}

/** A device that nobody has seen yet. */
export function newDevice(
  made: Pick<Device, 'id' | 'ownerId' | 'credentialId' | 'createdAt'> & Partial<Device>,
): Device {
  return {
    deviceId: null,
    name: '',
    metadata: '',
    tags: [],
    isProvisioned: false,
    isOnline: false,
    since: null,
    seenAt: null,
    goneReason: null,
    facts: NO_FACTS,
    duplicate: null,
    ...made,
  }
}

/** What tells a device from all others: its own id within its account, else its authtoken. */
export function identityKey({
  ownerId,
  deviceId,
  credentialId,
}: Pick<AgentIdentity, 'ownerId' | 'credentialId'> & {
  readonly deviceId?: string | null | undefined
}): string {
  return typeof deviceId === 'string'
    ? `device ${ownerId ?? ''} ${deviceId}`
    : `authtoken ${credentialId}`
}

/** Where rows are found, with what is not written yet. */
export interface DeviceRows {
  findByDevice(ownerId: string | null, deviceId: string): Device | undefined
  findByCredential(credentialId: string): Device | undefined
}

/**
 * The row of who connects: its own, else one that was made for its authtoken and that nobody has
 * taken, else a new one.
 */
export function rowFor(
  identity: AgentIdentity,
  { rows, ids, now }: { rows: DeviceRows; ids: IdSource; now: number },
): Device {
  const { ownerId, credentialId, deviceId = null } = identity
  const own = deviceId === null ? undefined : rows.findByDevice(ownerId, deviceId)
  if (own) return { ...own, credentialId }
  const made = rows.findByCredential(credentialId)
  const isTaken = deviceId !== null && (made?.isOnline || !made?.isProvisioned)
  if (made && !isTaken) return { ...made, deviceId }
  return newDevice({ id: ids.next('dv'), ownerId, credentialId, deviceId, createdAt: now })
}

export function urlsOf(sessions: Iterable<ConnectedAgent>): string[] {
  return [...sessions].flatMap((agent) => agent.endpoints().map(({ url }) => url))
}

export function factsOf({ identity }: ConnectedAgent, urls: readonly string[]): DeviceFacts {
  const { remoteAddress, hostname, agentVersion, os, arch } = identity
  const ip = remoteAddress.replace(/:\d+$/, '').replace(/^\[|\]$/g, '')
  const endpoints = [...new Set(urls)].sort().slice(0, MOST_URLS)
  return { ip, hostname, agentVersion, os, arch, endpoints }
}

/** A row has a credential in any case when it has no id of its own. */
export function keyOf({ ownerId, deviceId, credentialId }: Device): string {
  return identityKey({ ownerId, deviceId, credentialId: credentialId ?? '' })
}

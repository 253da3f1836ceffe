import * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import type { ConnectedAgent } from '../../endpoints/endpoint.ts'
import { GONE_REASONS } from '../../endpoints/endpoint.ts'
import type { OtherGateways } from '../../ports/other-gateways.ts'
import type { CredentialStore } from '../../records/credential-store.ts'
import type { IdSource } from '../../records/resource-id.ts'
import { present, ServiceError } from '../../records/service-error.ts'
import { sees } from '../common/caller.ts'
import { elsewhere } from '../common/elsewhere.ts'
import { itemFields, Reference, Timestamp, timestamp } from '../common/request.ts'
import { type Resource, withBody } from '../common/resource.ts'
import { MAX_DEVICES, newDevice } from './device-journal.ts'
import type { Device, DeviceStore } from './device-store.ts'
import type { Devices } from './devices.ts'

const MAX_TAGS = 32
const TAG = /^[\p{L}\p{N}][\p{L}\p{N}._:=@/+-]{0,63}$/u

/** Tags of a device. */
export const Tags = z
  .array(
    z.string().regex(TAG, {
      message:
        'a tag has up to 64 letters, digits and . _ : = @ / + -, and starts with a letter or digit',
    }),
  )
  .max(MAX_TAGS)

const settings = {
  /** As people call it; an empty one gives the name of the machine again. */
  name: z.string().max(128).optional(),
  tags: Tags.optional(),
  metadata: z.string().max(4_096).optional(),
}
const DeviceCreate = z.strictObject({
  ...settings,
  /** The authtoken that it is going to sign in with; one device can be made for each. */
  credential_id: z.string(),
})
const DeviceUpdate = z.strictObject(settings)

const DeviceView = z.strictObject({
  ...itemFields,
  name: z.string(),
  tags: z.array(z.string()),
  metadata: z.string(),
  /** Made here, not only seen: it stays until it is deleted. */
  provisioned: z.boolean(),
  owner_id: z.string().nullable(),
  /** With which it signs in. */
  credential: Reference.nullable(),
  /** Device id from the agent; null before the first connection, and for agents without an id. */
  device_id: z.string().nullable(),
  /** `away`: not connected, and expected back any moment; `never`: not seen yet. */
  state: z.enum(['online', 'away', 'offline', 'never']),
  online: z.boolean(),
  /** When it came online or went. */
  since: Timestamp.nullable(),
  last_seen_at: Timestamp.nullable(),
  /** Why it is not online. */
  offline_reason: z.enum(GONE_REASONS).nullable(),
  ip: z.string(),
  hostname: z.string(),
  os: z.string(),
  arch: z.string(),
  agent_version: z.string(),
  latency_ms: z.number().nullable(),
  tunnel_sessions: z.array(Reference),
  /** URLs; for an offline device the last ones, at most 20. */
  endpoints: z.array(z.string()),
  /** Traffic of the online endpoints. */
  traffic: z.strictObject({
    requests: z.number(),
    refused: z.number(),
    bytes_in: z.number(),
    bytes_out: z.number(),
  }),
  /** Another process with its identity, the last time that it was refused. */
  duplicate: z.strictObject({ seen_at: Timestamp, ip: z.string() }).nullable(),
})

export interface DevicesDeps {
  readonly devices: Devices
  readonly deviceStore: DeviceStore
  readonly credentials: CredentialStore
  readonly ids: IdSource
  readonly others: OtherGateways
  readonly clock: Clock
}

type Viewed = z.infer<typeof DeviceView>
const isConnected = (view: Viewed) => view.tunnel_sessions.length > 0

/** Devices that were made here, or seen. They come online by themselves. */
export function devices(deps: DevicesDeps): Resource<Device> {
  const { devices, deviceStore, credentials, ids, others, clock } = deps
  const view = (device: Device, baseUrl: string) =>
    viewDevice(device, baseUrl, { ...deps, now: clock.now() })
  return {
    path: 'devices',
    noun: 'Device',
    collection: 'devices',
    prefix: 'dv',
    schema: DeviceView,
    page: (request) => devices.page(request),
    get: (id) => devices.get(id),
    view,
    keptView: (id, baseUrl) => {
      const kept = deviceStore.get(id)
      return kept && view(kept, baseUrl)
    },
    ownerOf: ({ ownerId }) => ownerId,
    elsewhere: elsewhere(others, 'devices'),
    isEverywhere: () => true,
    // All gateways know it. The gateway of its connection knows its figures.
    combine: (views) => views.find((it) => isConnected(it as Viewed)) ?? views[0],
    create: withBody({ DeviceCreate }, async (body, { baseUrl, caller }) => {
      const { credential_id: credentialId, ...given } = body
      const credential = credentials.get(credentialId)
      if (!credential || !sees(caller, credential.ownerId)) {
        throw new ServiceError(215, 'The field credential_id must be the id of an authtoken.')
      }
      const { ownerId } = credential
      const findFree = () => {
        const found = devices.findByCredential(credentialId)
        if (!found?.isProvisioned) return found
        const message = `The authtoken ${credentialId} already belongs to the device ${found.id}.`
        throw new ServiceError(831, message)
      }
      const before = findFree()
      const id = ids.next('dv')
      const fresh = newDevice({ id, ownerId, credentialId, createdAt: clock.now() })
      const device = { ...(before ?? fresh), ...settingsOf(given), isProvisioned: true }
      await devices.save(device, findFree)
      if (!deviceStore.get(device.id)) {
        throw new ServiceError(
          832,
          `The account is at its limit of ${MAX_DEVICES} devices. Delete old devices.`,
        )
      }
      return view(device, baseUrl)
    }),
    update: withBody({ DeviceUpdate }, async (body, { item }) => {
      const updated = { ...item, ...settingsOf(body) }
      await devices.save(updated, () => void present(deviceStore.get(item.id)))
      return devices.get(item.id) ?? updated
    }),
    remove: async (device) => {
      await devices.delete(device, () => {
        if (!devices.get(device.id)?.isOnline) return
        throw new ServiceError(833, 'The device is online. Stop it, or delete its authtoken first.')
      })
    },
  }
}

function settingsOf({ name, tags, metadata }: z.infer<typeof DeviceUpdate>): Partial<Device> {
  return {
    ...(name !== undefined && { name: name.trim() }),
    ...(tags && { tags: [...new Set(tags)].sort() }),
    ...(metadata !== undefined && { metadata }),
  }
}

function viewDevice(
  device: Device,
  baseUrl: string,
  { devices, credentials, now }: DevicesDeps & { readonly now: number },
): z.infer<typeof DeviceView> {
  const { id, credentialId, facts, duplicate, since, seenAt } = device
  const sessions = devices.sessionsOf(device)
  const state = devices.stateOf(device)
  const { ip, hostname, os, arch, agentVersion } = facts
  const credential = credentialId === null ? undefined : credentials.get(credentialId)
  const seen = state === 'online' ? now : seenAt
  return {
    id,
    uri: `${baseUrl}/devices/${id}`,
    created_at: timestamp(device.createdAt),
    name: shownName(device, credentials),
    tags: [...device.tags],
    metadata: device.metadata,
    provisioned: device.isProvisioned,
    owner_id: device.ownerId,
    credential: credential
      ? { id: credential.id, uri: `${baseUrl}/credentials/${credential.id}` }
      : null,
    device_id: device.deviceId,
    state,
    online: state === 'online',
    since: since === null ? null : timestamp(since),
    last_seen_at: seen === null ? null : timestamp(seen),
    offline_reason: device.goneReason,
    ip,
    hostname,
    os,
    arch,
    agent_version: agentVersion,
    ...viewConnection(sessions, baseUrl),
    endpoints: endpointsOf(device, sessions),
    duplicate: duplicate && { seen_at: timestamp(duplicate.seenAt), ip: duplicate.ip },
  }
}

/** Name of a device: its given name, its host name, or the description of its authtoken. */
export function shownName(
  { id, name, facts, credentialId }: Device,
  credentials: CredentialStore,
): string {
  return name || facts.hostname || credentials.get(credentialId ?? '')?.description || id
}

function endpointsOf({ facts }: Device, sessions: readonly ConnectedAgent[]): string[] {
  if (sessions.length === 0) return [...facts.endpoints]
  return sessions.flatMap((agent) => agent.endpoints().map(({ url }) => url))
}

function viewConnection(sessions: readonly ConnectedAgent[], baseUrl: string) {
  const latencyMs = sessions.at(-1)?.latencyMs
  const traffic = { requests: 0, refused: 0, bytes_in: 0, bytes_out: 0 }
  for (const { traffic: it } of sessions.flatMap((agent) => agent.endpoints())) {
    traffic.requests += it.requests
    traffic.refused += it.refused
    traffic.bytes_in += it.bytesIn
    traffic.bytes_out += it.bytesOut
  }
  return {
    latency_ms: latencyMs === undefined ? null : Math.round(latencyMs * 1_000) / 1_000,
    tunnel_sessions: sessions.map((it) => ({
      id: it.id,
      uri: `${baseUrl}/tunnel_sessions/${it.id}`,
    })),
    traffic,
  }
}

import * as z from 'zod'
import type { ClientSettings } from '../../settings/gateway-settings.ts'
import type { AgentIdentity } from '../endpoints/endpoint.ts'
import type { Credential } from '../records/credential-store.ts'
import { isResourceId } from '../records/resource-id.ts'
import { checkLength, ServiceError } from '../records/service-error.ts'
import { findOlder } from './client-versions.ts'
import { type AuthRequest, PROTOCOL_VERSIONS } from './control-message.ts'

const MAX_METADATA = 4_096
/** Faster heartbeats would be work without benefit. */
const MIN_HEARTBEAT_MS = 500
const NS_PER_MS = 1_000_000

/**
 * Checks an agent before its identity is known. Throws ServiceError 811, 121, 100, 111 or 112 if it cannot be
 * served.
 */
export function checkAuth(
  { Version, Extra }: AuthRequest,
  { refuseBelow }: Pick<ClientSettings, 'refuseBelow'>,
): void {
  if (!commonVersion(Version)) {
    const offered = Version.join(', ') || 'none'
    const ours = PROTOCOL_VERSIONS.join(' and ')
    throw new ServiceError(
      811,
      `The agent supports the protocol versions ${offered}; this gateway supports ${ours}.`,
    )
  }
  const older = findOlder(Extra, refuseBelow)
  if (older) {
    const { found, least } = older
    throw new ServiceError(
      121,
      `The client ${found.name} ${found.version} is too old for this gateway. Update it to ${least.version} or newer.`,
    )
  }
  checkLength(Extra.Metadata, MAX_METADATA, 100, 'metadata')
  checkPeriod(Extra.HeartbeatInterval, 111, 'heartbeat interval')
  checkPeriod(Extra.HeartbeatTolerance, 112, 'heartbeat tolerance')
}

/** The best version that both sides support. */
export const commonVersion = (offered: readonly string[]): string | undefined =>
  PROTOCOL_VERSIONS.find((version) => offered.includes(version))

export function identify(
  { Version, ClientId, Extra }: AuthRequest,
  { id: credentialId, tokenHash, ownerId }: Credential,
  remoteAddress: string,
): AgentIdentity {
  return {
    credentialId,
    tokenHash,
    ownerId,
    presentedClientId: isResourceId(ClientId, 'ts') ? ClientId : undefined,
    ...readDevice(Extra.Metadata),
    legNumber: Extra.LegNumber ?? 0,
    agentVersion: Extra.Version,
    isOfVersion2: commonVersion(Version) === '2',
    os: Extra.OS,
    arch: Extra.Arch,
    hostname: Extra.Hostname,
    metadata: Extra.Metadata,
    remoteAddress,
    unsupported: {
      restart: Extra.RestartUnsupportedError,
      stop: Extra.StopUnsupportedError,
      update: Extra.UpdateUnsupportedError,
    },
  }
}

const mark = z.string().min(1).max(128).optional().catch(undefined)
const seconds = z.int().min(1).max(3_600)
const DeviceMetadata = z.object({
  device_id: mark,
  instance: mark,
  tells_complete: z.boolean().optional().catch(undefined),
  heartbeat: z.object({ interval_s: seconds, tolerance_s: seconds }).optional().catch(undefined),
})

/** Reads `{"device_id": "…", "instance": "…"}` from the metadata, which may contain any other text. */
export function readDevice(
  metadata: string,
): Pick<AgentIdentity, 'deviceId' | 'instance' | 'ownHeartbeatMs' | 'tellsComplete'> {
  const { device_id: deviceId, instance, heartbeat, tells_complete } = readMetadata(metadata)
  return {
    deviceId,
    instance: deviceId === undefined ? undefined : instance,
    tellsComplete: tells_complete === true,
    ownHeartbeatMs: heartbeat && (heartbeat.interval_s + heartbeat.tolerance_s) * 1_000,
  }
}

function readMetadata(metadata: string): z.infer<typeof DeviceMetadata> {
  try {
    return DeviceMetadata.safeParse(JSON.parse(metadata)).data ?? {}
  } catch {
    return {}
  }
}

function checkPeriod(ns: number | null | undefined, code: number, what: string): void {
  const ms = (ns ?? 0) / NS_PER_MS
  if (ms > 0 && ms < MIN_HEARTBEAT_MS) {
    throw new ServiceError(code, `The ${what} is ${ms} ms; the minimum is ${MIN_HEARTBEAT_MS} ms.`)
  }
}

import type { Device, GoneReason } from '../records/device-store.ts'
import type { EventType, NewEvent } from '../records/event-store.ts'

/** An attempt to sign in that was refused. */
export interface RefusedSignIn {
  /** The account of its authtoken; null also when that is not known here. */
  readonly ownerId: string | null
  /** What it calls itself: nobody has proved it. */
  readonly deviceId: string | undefined
  /** Without the port. */
  readonly ip: string
  /** Of the service, such as 107. */
  readonly code: number
  readonly message: string
}

/** What is told of a device that came online, or went. */
export function presenceEvent(
  type: Extract<EventType, 'device.online' | 'device.offline'>,
  device: Device,
  at: number,
): NewEvent {
  const { since, seenAt, goneReason, facts } = device
  return {
    at,
    type,
    ownerId: device.ownerId,
    details: {
      device: reference(device),
      since: iso(since),
      last_seen_at: iso(seenAt),
      ...(goneReason && { reason: goneReason, text: GONE_TEXTS[goneReason] }),
      ip: facts.ip,
      agent_version: facts.agentVersion,
    },
  }
}

export function duplicateEvent(device: Device, ip: string, at: number): NewEvent {
  const { ownerId, facts } = device
  const details = { device: reference(device), ip: facts.ip, refused_ip: ip }
  return { at, type: 'device.duplicate', ownerId, details }
}

export function refusedEvent(
  { ownerId, deviceId, ip, code, message }: RefusedSignIn,
  device: Device | undefined,
  at: number,
): NewEvent {
  const details = {
    device: device ? reference(device) : null,
    claimed_device_id: deviceId ?? null,
    ip,
    code: `ERR_NGROK_${code}`,
    text: message,
  }
  return { at, type: 'device.refused', ownerId, details }
}

/** For people. */
const GONE_TEXTS: Readonly<Record<GoneReason, string>> = {
  stopped: 'It said that it stops.',
  silent: 'It does not answer any more: no power, no network, or it hangs.',
  disconnected: 'Its connection broke, and it has not come back.',
  kicked: 'Somebody told it to stop.',
  revoked: 'Its authtoken is not valid any more.',
  duplicate: 'Another process with its identity took its place.',
  'gateway-restarted': 'It has not come back since the gateway was restarted.',
}

function reference({ id, deviceId, name, facts, tags }: Device): object {
  return { id, device_id: deviceId, name: name || facts.hostname || id, tags }
}

const iso = (ms: number | null) => (ms === null ? null : new Date(ms).toISOString())

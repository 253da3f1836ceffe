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
  stopped: 'The agent was stopped.',
  silent: 'No answer: no power, no network, or the agent hangs.',
  disconnected: 'The connection broke, and the agent has not reconnected.',
  kicked: 'The agent was stopped by command.',
  revoked: 'The authtoken is no longer valid.',
  duplicate: 'Another process with the same identity replaced it.',
  'gateway-restarted': 'Not reconnected since the gateway restarted.',
}

function reference({ id, deviceId, name, facts, tags }: Device): object {
  return { id, device_id: deviceId, name: name || facts.hostname || id, tags }
}

const iso = (ms: number | null) => (ms === null ? null : new Date(ms).toISOString())

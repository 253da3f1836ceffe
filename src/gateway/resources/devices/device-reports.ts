import type { GoneReason } from '../../endpoints/endpoint.ts'
import type { EventType, NewEvent } from '../../records/event-store.ts'
import type { Device, DeviceStore } from './device-store.ts'

/** An event that is not written yet. */
export interface News {
  readonly event: NewEvent
  /** Id of the device that came online or went offline. */
  readonly presenceOf?: string
}

/** A device in a cluster, with the row that other gateways may have written. */
interface Turn {
  readonly wanted: Device
  readonly stored: Device
  /** Another gateway reports the device, or this gateway reported it before. */
  readonly isOver: boolean
  /** As reported last. */
  isOnline: boolean
  isTold: boolean
}

/**
 * Compares the changes of this gateway with the rows that other gateways have written, and returns the valid
 * ones. Call it in the transaction that writes the result, because the rows may change before.
 *
 * The gateway that a device connected to last reports it. Online and offline events alternate, across
 * all gateways. A single gateway's changes are all valid.
 */
export function inTurns(
  rows: Iterable<Device>,
  news: readonly News[],
  { store, at }: { readonly store: DeviceStore; readonly at: number },
): { readonly rows: readonly Device[]; readonly events: readonly NewEvent[] } {
  const settled: Device[] = []
  const turns = new Map<string, Turn>()
  for (const row of rows) {
    const stored = writtenOf(row, store)
    const wanted = stored ? { ...row, ...givenOf(stored), id: stored.id } : row
    if (!stored || row.facts.node === undefined) {
      settled.push(wanted)
      continue
    }
    const isOver = cameAt(stored) > cameAt(wanted) && (stored.isOnline || !wanted.isOnline)
    turns.set(row.id, { wanted, stored, isOver, isOnline: stored.isOnline, isTold: false })
  }
  const events = news.filter((it) => isInTurn(it, turns)).map(({ event }) => event)
  for (const turn of turns.values()) {
    if (turn.isOver) continue
    const { wanted, stored } = turn
    const { isOnline } = wanted
    if (isOnline !== turn.isOnline) {
      const device = isOnline ? { ...wanted, since: at, seenAt: at } : wanted
      events.push(presenceEvent(isOnline ? 'device.online' : 'device.offline', device, at))
      settled.push(device)
    } else if (turn.isTold) settled.push(wanted)
    // If the device had disconnected before, the time and reason stay.
    else if (isOnline) settled.push({ ...wanted, since: stored.since })
  }
  return { rows: settled, events }
}

/** Fields that people may have changed meanwhile, also at another gateway. */
export function givenOf({ name, tags, metadata, isProvisioned }: Device) {
  return { name, tags, metadata, isProvisioned }
}

function isInTurn({ event, presenceOf }: News, turns: ReadonlyMap<string, Turn>): boolean {
  const turn = presenceOf === undefined ? undefined : turns.get(presenceOf)
  if (!turn) return true
  const isOnline = event.type === 'device.online'
  // Events are not written for an id without a row.
  if (turn.isOver || turn.wanted.id !== presenceOf || turn.isOnline === isOnline) return false
  turn.isOnline = isOnline
  turn.isTold = true
  return true
}

/**
 * Two gateways may have seen a new device before either wrote it. The device then gets the id of the written
 * row.
 */
function writtenOf({ id, ownerId, deviceId }: Device, store: DeviceStore): Device | undefined {
  const own = store.get(id)
  return own || deviceId === null ? own : store.findByDevice(ownerId, deviceId)
}

const cameAt = ({ facts }: Device) => facts.cameAt ?? 0

/** A refused authentication. */
export interface RefusedSignIn {
  /** Account of its authtoken; also null if the authtoken is unknown. */
  readonly ownerId: string | null
  /** As reported by the device; not verified. */
  readonly deviceId: string | undefined
  /** Without the port. */
  readonly ip: string
  /** Error code of the service, such as 107. */
  readonly code: number
  readonly message: string
}

/** The event for a device that came online or went offline. */
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
export const GONE_TEXTS: Readonly<Record<GoneReason, string>> = {
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

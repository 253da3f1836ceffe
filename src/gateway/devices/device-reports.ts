import type { Device, DeviceStore, GoneReason } from '../records/device-store.ts'
import type { EventType, NewEvent } from '../records/event-store.ts'

/** What is to be told. */
export interface News {
  readonly event: NewEvent
  /** The device that came, or went. */
  readonly presenceOf?: string
}

/** A device of a site, with what other gateways may have written of it. */
interface Turn {
  readonly wanted: Device
  readonly stored: Device
  /** It is for another gateway to tell of it, or this one did before. */
  readonly isOver: boolean
  /** As it was told last. */
  isOnline: boolean
  isTold: boolean
}

/**
 * What of the news of this gateway holds beside what others of the site have written; to be asked in the
 * transaction that writes it, because before that nobody knows. The gateway that a device has come to last
 * tells of it, and it is told to come and to go in turns, whoever tells it. A single gateway has its way.
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
    // Of one that had gone before, it stays when and why.
    else if (isOnline) settled.push({ ...wanted, since: stored.since })
  }
  return { rows: settled, events }
}

/** What people say of it may have been changed meanwhile, at another gateway, too. */
export function givenOf({ name, tags, metadata, isProvisioned }: Device) {
  return { name, tags, metadata, isProvisioned }
}

function isInTurn({ event, presenceOf }: News, turns: ReadonlyMap<string, Turn>): boolean {
  const turn = presenceOf === undefined ? undefined : turns.get(presenceOf)
  if (!turn) return true
  const isOnline = event.type === 'device.online'
  // Under an id that nobody knows, nothing is told.
  if (turn.isOver || turn.wanted.id !== presenceOf || turn.isOnline === isOnline) return false
  turn.isOnline = isOnline
  turn.isTold = true
  return true
}

/** Two gateways may have seen a new device before one has written it: then it has the id of that one. */
function writtenOf({ id, ownerId, deviceId }: Device, store: DeviceStore): Device | undefined {
  const own = store.get(id)
  return own || deviceId === null ? own : store.findByDevice(ownerId, deviceId)
}

const cameAt = ({ facts }: Device) => facts.cameAt ?? 0

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

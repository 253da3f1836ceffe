import { isDeepStrictEqual } from 'node:util'
import type { EventType, GatewayEvent } from '../../records/event-store.ts'
import type { NotificationChannel } from './channel-store.ts'

/** A device is reported as offline at most once in this time. */
export const DEVICE_STEP_MS = 3_600_000
const MAX_NAME = 80
const MAX_TEXT = 300

/**
 * A device, and how much of it people know. Times are milliseconds since the epoch.
 *
 * INVARIANTS
 * - `isToldOffline`: the last message about the device said that it is offline.
 * - `outages` counts ended outages of the minimum time that no message contained.
 */
export interface DeviceContent {
  readonly kind: 'device'
  readonly name: string
  /** Reason of the last outage. */
  readonly text: string
  readonly isOffline: boolean
  readonly changedAt: number
  readonly isToldOffline: boolean
  readonly outages: number
  /** Start of the first of these outages. */
  readonly outagesFrom: number | null
}

/** Another event. It is reported once. */
export interface EventContent {
  readonly kind: 'event'
  readonly title: string
  readonly text: string
}

/** Part of a message to come, or a device that later messages depend on. */
export interface Notice {
  /** Id of the channel, and id of the device or event. */
  readonly id: string
  readonly channelId: string
  /** Null: nothing waits. */
  readonly dueAt: number | null
  /** Time of the last message that reported the device as offline. */
  readonly toldAt: number | null
  readonly content: DeviceContent | EventContent
}

/** Whether an event concerns the channel. */
export function isWanted({ type, ownerId, details }: GatewayEvent, channel: Wishes): boolean {
  if (channel.ownerId !== null && channel.ownerId !== ownerId) return false
  // The state of a device needs both.
  if (!wants(channel, type === 'device.online' ? 'device.offline' : type)) return false
  if (channel.tags.length === 0 || !type.startsWith('device.')) return true
  const tags = deviceOf(details)?.tags
  return Array.isArray(tags) && tags.some((tag) => channel.tags.includes(tag))
}

type Wishes = Pick<NotificationChannel, 'ownerId' | 'eventTypes' | 'tags'>

function wants({ eventTypes }: Pick<Wishes, 'eventTypes'>, type: EventType): boolean {
  return eventTypes.length === 0 || eventTypes.includes(type)
}

/** Id of the notice that an event changes or makes. */
export function noticeId(channelId: string, { type, sequence, details }: GatewayEvent): string {
  const deviceId = isPresence(type) ? deviceOf(details)?.id : undefined
  return `${channelId} ${typeof deviceId === 'string' ? deviceId : sequence}`
}

type NoticeChannel = Pick<NotificationChannel, 'id' | 'offlineMs' | 'eventTypes'>

/** The notice after an event. Undefined: there is nothing to remember. */
export function afterEvent(
  before: Notice | undefined,
  event: GatewayEvent,
  { channel, now }: { readonly channel: NoticeChannel; readonly now: number },
): Notice | undefined {
  // The clock of another gateway may be ahead.
  const at = Math.min(event.at, now)
  const id = noticeId(channel.id, event)
  if (!isPresence(event.type)) {
    const content = contentOf(event)
    return { id, channelId: channel.id, dueAt: at, toldAt: null, content }
  }
  const was = before?.content.kind === 'device' ? before.content : undefined
  const isOffline = event.type === 'device.offline'
  const toldAt = pastOf(before?.toldAt ?? null, now)
  if ((was?.isOffline ?? false) === isOffline) return before
  const outage = was && !isOffline && isUntold(was, toldAt) && at - was.changedAt
  const isOutage = typeof outage === 'number' && outage >= channel.offlineMs
  const isToldOffline =
    was?.isToldOffline === true && (isOffline || wants(channel, 'device.online'))
  const content: DeviceContent = {
    kind: 'device',
    name: shortText(deviceOf(event.details)?.name, MAX_NAME),
    text: isOffline ? shortText(event.details.text, MAX_TEXT) : (was?.text ?? ''),
    isOffline,
    changedAt: at,
    isToldOffline,
    outages: (was?.outages ?? 0) + Number(isOutage),
    outagesFrom: isOutage ? (was?.outagesFrom ?? was?.changedAt ?? at) : (was?.outagesFrom ?? null),
  }
  const dueAt = dueAtOf(content, toldAt, channel)
  const isOver = dueAt === null && !isOffline && !isToldOffline
  if (isOver && (toldAt === null || toldAt + DEVICE_STEP_MS <= now)) return undefined
  return { id, channelId: channel.id, dueAt, toldAt, content }
}

/**
 * The stored notice after a message with `told`, composed at `at`. It differs from `told` if events or another
 * gateway changed it meanwhile. Undefined: there is nothing to remember.
 */
export function afterTold(
  { stored, told }: { readonly stored: Notice; readonly told: Notice },
  { channel, at }: { readonly channel: NoticeChannel; readonly at: number },
): Notice | undefined {
  const [now, said] = [stored.content, told.content]
  if (now.kind === 'event' || said.kind === 'event') return undefined
  const isSame = isDeepStrictEqual(stored, told)
  // Another gateway has told of the device since then.
  if (!isSame && stored.toldAt !== null && stored.toldAt > at) return stored
  const isOnlyBack = !said.isOffline && said.outages === 0
  const toldAt = isOnlyBack ? pastOf(told.toldAt, at) : at
  const content: DeviceContent = {
    ...now,
    changedAt: isSame ? Math.min(now.changedAt, at) : now.changedAt,
    isToldOffline: said.isOffline,
    ...(isSame && { outages: 0, outagesFrom: null }),
  }
  return { ...stored, content, toldAt, dueAt: dueAtOf(content, toldAt, channel) }
}

/** A time in the future was set while the clock was ahead. */
const pastOf = (at: number | null, now: number) => at && Math.min(at, now)

/** The outage is in no message yet. */
function isUntold({ isToldOffline, changedAt }: DeviceContent, toldAt: number | null): boolean {
  return !isToldOffline || toldAt === null || changedAt > toldAt
}

function dueAtOf(
  content: DeviceContent,
  toldAt: number | null,
  { offlineMs }: Pick<NoticeChannel, 'offlineMs'>,
): number | null {
  const { isOffline, changedAt, isToldOffline, outagesFrom } = content
  const earliest = toldAt === null ? 0 : toldAt + DEVICE_STEP_MS
  const due: number[] = []
  if (isOffline && isUntold(content, toldAt)) due.push(Math.max(changedAt + offlineMs, earliest))
  if (!isOffline && isToldOffline) due.push(changedAt)
  if (outagesFrom !== null) due.push(Math.max(outagesFrom + offlineMs, earliest))
  return due.length === 0 ? null : Math.min(...due)
}

const isPresence = (type: EventType) => type === 'device.online' || type === 'device.offline'

type Part = Readonly<Record<string, unknown>>

const partOf = (value: unknown) =>
  typeof value === 'object' && value !== null ? (value as Part) : undefined
const deviceOf = (details: Part) => partOf(details.device)

function contentOf({ type, details }: GatewayEvent): EventContent {
  const { ip, refused_ip: refusedIp } = details
  const nameOf = (value: unknown) => shortText(partOf(value)?.name, MAX_NAME)
  const device = nameOf(details.device) || shortText(details.claimed_device_id, MAX_NAME)
  const domain = nameOf(details.domain)
  const gateway = nameOf(details.node)
  const text = shortText(details.text, MAX_TEXT)
  const from = (address: unknown) => (address ? `from ${shortText(address, MAX_NAME)}` : '')
  const certificate = domain ? `certificate of ${domain}` : 'certificate of the gateway'
  const CONTENTS: Readonly<Record<EventType, readonly [title: string, text: string]>> = {
    'device.online': [device, text],
    'device.offline': [device, text],
    'device.refused': [`Refused: ${[device || 'a device', from(ip)].join(' ').trim()}`, text],
    'device.duplicate': [
      `Two devices have the identity of ${device}`,
      `A second process ${from(refusedIp)} was refused.`,
    ],
    'certificate.expiring': [`The ${certificate} ends soon`, text],
    'certificate.failed': [`The ${certificate} was not issued`, text],
    'storage.healed': ['The database of the gateway was damaged and repaired', text],
    'gateway.degraded': [`Gateway ${gateway} has a problem`, text],
    'gateway.recovered': [`Gateway ${gateway} works again`, text],
  }
  const [title, explanation] = CONTENTS[type]
  return { kind: 'event', title, text: explanation }
}

/** Text of other people on one line: without control and direction characters, and not longer. */
export function shortText(value: unknown, max: number): string {
  const text = typeof value === 'string' ? value : ''
  const line = text.replace(/[\s\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]+/gu, ' ').trim()
  const letters = Array.from(line)
  return letters.length <= max ? line : `${letters.slice(0, max - 1).join('')}…`
}

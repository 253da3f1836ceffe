import * as z from 'zod'
import { MASK, maskedWebhookUrl } from '../../../base/masked-text.ts'
import { neverDialledHost } from '../../../base/net/network.ts'
import { EVENT_TYPES, type EventType } from '../../records/event-store.ts'
import { ServiceError } from '../../records/service-error.ts'
import { ownerFor } from '../common/caller.ts'
import { itemFields, Timestamp, timestamp } from '../common/request.ts'
import { type Resource, withBody } from '../common/resource.ts'
import { CHANNEL_KINDS, type ChannelKind, type NotificationChannel } from './channel-store.ts'
import { shortText } from './notice.ts'
import type { Notifications } from './notifications.ts'
import { isTimeZone } from './quiet-times.ts'

const MAX_NAME = 80
const MAX_ADDRESSES = 10
const MAX_TAGS = 20
const DAY_S = 86_400

/** Device names and channel names stand in the same messages. */
const Name = z
  .string()
  .min(1)
  .max(MAX_NAME)
  .refine((name) => shortText(name, MAX_NAME) === name, 'it must be one line of plain text')
const EventTypes = z
  .array(z.enum(EVENT_TYPES))
  .max(EVENT_TYPES.length)
  .refine(
    (types) => !types.includes('device.online') || types.includes('device.offline'),
    'device.online also needs device.offline',
  )
const Time = z.string().regex(/^([01]\d|2[0-3]):[0-5]\d$/, 'it must be a time such as 22:00')
const Times = z
  .strictObject({ from: Time, to: Time })
  .refine(({ from, to }) => from !== to, 'from and to must differ')
// One mailbox without a name: nothing in it can begin another header or recipient.
const Email = z.email()
const Address = z
  .string()
  .max(254)
  .refine(
    (address) => Email.safeParse(address).success && /^[\x21-\x7e]+$/.test(address),
    'it must be an email address',
  )

const settings = {
  /** Recipients, for the kind `email`. */
  addresses: z.array(Address).min(1).max(MAX_ADDRESSES).optional(),
  /** URL of the chat, for all other kinds. It is not shown again. */
  url: z.string().max(2_048).optional(),
  /** Without any: all types. */
  event_types: EventTypes.optional(),
  /** Only devices with one of these tags. Without any: all devices. */
  tags: z.array(z.string().min(1).max(64)).max(MAX_TAGS).optional(),
  /** Seconds that a device is offline before it is reported. */
  offline_s: z.int().min(0).max(DAY_S).optional(),
  /** Messages wait during these times. */
  quiet_times: Times.nullable().optional(),
  /** IANA name, such as `Europe/Berlin`. */
  time_zone: z.string().max(64).refine(isTimeZone, 'it must be a time zone').optional(),
}
const NotificationChannelCreate = z.strictObject({
  name: Name,
  kind: z.enum(CHANNEL_KINDS),
  ...settings,
  /** Account of its events; null: all accounts. */
  owner_id: z.string().nullable().optional(),
})
const NotificationChannelUpdate = z.strictObject({
  name: Name.optional(),
  ...settings,
  /** While false, messages wait. */
  active: z.boolean().optional(),
})

const NotificationChannelView = z.strictObject({
  ...itemFields,
  name: z.string(),
  kind: z.enum(CHANNEL_KINDS),
  addresses: z.array(z.string()),
  /** Scheme and host. The rest may contain a key. */
  url: z.string().nullable(),
  event_types: z.array(z.enum(EVENT_TYPES)),
  tags: z.array(z.string()),
  offline_s: z.int(),
  quiet_times: z.strictObject({ from: z.string(), to: z.string() }).nullable(),
  time_zone: z.string(),
  owner_id: z.string().nullable(),
  active: z.boolean(),
  last_sent_at: Timestamp.nullable(),
  /** In a row, of the next message. */
  failures: z.int(),
  problem: z.string().nullable(),
  next_try_at: Timestamp.nullable(),
})
const NotificationTestView = z.strictObject({
  ok: z.boolean(),
  /** HTTP or SMTP status of the receiver. Null when there was no answer. */
  status: z.int().nullable(),
  text: z.string(),
})

const DEFAULT_TYPES: readonly EventType[] = [
  'device.offline',
  'device.online',
  'device.refused',
  'certificate.expiring',
  'gateway.degraded',
  'gateway.recovered',
]
const DEFAULT_OFFLINE_S = 120

export interface NotificationChannelsDeps {
  readonly notifications: Notifications
}

/** Mail and chat for people who look after devices. */
export function notificationChannels({
  notifications,
}: NotificationChannelsDeps): Resource<NotificationChannel> {
  return {
    path: 'notification_channels',
    noun: 'NotificationChannel',
    collection: 'notification_channels',
    prefix: 'nc',
    schema: NotificationChannelView,
    page: (request) => notifications.page(request),
    get: (id) => notifications.get(id),
    view: (channel, baseUrl) => view(channel, { notifications, baseUrl }),
    ownerOf: ({ ownerId }) => ownerId,
    create: withBody({ NotificationChannelCreate }, async (body, { baseUrl, caller }) => {
      const { name, kind, owner_id, offline_s = DEFAULT_OFFLINE_S, quiet_times = null } = body
      const { addresses = [], url = null, event_types = DEFAULT_TYPES, time_zone = 'UTC' } = body
      checkTarget(kind, { addresses, url })
      const channel = await notifications.create({
        ...{ ownerId: ownerFor(caller, owner_id), name, kind, url, quietTimes: quiet_times },
        addresses: unique(addresses),
        eventTypes: unique(event_types),
        tags: unique(body.tags ?? []),
        offlineMs: offline_s * 1_000,
        timeZone: time_zone,
      })
      return view(channel, { notifications, baseUrl })
    }),
    update: withBody({ NotificationChannelUpdate }, (body, { item }) =>
      notifications.update(item, (channel) => {
        const { name, url, addresses, quiet_times, time_zone, active } = body
        const target = { addresses: addresses ?? channel.addresses, url: url ?? channel.url }
        checkTarget(channel.kind, target)
        return {
          ...target,
          ...(name !== undefined && { name }),
          ...(body.event_types && { eventTypes: unique(body.event_types) }),
          ...(body.tags && { tags: unique(body.tags) }),
          ...(body.offline_s !== undefined && { offlineMs: body.offline_s * 1_000 }),
          ...(quiet_times !== undefined && { quietTimes: quiet_times }),
          ...(time_zone !== undefined && { timeZone: time_zone }),
          ...(active !== undefined && { isActive: active }),
        }
      }),
    ),
    remove: (channel) => notifications.delete(channel),
    actions: {
      test: {
        summary: 'Send a test message',
        answer: { NotificationTest: NotificationTestView },
        run: async (_body, { item }) => {
          const { isTaken, status, text } = await notifications.test(item)
          return { ok: isTaken, status, text } satisfies z.infer<typeof NotificationTestView>
        },
      },
    },
  }
}

const unique = <Value>(values: readonly Value[]) => [...new Set(values)]

/** Whether a name may be reached is checked when a message is sent. Throws ServiceError 215. */
function checkTarget(
  kind: ChannelKind,
  { addresses, url }: { readonly addresses: readonly string[]; readonly url: string | null },
): void {
  const refuse = (text: string) => {
    throw new ServiceError(215, text)
  }
  if (kind === 'email') {
    if (url !== null) refuse('The kind email has addresses and no url.')
    if (addresses.length === 0) refuse('The kind email needs addresses.')
    return
  }
  if (addresses.length > 0) refuse(`The kind ${kind} has a url and no addresses.`)
  if (url === null) refuse(`The kind ${kind} needs a url.`)
  const parsed = URL.canParse(url ?? '') ? new URL(url ?? '') : undefined
  const isHttp = parsed?.protocol === 'https:' || parsed?.protocol === 'http:'
  if (!parsed || !isHttp || parsed.username !== '' || parsed.password !== '' || parsed.hash !== '')
    refuse('The field url must be an http or https URL without user, password or fragment.')
  const never = parsed && neverDialledHost(parsed)
  if (never) refuse(`The field url is not usable: connections to ${never} are always blocked.`)
  if (url?.includes(MASK)) refuse('The field url must be the whole URL, not the shown part of it.')
  if (kind === 'telegram' && !parsed?.searchParams.get('chat_id'))
    refuse('The field url must end with ?chat_id=… for the kind telegram.')
}

function view(
  channel: NotificationChannel,
  { notifications, baseUrl }: { readonly notifications: Notifications; readonly baseUrl: string },
): z.infer<typeof NotificationChannelView> {
  const { id, createdAt, name, kind, addresses, url, eventTypes, tags } = channel
  const { offlineMs, quietTimes, timeZone, ownerId, isActive } = channel
  const state = notifications.stateOf(channel)
  const time = (ms: number | null | undefined) => (ms == null ? null : timestamp(ms))
  return {
    id,
    uri: `${baseUrl}/notification_channels/${id}`,
    created_at: timestamp(createdAt),
    name,
    kind,
    addresses: [...addresses],
    url: url === null ? null : maskedWebhookUrl(url),
    event_types: [...eventTypes],
    tags: [...tags],
    offline_s: offlineMs / 1_000,
    quiet_times: quietTimes,
    time_zone: timeZone,
    owner_id: ownerId,
    active: isActive,
    last_sent_at: time(state?.lastSentAt),
    failures: state?.failures ?? 0,
    problem: state?.problem ?? null,
    next_try_at: time(state?.nextTryAt),
  }
}

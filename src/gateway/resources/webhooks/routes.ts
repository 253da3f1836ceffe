import * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import { EVENT_TYPES, type EventStore, type GatewayEvent } from '../../records/event-store.ts'
import { ServiceError } from '../../records/service-error.ts'
import { ownerFor } from '../common/caller.ts'
import { itemFields, Timestamp, timestamp } from '../common/request.ts'
import { type ItemOfRequest, type Resource, withBody } from '../common/resource.ts'
import { eventId, sequenceOf } from './webhook-sender.ts'
import type { WebhookEndpoint } from './webhook-store.ts'
import type { Webhooks } from './webhooks.ts'

const EventView = z.strictObject({
  ...itemFields,
  /** Counts up by one, over restarts. */
  sequence: z.int(),
  type: z.enum(EVENT_TYPES),
  owner_id: z.string().nullable(),
  /** As webhooks get it. */
  data: z.record(z.string(), z.unknown()),
})

interface Item extends GatewayEvent {
  readonly id: string
}

/** Events of devices, certificates and the storage: the newest 10,000. */
export function events(store: EventStore): Resource<Item> {
  return {
    path: 'events',
    noun: 'Event',
    collection: 'events',
    prefix: 'ev',
    schema: EventView,
    page: ({ limit, beforeId }) => {
      const before = beforeId === undefined ? undefined : sequenceOf(beforeId)
      return store.page({ limit, before }).map(toItem)
    },
    get: (id) => {
      const event = store.get(sequenceOf(id))
      return event && toItem(event)
    },
    view: ({ id, sequence, at, type, ownerId, details }, baseUrl) =>
      ({
        id,
        uri: `${baseUrl}/events/${id}`,
        created_at: timestamp(at),
        sequence,
        type,
        owner_id: ownerId,
        data: details,
      }) satisfies z.infer<typeof EventView>,
    ownerOf: ({ ownerId }) => ownerId,
  }
}

function toItem(event: GatewayEvent): Item {
  return { ...event, id: eventId(event.sequence) }
}

const DAY_S = 86_400
const MAX_OVERLAP_S = 30 * DAY_S

const EventTypes = z.array(z.enum(EVENT_TYPES)).max(EVENT_TYPES.length)
const settings = {
  url: z.string().max(2_048),
  description: z.string().max(255).optional(),
  /** Without any, it gets all. */
  event_types: EventTypes.optional(),
}
const WebhookEndpointCreate = z.strictObject({
  ...settings,
  /** Account of its events; null: all accounts. */
  owner_id: z.string().nullable().optional(),
})
const WebhookEndpointUpdate = z.strictObject({
  ...settings,
  url: settings.url.optional(),
  /** While false, nothing is sent; it goes on from where it was. */
  active: z.boolean().optional(),
})
const WebhookReplay = z.strictObject({
  /** Replays all events since this time … */
  since: Timestamp.optional(),
  /** … or after this event. */
  after_id: z.string().optional(),
})
const WebhookRotation = z.strictObject({
  /** For how many seconds the secret from before signs, too. */
  overlap_s: z.int().min(0).max(MAX_OVERLAP_S).default(DAY_S),
})

const WebhookEndpointView = z.strictObject({
  ...itemFields,
  url: z.string(),
  description: z.string(),
  event_types: EventTypes,
  owner_id: z.string().nullable(),
  active: z.boolean(),
  /** Only in the answer to its creation, and to a rotation. */
  secret: z.string().nullable(),
  /** End of the overlap: the earlier secret also signs until then. */
  overlap_ends_at: Timestamp.nullable(),
  /** Events that wait for delivery, including types that the receiver does not want. */
  behind: z.int(),
  /** Events that left the log before they were taken. */
  missed: z.int(),
  last_delivered_at: Timestamp.nullable(),
  /** In a row, of the event that is next. */
  failures: z.int(),
  problem: z.string().nullable(),
  next_try_at: Timestamp.nullable(),
})
const WebhookTestView = z.strictObject({
  ok: z.boolean(),
  /** Null when there was no answer. */
  status: z.int().nullable(),
  text: z.string(),
})

export interface WebhookEndpointsDeps {
  readonly webhooks: Webhooks
  readonly events: EventStore
  readonly clock: Clock
}

/** Receivers of events, signed by the rules of Standard Webhooks. */
export function webhookEndpoints({
  webhooks,
  events,
  clock,
}: WebhookEndpointsDeps): Resource<WebhookEndpoint> {
  const view = (endpoint: WebhookEndpoint, baseUrl: string, secret: string | null = null) =>
    viewEndpoint(endpoint, { baseUrl, secret, newest: events.newest, webhooks, now: clock.now() })
  return {
    path: 'webhook_endpoints',
    noun: 'WebhookEndpoint',
    collection: 'webhook_endpoints',
    prefix: 'wh',
    schema: WebhookEndpointView,
    page: (request) => webhooks.page(request),
    get: (id) => webhooks.get(id),
    view: (endpoint, baseUrl) => view(endpoint, baseUrl),
    ownerOf: ({ ownerId }) => ownerId,
    create: withBody({ WebhookEndpointCreate }, async (body, { baseUrl, caller }) => {
      const { url, description = '', event_types, owner_id } = body
      const ownerId = ownerFor(caller, owner_id)
      const eventTypes = [...new Set(event_types)]
      const endpoint = await webhooks.create({ ownerId, url, description, eventTypes })
      return view(endpoint, baseUrl, endpoint.secret)
    }),
    update: withBody({ WebhookEndpointUpdate }, (body, { item }) => {
      const { url, description, event_types, active } = body
      return webhooks.update(item, {
        ...(url !== undefined && { url }),
        ...(description !== undefined && { description }),
        ...(event_types && { eventTypes: [...new Set(event_types)] }),
        ...(active !== undefined && { isActive: active }),
      })
    }),
    remove: (endpoint) => webhooks.delete(endpoint),
    actions: {
      test: {
        summary: 'Send a test message',
        answer: { WebhookTest: WebhookTestView },
        run: async (_body, { item }) => {
          const { isTaken, status, text } = await webhooks.test(item)
          return { ok: isTaken, status, text } satisfies z.infer<typeof WebhookTestView>
        },
      },
      replay: {
        summary: 'Send past events again',
        ...withBody({ WebhookReplay }, async (body, { item }: Asked) => {
          await webhooks.replay(item, startOf(body, events))
          return undefined
        }),
      },
      rotate: {
        summary: 'Create a new secret; it is shown once',
        answer: { WebhookEndpoint: WebhookEndpointView },
        ...withBody({ WebhookRotation }, async ({ overlap_s }, { item, baseUrl }: Asked) => {
          const rotated = await webhooks.rotateSecret(item, overlap_s * 1_000)
          return view(rotated, baseUrl, rotated.secret)
        }),
      },
    },
  }
}

type Asked = ItemOfRequest<WebhookEndpoint>

/** Sequence of the event before the first replayed one. */
function startOf({ since, after_id }: z.infer<typeof WebhookReplay>, events: EventStore): number {
  const at = since === undefined ? Number.NaN : Date.parse(since)
  if (
    (since === undefined) === (after_id === undefined) ||
    (since !== undefined && Number.isNaN(at))
  ) {
    throw new ServiceError(215, 'Set either since (a time) or after_id (an event id).')
  }
  if (after_id === undefined) return (events.firstSince(at) ?? events.newest + 1) - 1
  const sequence = sequenceOf(after_id)
  if (events.get(sequence)) return sequence
  throw new ServiceError(215, 'The field after_id must be the id of a stored event.')
}

function viewEndpoint(
  endpoint: WebhookEndpoint,
  {
    baseUrl,
    secret,
    newest,
    webhooks,
    now,
  }: {
    baseUrl: string
    secret: string | null
    newest: number
    webhooks: Webhooks
    now: number
  },
): z.infer<typeof WebhookEndpointView> {
  const { id, createdAt, oldSecrets, url, description, eventTypes, ownerId, isActive, missed } =
    endpoint
  const status = webhooks.statusOf(endpoint)
  const time = (ms: number | undefined) => (ms === undefined ? null : timestamp(ms))
  return {
    id,
    uri: `${baseUrl}/webhook_endpoints/${id}`,
    created_at: timestamp(createdAt),
    url,
    description,
    event_types: [...eventTypes],
    owner_id: ownerId,
    active: isActive,
    secret,
    overlap_ends_at: time(oldSecrets.map(({ until }) => until).find((until) => until > now)),
    behind: Math.max(0, newest - (status?.position ?? endpoint.delivered)),
    missed,
    last_delivered_at: time(status?.lastDeliveredAt),
    failures: status?.failures ?? 0,
    problem: status?.problem ?? null,
    next_try_at: time(status?.nextTryAt),
  }
}

import * as z from 'zod'
import { EVENT_TYPES, type EventStore, type GatewayEvent } from '../../records/event-store.ts'
import { eventId, sequenceOf } from '../../webhooks/webhook-message.ts'
import type { Resource } from '../resource.ts'
import { Timestamp, timestamp } from '../timestamp.ts'

export const EventView = z.strictObject({
  id: z.string(),
  uri: z.string(),
  created_at: Timestamp,
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

/** What has happened to devices, certificates and the storage: the newest 10,000. */
export function events(store: EventStore): Resource<Item> {
  return {
    path: 'events',
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

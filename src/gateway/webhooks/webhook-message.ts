import { randomBytes } from 'node:crypto'
import { Webhook } from 'standardwebhooks'
import type { GatewayEvent } from '../records/event-store.ts'

const SECRET_BYTES = 32
/** Of all events, in decimal. */
const SEQUENCE_DIGITS = 27

/** One request of a webhook before it is signed; the same for each try. */
export interface WebhookMessage {
  readonly id: string
  readonly body: string
}

/** What people know an event by: its sequence in the form of an id. */
export function eventId(sequence: number): string {
  return `ev_${String(sequence).padStart(SEQUENCE_DIGITS, '0')}`
}

/** A text that is no id of an event has the sequence 0, which none has. */
export function sequenceOf(id: string): number {
  const digits = id.startsWith('ev_') ? id.slice('ev_'.length) : ''
  return /^\d{1,27}$/.test(digits) ? Number(digits) : 0
}

/** As Standard Webhooks have it: `type`, `timestamp`, `data`. The sequence tells the order and what is missing. */
export function messageOf({ sequence, at, type, details }: GatewayEvent): WebhookMessage {
  const timestamp = new Date(at).toISOString()
  // A database that begins anew counts from 1 again: the time tells its events from those before.
  return {
    id: `${eventId(sequence)}_${at}`,
    body: JSON.stringify({ type, timestamp, sequence, data: details }),
  }
}

/** What somebody sends to see whether the way is open. */
export function testMessage(id: string, at: number): WebhookMessage {
  const timestamp = new Date(at).toISOString()
  const data = { text: 'This is a test message.' }
  return {
    id: `${id}_test_${at}`,
    body: JSON.stringify({ type: 'webhook.test', timestamp, sequence: null, data }),
  }
}

export function createWebhookSecret(): string {
  return `whsec_${randomBytes(SECRET_BYTES).toString('base64')}`
}

/** The headers of one try, signed for this moment with each secret: a receiver takes it for one that it has. */
export function signedHeaders(
  { id, body }: WebhookMessage,
  { secrets, at }: { secrets: readonly string[]; at: number },
): Record<string, string> {
  return {
    'content-type': 'application/json',
    'user-agent': 'device-agent-gateway',
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(at / 1_000)),
    'webhook-signature': secrets
      .map((secret) => new Webhook(secret).sign(id, new Date(at), body))
      .join(' '),
  }
}

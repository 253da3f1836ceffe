import { randomBytes } from 'node:crypto'
import { Webhook } from 'standardwebhooks'
import { Backoff } from '../../../base/backoff.ts'
import type { Clock } from '../../../base/clock.ts'
import { abortedAfter } from '../../../base/deadline.ts'
import { AutoResetEvent } from '../../../base/deferred.ts'
import type { Logger } from '../../../base/logger.ts'
import { OutboundError, send } from '../../../policy/outbound/outbound.ts'
import type { PolicyReach } from '../../../policy/outbound/outbound-allow.ts'
import type { Database, WriteOptions } from '../../../store/database.ts'
import type { EventStore, GatewayEvent } from '../../records/event-store.ts'
import type { WebhookEndpoint, WebhookStore } from './webhook-store.ts'

const SECRET_BYTES = 32
/** Decimal digits of an event's sequence. */
const SEQUENCE_DIGITS = 27

/** One webhook request before it is signed; the same for each attempt. */
interface WebhookMessage {
  readonly id: string
  readonly body: string
}

/** Public id of an event, made from its sequence. */
export function eventId(sequence: number): string {
  return `ev_${String(sequence).padStart(SEQUENCE_DIGITS, '0')}`
}

/** Returns the sequence of an event id. Returns 0, which is never used, for any other text. */
export function sequenceOf(id: string): number {
  const digits = id.startsWith('ev_') ? id.slice('ev_'.length) : ''
  return /^\d{1,27}$/.test(digits) ? Number(digits) : 0
}

/**
 * Body in the format of Standard Webhooks: `type`, `timestamp`, `data`. The sequence shows the order and
 * gaps.
 */
function messageOf({ sequence, at, type, details }: GatewayEvent): WebhookMessage {
  const timestamp = new Date(at).toISOString()
  // A new database counts from 1 again: the time distinguishes its events from earlier events.
  return {
    id: `${eventId(sequence)}_${at}`,
    body: JSON.stringify({ type, timestamp, sequence, data: details }),
  }
}

/** Message for a manual test of the connection. */
function testMessage(id: string, at: number): WebhookMessage {
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

/**
 * Headers of one attempt, signed now with each secret. A receiver accepts the signature of the secret that it
 * has.
 */
function signedHeaders(
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

/** Timeout for connecting, sending and the answer, in milliseconds. */
const ANSWER_MS = 15_000
/** Maximum size of a receiver's answer, in bytes. */
const MAX_ANSWER_BYTES = 65_536
/** Delays from the first failure on. Attempts continue while the event is in the log. */
const RETRY = { baseMs: 2_000, capMs: 600_000, jitter: 0.5 }
/** Minimum time between two writes of the position while events are delivered. */
const NOTE_STEP_MS = 500
/** Events read from the log at once. */
const BATCH = 100
/** RFC 9110 section 15.5.11: in Standard Webhooks, the receiver wants no more messages. */
const GONE = 410

export interface WebhookSenderDeps {
  readonly database: Pick<Database, 'change'>
  readonly webhookStore: WebhookStore
  readonly events: EventStore
  /** Addresses that requests may connect to. Called with the resolved address. */
  readonly mayDial: NonNullable<PolicyReach['mayDial']>
  readonly clock: Clock
  readonly log: Logger
}

/** Result of one request. */
export interface Attempt {
  readonly isTaken: boolean
  /** Null if there was no answer. */
  readonly status: number | null
  /** For people. */
  readonly text: string
}

/** Status of the deliveries. Times are milliseconds since the epoch. */
export interface SendingStatus {
  /** Sequence of the last event that was delivered or skipped. */
  readonly position: number
  readonly lastDeliveredAt: number | undefined
  /** Failures of the next event in a row. */
  readonly failures: number
  readonly problem: string | undefined
  readonly nextTryAt: number | undefined
}

/**
 * Sends the events of the log to one endpoint, in order, each until it is accepted.
 *
 * INVARIANTS
 * - One request at a time. The next event is sent when the previous event was accepted.
 * - `delivered` is never ahead of accepted events. After a kill, the last half second is sent again, with the
 *   same ids.
 * - An event that left the log before its delivery is counted as missed, and logged.
 */
export class WebhookSender {
  readonly #id: string
  readonly #deps: WebhookSenderDeps
  readonly #backoff = new Backoff(RETRY)
  readonly #wakeUp = new AutoResetEvent()
  readonly #stopping = new AbortController()
  #running: Promise<void> | undefined
  /** Current position, and the last saved position. */
  #position: number
  #noted: number
  /** Positions that are being saved. */
  readonly #noting = new Set<number>()
  /** Highest position so far. Earlier events were accepted, even if they are sent again. */
  #reached: number
  #notedAt = Number.NEGATIVE_INFINITY
  #status: Omit<SendingStatus, 'position'> = NO_STATUS

  constructor(endpoint: WebhookEndpoint, deps: WebhookSenderDeps) {
    this.#id = endpoint.id
    this.#deps = deps
    this.#position = endpoint.delivered
    this.#noted = endpoint.delivered
    this.#reached = endpoint.delivered
  }

  get status(): SendingStatus {
    return { ...this.#status, position: this.#position }
  }

  start(): void {
    this.#running ??= this.#run()
  }

  /**
   * New events arrived, or the endpoint was changed (`isChanged`). A change also ends the wait after a
   * failure.
   */
  wake({ isChanged = false } = {}): void {
    if (!isChanged && this.#status.failures > 0) return
    this.#backoff.reset()
    this.#wakeUp.set()
  }

  /** Sends the events after `sequence` again. */
  async replay(sequence: number): Promise<void> {
    this.#position = sequence
    await this.#note({ concludes: this.#id })
    this.wake({ isChanged: true })
  }

  /**
   * Follows the position in the row. If this sender did not write it, a replay was requested at another
   * gateway.
   */
  followReplay(delivered: number): void {
    if (this.#isOwnNote(delivered)) return
    this.#position = delivered
    this.#noted = delivered
    this.wake({ isChanged: true })
  }

  /** Sends a test message at once, independent of pending events. */
  test(): Promise<Attempt> {
    const endpoint = this.#deps.webhookStore.get(this.#id)
    const now = this.#deps.clock.now()
    if (!endpoint) throw new Error('the webhook endpoint was deleted')
    return this.#attempt(endpoint, testMessage(endpoint.id, now))
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the gateway is stopping'))
    this.#wakeUp.set()
    await this.#running
    await this.#noteQuietly()
  }

  async #run(): Promise<void> {
    const { clock, log, webhookStore } = this.#deps
    while (!this.#stopping.signal.aborted) {
      try {
        const endpoint = webhookStore.get(this.#id)
        // Its account was deleted.
        if (!endpoint) return
        const event = endpoint.isActive ? this.#next(endpoint) : undefined
        if (event) await this.#deliver(endpoint, event)
        else await this.#rest()
      } catch (error) {
        log.error(
          { err: error, webhook: this.#id },
          'webhook delivery paused after an internal error, will retry',
        )
        await this.#wakeUp.wait(clock, RETRY.capMs)
      }
    }
  }

  async #rest(): Promise<void> {
    await this.#noteQuietly()
    await this.#wakeUp.wait()
  }

  /** Returns the next event that the endpoint wants, and skips others. */
  #next(endpoint: WebhookEndpoint): GatewayEvent | undefined {
    const { events } = this.#deps
    for (;;) {
      const batch = events.after(this.#position, BATCH)
      if (batch.length === 0) return undefined
      for (const event of batch) {
        this.#countMissed(endpoint, event.sequence)
        if (isWanted(event, endpoint)) return event
        this.#move(event.sequence)
      }
    }
  }

  /** Counts events that left the log before their delivery. Events of other accounts are not missed. */
  #countMissed({ ownerId }: WebhookEndpoint, next: number): void {
    const { events, log } = this.#deps
    const taken = Math.max(this.#position, this.#reached)
    if (next - 1 <= taken) return
    this.#move(next - 1)
    const last = ownerId === null ? next - 1 : Math.min(next - 1, events.newestRemovedOf(ownerId))
    // If the account has lost some of these events, events of other accounts between them count too.
    const missed = last - taken
    if (missed <= 0) return
    log.error({ webhook: this.#id, missed }, 'undelivered events were dropped for a webhook')
    // If the count cannot be saved, it is at least in the log.
    void this.#noteDelivered(this.#position, missed).catch(() => {})
  }

  async #deliver(endpoint: WebhookEndpoint, event: GatewayEvent): Promise<void> {
    const { clock, database, log, webhookStore } = this.#deps
    const position = this.#position
    const attempt = await this.#attempt(endpoint, messageOf(event))
    if (this.#stopping.signal.aborted && !attempt.isTaken) return
    // A replay was requested meanwhile, which goes first.
    if (this.#position !== position) return
    if (attempt.isTaken) {
      this.#move(event.sequence)
      this.#status = { ...NO_STATUS, lastDeliveredAt: clock.now() }
      this.#backoff.reset()
      if (clock.monotonic() - this.#notedAt >= NOTE_STEP_MS) await this.#noteQuietly()
      return
    }
    const failures = this.#status.failures + 1
    const level = failures === 1 ? 'warn' : 'debug'
    log[level](
      { webhook: this.#id, event: event.sequence, reason: attempt.text },
      'webhook delivery failed',
    )
    // The URL may have changed meanwhile.
    const isGone = attempt.status === GONE && webhookStore.get(this.#id)?.url === endpoint.url
    if (isGone) {
      await database.change(() => webhookStore.deactivate(this.#id))
      log.warn({ webhook: this.#id }, 'webhook disabled: its receiver answered 410 Gone')
    }
    const waitMs = this.#backoff.next()
    const nextTryAt = clock.now() + waitMs
    this.#status = { ...this.#status, failures, problem: attempt.text, nextTryAt }
    await this.#noteQuietly()
    if (!isGone) await this.#wakeUp.wait(clock, waitMs)
  }

  async #attempt(endpoint: WebhookEndpoint, message: WebhookMessage): Promise<Attempt> {
    const { mayDial, clock, log } = this.#deps
    const { url, secret, oldSecrets } = endpoint
    const at = clock.now()
    const old = oldSecrets.filter(({ until }) => until > at).map((it) => it.secret)
    const headers = signedHeaders(message, { secrets: [secret, ...old], at })
    try {
      const { status } = await abortedAfter(ANSWER_MS, this.#stopping.signal, (signal) => {
        const request = { url: new URL(url), method: 'POST', headers, body: message.body, signal }
        return send({ ...request, maxBytes: MAX_ANSWER_BYTES }, { mayDial })
      })
      const isTaken = status >= 200 && status < 300
      const text = isTaken ? 'Delivered.' : `The receiver answered with ${status}.`
      return { isTaken, status, text }
    } catch (error) {
      if (!(error instanceof OutboundError))
        log.error({ err: error }, 'webhook not sent because of an internal error')
      const text = error instanceof OutboundError ? error.message : 'The message could not be sent.'
      return { isTaken: false, status: null, text }
    }
  }

  #move(sequence: number): void {
    this.#position = sequence
    this.#reached = Math.max(this.#reached, sequence)
  }

  async #note(options?: WriteOptions): Promise<void> {
    this.#notedAt = this.#deps.clock.monotonic()
    if (this.#noted !== this.#position) await this.#noteDelivered(this.#position, 0, options)
  }

  async #noteDelivered(position: number, missed = 0, options?: WriteOptions): Promise<void> {
    const { database, webhookStore } = this.#deps
    const note = () => {
      // The current sender may be ahead, or may repeat events for a replay.
      const { delivered } = webhookStore.get(this.#id) ?? {}
      if (this.#stopping.signal.aborted && !this.#isOwnNote(delivered)) return
      webhookStore.noteDelivered(this.#id, position, missed)
    }
    this.#noting.add(position)
    try {
      await database.change(note, { withoutBackup: true, ...options })
      this.#noted = position
    } finally {
      this.#noting.delete(position)
    }
  }

  #isOwnNote(delivered: number | undefined): boolean {
    return delivered === this.#noted || this.#noting.has(delivered ?? Number.NaN)
  }

  /** Saves the position. After a failure, the events since the last save are sent again after a restart. */
  async #noteQuietly(): Promise<void> {
    try {
      await this.#note()
    } catch (error) {
      this.#deps.log.warn(
        { err: error, webhook: this.#id },
        'the position of a webhook was not saved',
      )
    }
  }
}

const NO_STATUS: Omit<SendingStatus, 'position'> = {
  lastDeliveredAt: undefined,
  failures: 0,
  problem: undefined,
  nextTryAt: undefined,
}

function isWanted({ type, ownerId }: GatewayEvent, endpoint: WebhookEndpoint): boolean {
  const { eventTypes } = endpoint
  if (endpoint.ownerId !== null && endpoint.ownerId !== ownerId) return false
  return eventTypes.length === 0 || eventTypes.includes(type)
}

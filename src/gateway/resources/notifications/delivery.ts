import type { Clock } from '../../../base/clock.ts'
import { abortedAfter } from '../../../base/deadline.ts'
import { TokenBuckets } from '../../../base/limiter.ts'
import type { Logger } from '../../../base/logger.ts'
import { STATUS_CODES } from '../../../base/net/node-http.ts'
import { OutboundError, send } from '../../../policy/outbound/outbound.ts'
import type { PolicyReach } from '../../../policy/outbound/outbound-allow.ts'
import { type Attempt, NOT_SENT } from './attempt.ts'
import type { NotificationChannel } from './channel-store.ts'
import { chatRequest } from './chat-presets.ts'
import type { Mailer } from './mailer.ts'
import type { Message } from './message.ts'

/** Timeouts for a whole attempt, in milliseconds. A mail server may check a mail for minutes. */
const ATTEMPT_MS = 30_000
const MAIL_ATTEMPT_MS = 360_000
const MAX_ANSWER_BYTES = 65_536

/** Mails of a bot user. Its account chooses the recipients, and the gateway's mail server sends them. */
const MAILS = { capacity: 20, refillPerS: 1 / 120, maxKeys: 10_000 }

export const NO_MAIL =
  'The gateway has no mail server. Set GATEWAY_SMTP_URL and GATEWAY_SMTP_FROM, and restart it.'

export interface DeliveryOptions {
  /** Undefined: the gateway has no mail server. */
  readonly mailer: Mailer | undefined
  /** Addresses that requests may connect to. Called with the resolved address. */
  readonly mayDial: NonNullable<PolicyReach['mayDial']>
  readonly clock: Clock
  readonly log: Logger
}

interface Sending {
  readonly message: Message
  /** The same for repetitions of the message. */
  readonly id: string
  /** A person waits for the result. */
  readonly isTest?: boolean
}

/** Sends single messages. */
export class Delivery {
  readonly #options: DeliveryOptions
  readonly #mails: TokenBuckets

  constructor(options: DeliveryOptions) {
    this.#options = options
    this.#mails = new TokenBuckets({ ...MAILS, clock: options.clock })
  }

  get hasMail(): boolean {
    return this.#options.mailer !== undefined
  }

  /** Never throws. */
  async send(
    channel: NotificationChannel,
    { message, id, isTest = false }: Sending,
    stopping: AbortSignal,
  ): Promise<Attempt> {
    const ms = channel.kind === 'email' && !isTest ? MAIL_ATTEMPT_MS : ATTEMPT_MS
    try {
      return await abortedAfter(ms, stopping, (signal) =>
        channel.kind === 'email'
          ? this.#mail(channel, { message, id }, signal)
          : this.#post(channel.kind, channel.url ?? '', { message, signal }),
      )
    } catch (error) {
      if (error instanceof OutboundError) return { ...NOT_SENT, text: error.message }
      this.#options.log.error(
        { err: error, channel: channel.id },
        'notification not sent because of an internal error',
      )
      return NOT_SENT
    }
  }

  async #mail(
    { ownerId, name, addresses }: NotificationChannel,
    { message: { title, lines }, id }: { readonly message: Message; readonly id: string },
    signal: AbortSignal,
  ): Promise<Attempt> {
    const { mailer } = this.#options
    if (!mailer) return { ...NOT_SENT, text: NO_MAIL }
    const waitMs = ownerId === null ? 0 : this.#mails.tryCount(ownerId)
    if (waitMs > 0) {
      const seconds = Math.ceil(waitMs / 1_000)
      return { ...NOT_SENT, text: `The account is at its limit of mails. Wait ${seconds} s.` }
    }
    const text = [...lines, '', '--', `Notification channel: ${name}`, ''].join('\n')
    return mailer.send({ to: addresses, subject: title, text, id }, signal)
  }

  async #post(
    kind: Exclude<NotificationChannel['kind'], 'email'>,
    target: string,
    { message, signal }: { readonly message: Message; readonly signal: AbortSignal },
  ): Promise<Attempt> {
    const { mayDial } = this.#options
    const url = new URL(target)
    const { contentType, body } = chatRequest(kind, message, url)
    const headers = { 'content-type': contentType, 'user-agent': 'device-agent-gateway' }
    const request = { url, method: 'POST', headers, body, signal, maxBytes: MAX_ANSWER_BYTES }
    const { status } = await send(request, { mayDial })
    if (status >= 200 && status < 300) return { isTaken: true, status, text: 'Delivered.' }
    // The body of the answer is not shown: it may repeat the URL, which is a secret.
    const said = [status, STATUS_CODES[status]].join(' ').trim()
    return { isTaken: false, status, text: `The receiver answered with ${said}.` }
  }
}

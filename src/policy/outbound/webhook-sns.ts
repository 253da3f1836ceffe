import { type KeyObject, verify, X509Certificate } from 'node:crypto'
import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { Renewable } from './key-source.ts'
import { OutboundError } from './outbound.ts'
import { isEqual, MISMATCH, type SignedRequest, STALE } from './webhook-signature.ts'

/** Nothing is sent again later than that, unless a topic asks for it. */
const MAX_AGE_MS = 3_600_000
/** Amazon changes it once in a year or two. */
const FRESH_MS = 24 * 3_600_000
const PAUSE_MS = 30_000
/** One for each region that sends here. */
const MAX_CERTIFICATES = 8
/** Most simultaneous certificate downloads, so that messages with many certificates cause no flood. */
const MAX_READING = 4
/** Only certificates of Amazon: an attacker can make certificates at other URLs. */
const PLACE =
  /^https:\/\/sns\.[a-z0-9-]{3,30}\.amazonaws\.com(?:\.cn)?\/SimpleNotificationService-[0-9a-f]{16,64}\.pem$/
const DIGESTS: Readonly<Record<string, string>> = { 1: 'sha1', 2: 'sha256' }
/** Signed fields in this order; missing fields are omitted. */
const NOTIFICATION = ['Message', 'MessageId', 'Subject', 'Timestamp', 'TopicArn', 'Type'] as const
const CONFIRMATION = [
  ...['Message', 'MessageId', 'SubscribeURL', 'Timestamp', 'Token', 'TopicArn', 'Type'],
] as const
const SIGNED: Readonly<Record<string, readonly string[]>> = {
  Notification: NOTIFICATION,
  SubscriptionConfirmation: CONFIRMATION,
  UnsubscribeConfirmation: CONFIRMATION,
}

const Message = z.record(z.string(), z.unknown())

export interface SnsVerifierOptions {
  readonly clock: Clock
  /** Reads a certificate of Amazon, in PEM. */
  readonly read: (url: URL) => Promise<Buffer>
}

/**
 * Messages of Amazon SNS, which Amazon signs with its private key. Their secret is the account number of the
 * topic's owner: without it, any topic would be accepted.
 */
export class SnsVerifier {
  readonly #options: SnsVerifierOptions
  readonly #keys = new Map<string, Renewable<KeyObject>>()
  /** URLs of certificates that were read; removed with them. */
  readonly #known = new Set<string>()
  #reading = 0

  constructor(options: SnsVerifierOptions) {
    this.#options = options
  }

  /** Answers why a signature does not hold; undefined when it does. */
  async findFailure({ body, secret, now }: SignedRequest): Promise<string | undefined> {
    const message = parse(body)
    const text = (name: string) => (typeof message[name] === 'string' ? message[name] : '')
    const names = SIGNED[text('Type')]
    const digest = DIGESTS[text('SignatureVersion')]
    if (!names || !digest || !PLACE.test(text('SigningCertURL'))) return MISMATCH
    const [, , , , owner = ''] = text('TopicArn').split(':')
    if (!isEqual(owner, secret)) return 'The topic belongs to another owner.'
    if (!(Math.abs(now - Date.parse(text('Timestamp'))) <= MAX_AGE_MS)) return STALE
    const signed = names
      .filter((name) => typeof message[name] === 'string')
      .map((name) => `${name}\n${message[name]}\n`)
    try {
      const key = await this.#keyAt(text('SigningCertURL')).current()
      const signature = Buffer.from(text('Signature'), 'base64')
      return verify(digest, Buffer.from(signed.join('')), key, signature) ? undefined : MISMATCH
    } catch (error) {
      return `The certificate of Amazon could not be read. ${(error as Error).message}`
    }
  }

  #keyAt(place: string): Renewable<KeyObject> {
    const found = this.#keys.get(place)
    if (found) return found
    if (this.#keys.size >= MAX_CERTIFICATES) this.#forget(this.#leastWanted())
    const key = new Renewable({
      read: () => this.#read(place),
      freshMs: FRESH_MS,
      pauseMs: PAUSE_MS,
      paused: () =>
        new OutboundError(
          'ERR_NGROK_3422',
          'The certificate could not be read. It is read again soon.',
        ),
      clock: this.#options.clock,
    })
    this.#keys.set(place, key)
    return key
  }

  #forget(place: string): void {
    this.#keys.delete(place)
    this.#known.delete(place)
  }

  /** A certificate that was not read yet, else the oldest. */
  #leastWanted(): string {
    const places = [...this.#keys.keys()]
    return places.find((place) => !this.#known.has(place)) ?? places[0] ?? ''
  }

  async #read(place: string): Promise<KeyObject> {
    if (this.#reading >= MAX_READING) throw new Error('Too many certificates are being read.')
    this.#reading += 1
    try {
      const { publicKey } = new X509Certificate(await this.#options.read(new URL(place)))
      if (publicKey.asymmetricKeyType !== 'rsa') throw new Error('The certificate has no RSA key.')
      this.#known.add(place)
      return publicKey
    } finally {
      this.#reading -= 1
    }
  }
}

function parse(body: Buffer): Record<string, unknown> {
  try {
    return Message.safeParse(JSON.parse(body.toString())).data ?? {}
  } catch {
    return {}
  }
}

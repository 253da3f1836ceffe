import { createHmac, randomBytes, randomInt, timingSafeEqual } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { Secret } from '../../base/secret.ts'

const HEAD_BYTES = 12
const TAG_BYTES = 8
const RANDOM_BITS = 64n

/**
 * Ids of sessions and endpoints, which agents present when they reconnect. They look like all ids: a KSUID of
 * 4 bytes of seconds, 8 random bytes, and 8 bytes of a code that only gateways of the site can compute. So a
 * gateway recognizes its ids, also after a crash. Ids of one source sort by creation.
 */
export class IssuedIds {
  readonly #clock: Clock
  readonly #key: Buffer
  #last = 0n

  constructor(clock: Clock, key: Buffer) {
    this.#clock = clock
    this.#key = key
  }

  next(prefix: 'ts' | 'ep'): string {
    const seconds = Math.max(0, Math.floor(this.#clock.now() / 1_000) - KSUID_EPOCH_S)
    const fresh = (BigInt(seconds) << RANDOM_BITS) | BigInt(`0x${randomBytes(8).toString('hex')}`)
    this.#last = fresh > this.#last ? fresh : this.#last + 1n
    const head = Buffer.from(this.#last.toString(16).padStart(HEAD_BYTES * 2, '0'), 'hex')
    return `${prefix}_${ksuidOf(Buffer.concat([head, this.#tagOf(prefix, head)]))}`
  }

  /** True for an id that a gateway of this site has made. */
  isIssued(id: string, prefix: 'ts' | 'ep'): boolean {
    const bytes = isResourceId(id, prefix) ? ksuidBytes(id.slice(prefix.length + 1)) : undefined
    if (!bytes) return false
    const head = bytes.subarray(0, HEAD_BYTES)
    return timingSafeEqual(bytes.subarray(HEAD_BYTES), this.#tagOf(prefix, head))
  }

  #tagOf(prefix: string, head: Buffer): Buffer {
    const code = createHmac('sha256', this.#key).update(`${prefix} `).update(head).digest()
    return code.subarray(0, TAG_BYTES)
  }
}

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const KSUID_LENGTH = 27
const KSUID_BYTES = 20
const PAYLOAD_BITS = 128n
/** KSUIDs count seconds from here (2014-05-13T16:53:20Z), which keeps 32 bits good until 2150. */
export const KSUID_EPOCH_S = 1_400_000_000
const TOKEN_FORM = /^([0-9A-Za-z]{27})_[0-9][0-9A-Za-z]{20}$/

/** Prefixes of ids. */
export type ResourcePrefix =
  | 'rd'
  | 'ra'
  | 'cr'
  | 'bot'
  | 'ak'
  | 'ep'
  | 'tn'
  | 'ts'
  | 'op'
  | 'ipp'
  | 'ipr'
  | 'dv'
  | 'wh'
  | 'nc'
  | 'nd'
  | 'inv'
  | 'ic'
  | 'epg'
  | 'vault'
  | 'secret'
  | 'cert'
  | 'ca'

/**
 * Makes ids of the form `<prefix>_<KSUID>`: 32 bits of seconds and 128 random bits in 27 base62
 * digits. Ids of one source sort by the order they were made in, within a second too.
 */
export class IdSource {
  readonly #clock: Clock
  #last = 0n

  constructor(clock: Clock) {
    this.#clock = clock
  }

  next(prefix: ResourcePrefix): string {
    const seconds = Math.max(0, Math.floor(this.#clock.now() / 1_000) - KSUID_EPOCH_S)
    const payload = BigInt(`0x${randomBytes(16).toString('hex')}`)
    const fresh = (BigInt(seconds) << PAYLOAD_BITS) | payload
    this.#last = fresh > this.#last ? fresh : this.#last + 1n
    return `${prefix}_${encodeBase62(this.#last)}`
  }
}

/** A new token for the resource `id`: its KSUID, then 21 random characters (122 bits). */
export function createResourceToken(id: string): Secret {
  let secret = ALPHABET.charAt(randomInt(10))
  while (secret.length < 21) secret += ALPHABET.charAt(randomInt(ALPHABET.length))
  return new Secret(`${id.slice(id.indexOf('_') + 1)}_${secret}`)
}

/** The id that a token belongs to, or undefined when the text has not the form of a token. */
export function idOfToken(token: string, prefix: ResourcePrefix): string | undefined {
  const ksuid = TOKEN_FORM.exec(token)?.[1]
  return ksuid && `${prefix}_${ksuid}`
}

/** True for `<prefix>_<KSUID>`. */
export function isResourceId(text: string, prefix: string): boolean {
  return text.startsWith(`${prefix}_`) && /^[0-9A-Za-z]{27}$/.test(text.slice(prefix.length + 1))
}

/** The same KSUID under another prefix. */
export function renamedId(id: string, prefix: ResourcePrefix): string {
  return `${prefix}${id.slice(id.indexOf('_'))}`
}

/** The text of 20 bytes. */
export const ksuidOf = (bytes: Buffer): string => encodeBase62(BigInt(`0x${bytes.toString('hex')}`))

/** The 20 bytes of a KSUID; undefined if the text is too large a number. */
export function ksuidBytes(text: string): Buffer | undefined {
  let value = 0n
  for (const digit of text) value = value * 62n + BigInt(ALPHABET.indexOf(digit))
  const hex = value.toString(16).padStart(KSUID_BYTES * 2, '0')
  return hex.length > KSUID_BYTES * 2 ? undefined : Buffer.from(hex, 'hex')
}

function encodeBase62(value: bigint): string {
  let digits = ''
  for (let rest = value; rest > 0n; rest /= 62n)
    digits = ALPHABET.charAt(Number(rest % 62n)) + digits
  return digits.padStart(KSUID_LENGTH, '0')
}

import { createHash, randomInt, timingSafeEqual } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { Secret } from '../../base/secret.ts'

/** How long a code opens the page. */
export const CODE_LIFE_MS = 5 * 60_000
/** Codes that open it at once; the oldest makes room. */
export const MAX_CODES = 8
/** Crockford's base 32: nothing that can be read as something else. */
const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
/** 60 random bits: too many to guess during the lifetime of a code. */
const GROUPS = 3
const GROUP_LENGTH = 4
const LOOK_ALIKES: Readonly<Record<string, string>> = { O: '0', I: '1', L: '1' }

interface LiveCode {
  readonly hash: Buffer
  /** Milliseconds on the monotonic clock. */
  readonly endsAt: number
}

/** A code that was requested on the device. */
export interface NewCode {
  /** Such as `K7QX-4MPD-0ZTB`. */
  readonly code: Secret
  /** Milliseconds since the epoch. */
  readonly expiresAt: number
}

/** Codes that open the page once, in memory: no restart and no copy of the data folder keeps them. */
export class OneTimeCodes {
  readonly #clock: Clock
  #live: LiveCode[] = []

  constructor(clock: Clock) {
    this.#clock = clock
  }

  create(): NewCode {
    const group = () =>
      Array.from({ length: GROUP_LENGTH }, () => ALPHABET[randomInt(ALPHABET.length)]).join('')
    const code = Array.from({ length: GROUPS }, group).join('-')
    const endsAt = this.#clock.monotonic() + CODE_LIFE_MS
    this.#live = [...this.#live, { hash: hashOf(code), endsAt }].slice(-MAX_CODES)
    return { code: new Secret(code), expiresAt: this.#clock.now() + CODE_LIFE_MS }
  }

  /** Whether a presented code is good; it is over then. As long for each answer. */
  redeem(presented: string): boolean {
    const now = this.#clock.monotonic()
    const hash = hashOf(presented)
    const isGood = this.#live.map((live) => timingSafeEqual(live.hash, hash) && now < live.endsAt)
    this.#live = this.#live.filter((live, at) => !isGood[at] && now < live.endsAt)
    return isGood.includes(true)
  }
}

/** As people type it: small letters, without the dashes, an O for a zero. */
function hashOf(code: string): Buffer {
  const plain = code
    .toUpperCase()
    .replaceAll(/[\s-]/g, '')
    .replaceAll(/[OIL]/g, (letter) => LOOK_ALIKES[letter] ?? letter)
  return createHash('sha256').update(plain).digest()
}

import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { knownField } from './http1/known-field.ts'

/** Longer than any request of a policy may take. */
const VALID_MS = 60_000
const FORM = /^(\d{1,3})\.(\d{1,15})\.([\w-]{43})$/

/**
 * How deep policies ask each other, as a header that nobody else can write: requests of policies may
 * come back over a public address, and through proxies. The key is the process's own, the seal of a
 * request lasts as long as that may be under way.
 */
export class AskSeal {
  readonly #key = randomBytes(32)
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The value of `x-policy-hops` for a request. */
  seal(depth: number): string {
    const text = `${depth}.${Math.ceil(this.#clock.monotonic()) + VALID_MS}`
    return `${text}.${this.#sign(text)}`
  }

  /** The depth in the fields of a request, name and value in turn; 0 unless it is sealed. */
  depthOf(fields: readonly string[]): number {
    let depth = 0
    for (let at = 0; at < fields.length; at += 2) {
      if (knownField(fields[at] as string) !== 'x-policy-hops') continue
      depth = Math.max(depth, this.#open(fields[at + 1] as string))
    }
    return depth
  }

  #open(value: string): number {
    const [, depth, end, signature] = FORM.exec(value) ?? []
    if (depth === undefined || end === undefined || signature === undefined) return 0
    const expected = Buffer.from(this.#sign(`${depth}.${end}`))
    const isGenuine = timingSafeEqual(expected, Buffer.from(signature))
    return isGenuine && this.#clock.monotonic() <= Number(end) ? Number(depth) : 0
  }

  #sign(text: string): string {
    return createHmac('sha256', this.#key).update(text).digest('base64url')
  }
}

import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Clock } from '../../../base/clock.ts'
import { knownField } from '../syntax/message-fields.ts'

/**
 * Longer than any request of a policy, and than the clock difference of two gateways. A client that keeps a
 * seal can only make its own requests fail.
 */
const VALID_MS = 86_400_000
const FORM = /^(\d{1,3})\.(\d{1,15})\.([\w-]{43})$/

/**
 * Nesting depth of policy requests, as a header that only gateways can write. Such requests may return over a
 * public address, through proxies, and to another gateway of the site, which has the same key.
 */
export class AskSeal {
  readonly #key: Buffer
  readonly #clock: Clock

  constructor(clock: Clock, key: Buffer = randomBytes(32)) {
    this.#clock = clock
    this.#key = key
  }

  /** The value of `x-policy-hops` for a request. */
  seal(depth: number): string {
    const text = `${depth}.${this.#clock.now() + VALID_MS}`
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
    return isGenuine && this.#clock.now() <= Number(end) ? Number(depth) : 0
  }

  #sign(text: string): string {
    return createHmac('sha256', this.#key).update(text).digest('base64url')
  }
}

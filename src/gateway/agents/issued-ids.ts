import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { isResourceId, KSUID_EPOCH_S, ksuidBytes, ksuidOf } from '../records/resource-id.ts'

const HEAD_BYTES = 12
const TAG_BYTES = 8
const RANDOM_BITS = 64n

/**
 * The ids of sessions and endpoints, which agents present again when they reconnect. An id has the form
 * of every other id: a KSUID of 4 bytes of seconds, 8 random bytes and 8 bytes of a code that only the
 * gateways of a site can compute. So a gateway knows its own ids again, also after a crash.
 * Ids of one source sort by the order in which they were made.
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

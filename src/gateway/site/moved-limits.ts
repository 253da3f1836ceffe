import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { withDeadline } from '../../base/deadline.ts'
import type { Logger } from '../../base/logger.ts'
import { DUMP_FIELDS, dumpText } from '../../policy/limit/dump-text.ts'
import { RateLimiter } from '../../policy/limit/rate-limiter.ts'
import type { PlacedStates, PolicyPlace } from '../endpoints/endpoint-policies.ts'
import type { Questions } from './questions.ts'

const MOVED = 'limits'
/** Sooner than the name is taken by who waits for it. */
const SEND_MS = 700
/** Of one name: what has more begins anew. */
const MAX_BYTES = 4_194_304
/** Of names whose endpoints are about to come, and what all of them may take. */
const MOST_AWAITED = 2_000
const MOST_AWAITED_BYTES = 67_108_864
/** Of a limit without its counts. */
const LIMIT_BYTES = 1_024
/** An endpoint that has not come by then comes some other way. */
const AWAIT_MS = 60_000

const MovedSchema = z.strictObject({
  ownerId: z.string().nullable(),
  protocol: z.enum(['http', 'https', 'tcp', 'tls']),
  host: z.string(),
  member: z.string(),
  limits: z.array(
    z.strictObject({
      state: z.string(),
      capacity: z.int().positive(),
      windowMs: z.int().positive(),
      ...DUMP_FIELDS,
    }),
  ),
})
type Moved = z.infer<typeof MovedSchema>

export interface MovedLimitsOptions {
  readonly questions: Questions
  readonly clock: Clock
  readonly log: Logger
}

interface Arrived {
  readonly moved: Moved
  readonly bytes: number
  /** Monotonic. */
  readonly at: number
}

/** The counters of a policy, as far as they go along. */
type States = PlacedStates['states']

/**
 * Takes what rate limits have counted along with a name, from its home to the next one.
 *
 * INVARIANT: it is sent when the name is not served any more, and has arrived before it is given up; so
 * whoever serves it next has it. What does not arrive begins anew, and the log says so.
 */
export class MovedLimits {
  readonly #options: MovedLimitsOptions
  /** By name, the oldest first. */
  readonly #arrived = new Map<string, Arrived>()
  #bytes = 0

  constructor(options: MovedLimitsOptions) {
    this.#options = options
    options.questions.on(MOVED, (of) => this.#arrive(MovedSchema.parse(of)))
  }

  /** Names whose endpoints are about to come. */
  get size(): number {
    return this.#arrived.size
  }

  /** Never rejects. */
  async send(nodeId: string, place: PolicyPlace, states: States): Promise<void> {
    const { questions, log } = this.#options
    const { ownerId, protocol, host, poolMember: member = '' } = place
    const limits = dumpAll(states)
    if (limits.length === 0) return
    try {
      const moved = { ownerId, protocol, host, member, limits }
      const bytes = limits.reduce((sum, { rows }) => sum + rows.join('').length, 0)
      if (bytes > MAX_BYTES) throw new Error(`the counts take ${bytes} bytes`)
      await withDeadline(questions.ask(nodeId, MOVED, moved), SEND_MS, 'moving rate limits')
    } catch (err) {
      log.warn({ err, host, node: nodeId }, 'the rate limits of a name begin anew where it is now')
    }
  }

  /** Lets the policy that is about to be in force at a place go on with what has arrived for it. */
  take(place: PolicyPlace, states: States): void {
    const arrived = this.#remove(keyOf({ ...place, member: place.poolMember ?? '' }))
    if (!arrived) return
    const { moved, at } = arrived
    const elapsedMs = this.#options.clock.monotonic() - at
    if (elapsedMs > AWAIT_MS) return
    for (const { state, capacity, windowMs, ...dump } of moved.limits) {
      const limiter = states.get(state)
      if (!(limiter instanceof RateLimiter)) continue
      if (limiter.capacity === capacity && limiter.windowMs === windowMs) {
        limiter.restore(dump, elapsedMs)
      }
    }
  }

  /** Lets go of what nobody has come for. Call it now and then. */
  forget(): void {
    const before = this.#options.clock.monotonic() - AWAIT_MS
    for (const [key, { at }] of this.#arrived) {
      if (at >= before) return
      this.#remove(key)
    }
  }

  #arrive(moved: Moved): null {
    const key = keyOf(moved)
    this.#remove(key)
    const bytes = bytesOf(moved)
    this.#arrived.set(key, { moved, bytes, at: this.#options.clock.monotonic() })
    this.#bytes += bytes
    for (const oldest of this.#arrived.keys()) {
      if (this.#arrived.size <= MOST_AWAITED && this.#bytes <= MOST_AWAITED_BYTES) break
      this.#remove(oldest)
    }
    return null
  }

  #remove(key: string): Arrived | undefined {
    const arrived = this.#arrived.get(key)
    this.#arrived.delete(key)
    this.#bytes -= arrived?.bytes ?? 0
    return arrived
  }
}

/** As it is kept, roughly: a message may be full of limits that have counted nobody. */
function bytesOf({ host, member, limits }: Moved): number {
  let bytes = 2 * (host.length + member.length) + LIMIT_BYTES
  for (const { state, rows } of limits) {
    bytes += 2 * state.length + LIMIT_BYTES
    for (const { byteLength } of rows) bytes += byteLength
  }
  return bytes
}

function dumpAll(states: States) {
  return [...states].flatMap(([state, limiter]) => {
    if (!(limiter instanceof RateLimiter)) return []
    const { capacity, windowMs } = limiter
    const dump = limiter.dump(MAX_BYTES)
    return dump ? [{ state, capacity, windowMs, ...dumpText(dump) }] : []
  })
}

function keyOf({
  ownerId,
  protocol,
  host,
  member,
}: Pick<Moved, 'ownerId' | 'protocol' | 'host'> & { member: string }) {
  return JSON.stringify([ownerId, protocol, host, member])
}

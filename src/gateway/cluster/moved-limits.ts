import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { withDeadline } from '../../base/deadline.ts'
import type { Logger } from '../../base/logger.ts'
import { DUMP_FIELDS, dumpText, RateLimiter } from '../../policy/limit/rate-limiter.ts'
import type { PlacedStates } from '../endpoints/endpoint-policies.ts'
import {
  type Claim,
  type ClaimHolder,
  ClaimHolderSchema,
  ClaimKeySchema,
  keyText,
} from './nodes/claim.ts'
import type { Questions } from './questions.ts'

const MOVED = 'limits'
/** So long visitors wait for the counts of a node that has a link; one that is gone loses that sooner. */
const FETCH_MS = 4_000
const AGAIN_MS = 100
/** Whoever has a name next has come for its counts by then. */
const AWAIT_MS = 2_000
/** Of one name: a limit that does not fit begins anew. */
const MAX_BYTES = 4_194_304

const AskedSchema = ClaimKeySchema.extend({ holder: ClaimHolderSchema }).strict()
const AnswerSchema = z.strictObject({
  limits: z.array(
    z.strictObject({
      state: z.string(),
      capacity: z.int().positive(),
      windowMs: z.int().positive(),
      ...DUMP_FIELDS,
    }),
  ),
})
type Answer = z.infer<typeof AnswerSchema>

/** The counters of a policy, as far as they go along. */
type States = PlacedStates['states']

export interface MovedLimitsOptions {
  readonly nodeId: string
  readonly questions: Pick<Questions, 'on' | 'ask'>
  /** Whether another node answers as far as is known: it has a link, or is about to get its first. */
  readonly isReached: (nodeId: string) => boolean
  /** Another node has a name: what comes after this call is not counted here. */
  readonly onTaken: (key: Claim['key'], holder: ClaimHolder) => void
  /** Those of the policy that is in force for a name, or was last. */
  readonly statesOf: (claim: Claim) => States | undefined
  /** The policy of a name that comes next goes on with these. */
  readonly remember: (claim: Claim, states: States) => void
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Takes what rate limits have counted along with a name, from its last home to the next one: that asks
 * for it.
 *
 * INVARIANTS
 * - It is asked for when the name is claimed, and before it is served: nobody is let in by a limit that
 *   does not know of who was let in before.
 * - It is answered when the name is not served any more, whether it was given up or taken.
 * - Where the last home does not answer the limit begins anew, and the log says so.
 */
export class MovedLimits {
  readonly #options: MovedLimitsOptions
  /** Names that were given up, and whose counts nobody has come for: since when, monotonic; oldest first. */
  readonly #given = new Map<string, number>()

  constructor(options: MovedLimitsOptions) {
    this.#options = options
    options.questions.on(MOVED, (of) => this.#answer(AskedSchema.parse(of)))
  }

  /** Names whose counts are about to be asked for: a node that ends waits for that. */
  get awaited(): number {
    this.#forget()
    return this.#given.size
  }

  /** Whether there is something that the next home of a name has to ask for. */
  hasCounted(states: States): boolean {
    const now = this.#options.clock.monotonic()
    return limitersOf(states).some(
      ([, { askedAt, windowMs }]) => askedAt > 0 && now - askedAt < windowMs,
    )
  }

  /** A name is given up, and its next home is going to ask for what was counted. */
  give({ key }: Claim, states: States): void {
    this.#forget()
    if (counted(states).length > 0) this.#given.set(keyText(key), this.#options.clock.monotonic())
  }

  /** Lets the policy that is about to be in force go on with what was counted at the last home. Never rejects. */
  async take(claim: Claim, states: States, from: string): Promise<void> {
    const { log, isReached, remember } = this.#options
    if (limitersOf(states).length === 0) return
    try {
      const { limits } = await withDeadline(
        this.#fetch(claim, from),
        FETCH_MS,
        'moving rate limits',
      )
      restore(states, limits)
      // What it is for may fail, and come once more, here or at a third node.
      remember(claim, states)
    } catch (err) {
      const facts = { err, host: claim.key.host, node: from }
      // Of a node that is gone there may be thousands.
      const level = isReached(from) ? 'warn' : 'info'
      log[level](facts, 'the rate limits of a name restart at zero on its new node')
    }
  }

  async #fetch({ key, facts }: Claim, from: string): Promise<Answer> {
    const { nodeId, questions, isReached, clock } = this.#options
    const until = clock.monotonic() + FETCH_MS
    for (;;) {
      try {
        const asked = { ...key, holder: { nodeId, epoch: 0, facts } }
        return AnswerSchema.parse(await questions.ask(from, MOVED, asked))
      } catch (error) {
        if (!isReached(from) || clock.monotonic() >= until) throw error
      }
      await clock.sleep(AGAIN_MS)
    }
  }

  #answer({ holder, ...key }: z.infer<typeof AskedSchema>) {
    const { onTaken, statesOf } = this.#options
    // It may have been taken while nobody here has heard of that.
    onTaken(key, holder)
    this.#given.delete(keyText(key))
    return { limits: counted(statesOf({ key, facts: holder.facts }) ?? new Map()) }
  }

  #forget(): void {
    const before = this.#options.clock.monotonic() - AWAIT_MS
    for (const [key, since] of this.#given) {
      if (since >= before) return
      this.#given.delete(key)
    }
  }
}

function limitersOf(states: States): (readonly [state: string, limiter: RateLimiter])[] {
  return [...states].flatMap(([state, it]) =>
    it instanceof RateLimiter ? [[state, it] as const] : [],
  )
}

/** What is kept for another process, of limits that have counted somebody. */
function counted(states: States) {
  let left = MAX_BYTES
  return limitersOf(states).flatMap(([state, limiter]) => {
    const { capacity, windowMs } = limiter
    const dump = limiter.dump(left)
    if (!dump) return []
    left -= dump.rows.reduce((sum, { byteLength }) => sum + byteLength, 0)
    return [{ state, capacity, windowMs, ...dumpText(dump) }]
  })
}

function restore(states: States, limits: Answer['limits']): void {
  for (const { state, capacity, windowMs, ...dump } of limits) {
    const limiter = states.get(state)
    if (!(limiter instanceof RateLimiter)) continue
    if (limiter.capacity === capacity && limiter.windowMs === windowMs) limiter.restore(dump, 0)
  }
}

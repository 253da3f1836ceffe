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
import type { PeerRpc } from './peer-rpc.ts'

const MOVED = 'limits'
/** Limit of visitors' wait for the counts of a linked node. A lost node loses its link sooner. */
const FETCH_MS = 4_000
const AGAIN_MS = 100
/** Time in which the next node fetches the counts of a name. */
const AWAIT_MS = 2_000
/** Size of the counts of one name. A limit that does not fit restarts at zero. */
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
  readonly questions: Pick<PeerRpc, 'on' | 'ask'>
  /** Whether another node answers as far as is known: it has a link, or is about to get its first. */
  readonly isReached: (nodeId: string) => boolean
  /** Another node has the name: later requests are not counted here. */
  readonly onTaken: (key: Claim['key'], holder: ClaimHolder) => void
  /** Counts of the current or last policy of a name. */
  readonly statesOf: (claim: Claim) => States | undefined
  /** The policy of a name that comes next goes on with these. */
  readonly remember: (claim: Claim, states: States) => void
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Moves the counts of rate limits with a name. The new node requests them from the last node.
 *
 * INVARIANTS
 * - They are requested after the name is claimed and before it is served. So no limit admits visitors without
 *   knowing earlier admissions.
 * - They are returned when the name is no longer served, whether it was released or taken.
 * - If the last node does not answer, the limit restarts at zero, and the log says so.
 */
export class MovedLimits {
  readonly #options: MovedLimitsOptions
  /**
   * Released names whose counts were not fetched yet, with the monotonic time of the release, oldest first.
   */
  readonly #given = new Map<string, number>()

  constructor(options: MovedLimitsOptions) {
    this.#options = options
    options.questions.on(MOVED, (of) => this.#answer(AskedSchema.parse(of)))
  }

  /** Names whose counts will be fetched: a node that ends waits for that. */
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

  /** A name is released, and its next node will fetch its counts. */
  give({ key }: Claim, states: States): void {
    this.#forget()
    if (counted(states).length > 0) this.#given.set(keyText(key), this.#options.clock.monotonic())
  }

  /** Continues the next policy of a name with the counts of its last node. Never rejects. */
  async importStates(claim: Claim, states: States, from: string): Promise<void> {
    const { log, isReached, remember } = this.#options
    if (limitersOf(states).length === 0) return
    try {
      const { limits } = await withDeadline(
        this.#fetch(claim, from),
        FETCH_MS,
        'moving rate limits',
      )
      restore(states, limits)
      // The bind may fail, and be repeated here or at a third node.
      remember(claim, states)
    } catch (err) {
      const facts = { err, host: claim.key.host, node: from }
      // A lost node may have thousands of names.
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
    // The name may have been taken before this node learned of it.
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

/** Counts for another node, from limits that counted a request. */
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

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import {
  type Drain,
  type DrainGivenUp,
  type DrainLeft,
  type DrainProgress,
  MAX_END_MS,
  type SendAway,
} from '../ports/drain.ts'
import { ServiceError } from '../records/service-error.ts'
import type { NodeLease } from './nodes/node-lease.ts'

/** Limit for running requests of an agent's sessions: agents wait no longer. */
export const DRAIN_MS = 60_000
/** Agents are sent away one after another, so that they do not come to the others all at once. */
const STEP_MS = 50
const POLL_MS = 100

const LAST_ONE = 'No other gateway is left to take over.'

export interface NodeDrainOptions {
  readonly lease: Pick<NodeLease, 'stand'>
  /** Ids of the sessions of agents that are here. */
  readonly sessions: () => Iterable<string>
  readonly left: () => DrainLeft
  /** Whether another node serves. */
  readonly hasOthers: () => boolean
  readonly log: Logger
  readonly clock: Clock
}

/**
 * Empties this node, so that a stop affects no visitor. It accepts no new names, and sends its agents to
 * other nodes one after another, with their names.
 *
 * INVARIANTS
 * - Each session is asked once. A session that cannot move is served until the node ends.
 * - Visitors at this node are still served, wherever their endpoints are.
 * - A drain needs another serving node. Without one, this node accepts names again, unless it is ending
 *   anyway.
 */
export class NodeDrain implements Drain {
  readonly #options: NodeDrainOptions
  #current:
    | {
        readonly since: number
        readonly from: DrainLeft
        readonly over: AbortController
        /** Settles when the others have heard of it, or cannot. */
        readonly begun: Promise<void>
      }
    | undefined
  #givenUp: DrainGivenUp | undefined
  #isEnd = false
  #sendAway: SendAway = async () => {}

  constructor(options: NodeDrainOptions) {
    this.#options = options
  }

  /** Says how agents are sent away, once there can be some. */
  open(sendAway: SendAway): void {
    this.#sendAway = sendAway
  }

  get isOn(): boolean {
    return this.#current !== undefined
  }

  /** Undefined if the node is not draining. */
  get progress(): DrainProgress | undefined {
    if (!this.#current) return undefined
    const { since, from } = this.#current
    return { since, from, left: this.#options.left() }
  }

  /** Why the last drain has ended by itself; undefined when it did not. */
  get givenUp(): DrainGivenUp | undefined {
    return this.#givenUp
  }

  get isDone(): boolean {
    const { left } = this.progress ?? {}
    return left !== undefined && left.agents + left.endpoints + left.requests === 0
  }

  /**
   * Starts a drain. A second call joins the first. Throws ServiceError 841 if no other node serves, and 843
   * while PostgreSQL is unreachable.
   */
  async start(withinMs = DRAIN_MS): Promise<void> {
    const { left, hasOthers, clock, log } = this.#options
    if (this.#current) return this.#current.begun
    if (!hasOthers()) {
      throw new ServiceError(
        841,
        'No other gateway of the cluster can take over. Start another gateway first, or stop this gateway without a drain.',
      )
    }
    const over = new AbortController()
    this.#givenUp = undefined
    const from = left()
    log.info({ ...from }, 'drain started')
    const begun = this.#begin(withinMs, over.signal)
    this.#current = { since: clock.now(), from, over, begun }
    await begun
  }

  /** Accepts names again. Moved names stay at the other nodes. Throws ServiceError 841 when the node ends. */
  async undo(): Promise<void> {
    if (this.#isEnd) {
      throw new ServiceError(841, 'This gateway is stopping. The drain cannot be undone.')
    }
    this.#givenUp = undefined
    if (!this.#current) return
    this.#options.log.info('drain undone')
    await this.#serveAgain()
  }

  async #begin(withinMs: number, signal: AbortSignal): Promise<void> {
    const { lease, log } = this.#options
    try {
      await lease.stand('draining')
    } catch (cause) {
      // Agents would find no other node. Another drain may have started since.
      if (!signal.aborted) {
        log.info('drain undone')
        await this.#serveAgain()
      }
      const sentence = 'PostgreSQL does not answer, so no name can move to another gateway now.'
      throw new ServiceError(843, `${sentence} Try again when it is back.`, { cause })
    }
    void this.#empty(withinMs, signal)
  }

  /** Ends the drain if no other node serves. */
  onNodes(): void {
    const { hasOthers, clock, log } = this.#options
    if (!this.#current || this.#isEnd || hasOthers()) return
    this.#givenUp = { at: clock.now(), reason: LAST_ONE }
    log.error({ ...this.#options.left() }, 'drain cancelled: no other gateway is left')
    void this.#serveAgain()
  }

  /**
   * The node ends: moves all that it can. Goes on while names and agents leave, until none has left for
   * `withinMs`. This cannot be undone.
   */
  async end(withinMs: number): Promise<void> {
    this.#isEnd = true
    await this.start(withinMs)
    await this.#untilDone(withinMs)
  }

  /** Stops without further changes. */
  stop(): void {
    this.#current?.over.abort('over')
    this.#current = undefined
  }

  /** Resolves when all have gone, or no more have gone for some time. */
  async #untilDone(withinMs: number): Promise<void> {
    const { clock, left } = this.#options
    const latest = clock.monotonic() + MAX_END_MS
    let until = clock.monotonic() + withinMs
    let fewest = Number.POSITIVE_INFINITY
    while (this.isOn && !this.isDone && clock.monotonic() < Math.min(until, latest)) {
      await clock.sleep(POLL_MS)
      const { agents, endpoints } = left()
      if (agents + endpoints >= fewest) continue
      if (fewest < Number.POSITIVE_INFINITY) until = clock.monotonic() + withinMs
      fewest = agents + endpoints
    }
  }

  async #serveAgain(): Promise<void> {
    const { lease, log } = this.#options
    this.stop()
    await lease
      .stand('serving')
      .catch((err) => log.warn({ err }, 'the other nodes are not told of the drain yet'))
  }

  async #empty(withinMs: number, signal: AbortSignal): Promise<void> {
    const { sessions, clock, log } = this.#options
    const asked = new Set<string>()
    // Half of the time is reserved for the last sessions.
    const stepMs = Math.min(STEP_MS, withinMs / 2 / Math.max(1, [...sessions()].length))
    let isTold = false
    while (!signal.aborted) {
      const next = [...sessions()].find((id) => !asked.has(id))
      if (next !== undefined) {
        asked.add(next)
        void this.#sendAway(next, withinMs)
      } else if (this.isDone && !isTold) {
        isTold = true
        log.info('drained: this gateway can be stopped without affecting visitors')
      }
      await clock.sleep(next === undefined ? POLL_MS : stepMs, signal).catch(() => {})
    }
  }
}

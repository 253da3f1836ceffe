import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { PeerRpc } from './peer-rpc.ts'

/** How often the others are asked while something is wrong here. */
const POLL_MS = 1_000
const QUESTION = 'lease'
const AnswerSchema = z.object({ is_firm: z.boolean() })

export interface OutageOptions {
  /** Whether something is wrong here that may be so at all nodes: PostgreSQL is away, or a disk full. */
  readonly isHit: () => boolean
  /** Whether this node works without problems. Must not depend on answers of other nodes. */
  readonly isFine: () => boolean
  readonly questions: Pick<PeerRpc, 'on' | 'ask'>
  /** The ids of the other nodes that are there. */
  readonly others: () => readonly string[]
  readonly clock: Clock
}

/**
 * Detects whether an outage affects all nodes or only this one. It calls the other nodes on their links,
 * which need no database. Missing answers are ignored.
 */
export class Outage {
  readonly #options: OutageOptions
  readonly #stopping = new AbortController()
  #isOwn = false
  #looking: Promise<void> | undefined

  constructor(options: OutageOptions) {
    this.#options = options
    const { questions, isFine } = options
    questions.on(QUESTION, () => ({ is_firm: isFine() }))
  }

  /** Whether another node is fine while something is wrong here. */
  get isOwn(): boolean {
    return this.#isOwn && this.#options.isHit()
  }

  start(): void {
    this.#looking ??= this.#keepLooking()
  }

  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    await this.#looking
  }

  async #keepLooking(): Promise<void> {
    const { isHit, clock } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      this.#isOwn = isHit() && (await this.#isElsewhereFine())
      await clock.sleep(POLL_MS, signal).catch(() => {})
    }
  }

  async #isElsewhereFine(): Promise<boolean> {
    const answers = await Promise.all(this.#options.others().map((id) => this.#isFirm(id)))
    return answers.includes(true)
  }

  async #isFirm(nodeId: string): Promise<boolean> {
    try {
      return AnswerSchema.parse(await this.#options.questions.ask(nodeId, QUESTION)).is_firm
    } catch {
      return false
    }
  }
}

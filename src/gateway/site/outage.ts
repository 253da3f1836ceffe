import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { LeaseState } from '../cluster/lease-state.ts'
import type { Questions } from './questions.ts'

/** How often the others are asked while this node hears nothing of PostgreSQL. */
const LOOK_MS = 1_000
const QUESTION = 'lease'
const AnswerSchema = z.object({ is_firm: z.boolean() })

export interface OutageOptions {
  readonly lease: { readonly state: LeaseState; readonly isFirm: boolean }
  readonly questions: Pick<Questions, 'on' | 'ask'>
  /** The ids of the other nodes that are there. */
  readonly others: () => readonly string[]
  readonly clock: Clock
}

/**
 * Whose an outage of PostgreSQL is: that of all nodes, or of this one alone. The others are asked on the
 * links that need no database; who does not answer says nothing.
 */
export class Outage {
  readonly #options: OutageOptions
  readonly #stopping = new AbortController()
  #isOwn = false
  #looking: Promise<void> | undefined

  constructor(options: OutageOptions) {
    this.#options = options
    const { questions, lease } = options
    questions.on(QUESTION, () => ({ is_firm: lease.isFirm }))
  }

  /** Whether another node reaches PostgreSQL while this one's lease is over. */
  get isOwn(): boolean {
    return this.#isOwn && this.#options.lease.state === 'overdue'
  }

  start(): void {
    this.#looking ??= this.#keepLooking()
  }

  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    await this.#looking
  }

  async #keepLooking(): Promise<void> {
    const { lease, clock } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      this.#isOwn = lease.state === 'overdue' && (await this.#isElsewhereFine())
      await clock.sleep(LOOK_MS, signal).catch(() => {})
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

import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { call } from '../../muxado/rpc.ts'
import type { Session } from '../../muxado/session.ts'
import { NoAnswerError } from '../ports/other-gateways.ts'
import { ServiceError } from '../records/service-error.ts'
import type { Claims, Given, GiveRequest } from './nodes/claims.ts'
import { giveRequestIn } from './nodes/notify-asker.ts'
import { ANSWER_LIMITS, QUESTION_STREAM_TYPE } from './peers/peer-protocol.ts'

const QUESTION = 'give'
const GivenSchema = z.strictObject({ said: z.enum(['given', 'kept', 'unknown']) })

interface GiveQuestionOptions {
  readonly nodeId: string
  readonly questions: Pick<Questions, 'on' | 'ask'>
  readonly claims: () => Pick<Claims, 'asked'>
}

/** Asks another node for a name on the link to it: unlike by way of the database, that has an answer. */
export class GiveQuestion {
  readonly #questions: Pick<Questions, 'ask'>

  constructor({ nodeId, questions, claims }: GiveQuestionOptions) {
    this.#questions = questions
    questions.on(QUESTION, async (of) => {
      const request = giveRequestIn(of, nodeId)
      return { said: request ? await claims().asked(request) : 'unknown' }
    })
  }

  /** Never rejects. */
  async ask(request: GiveRequest): Promise<Given> {
    try {
      const answer = await this.#questions.ask(request.nodeId, QUESTION, request)
      return GivenSchema.parse(answer).said
    } catch {
      return 'unknown'
    }
  }
}

/** Of one kind: those of another may be what one of it waits for. */
const MOST_AT_ONCE = 64
/** Of all kinds and nodes together, with those that wait for their turn; what is more is refused. */
const MOST_PENDING = 2_048

const QuestionSchema = z.strictObject({ ask: z.string().max(64), of: z.unknown() })
const AnswerSchema = z.union([
  z.strictObject({ answer: z.unknown() }),
  /** A refusal for people, as this node would have said it itself. */
  z.strictObject({ refusal: z.strictObject({ code: z.number().int(), message: z.string() }) }),
])

export interface QuestionsOptions {
  readonly links: { find(nodeId: string): { readonly session: Session | undefined } | undefined }
  readonly clock: Clock
  readonly log: Logger
}

interface Kind {
  readonly answer: (of: unknown) => unknown
  readonly line: Semaphore
}

/**
 * What nodes ask each other beside visitors: one message each way on the link that is there anyway,
 * within 2 s. Who asks has shown that it is of the cluster.
 */
export class Questions {
  readonly #options: QuestionsOptions
  readonly #known = new Map<string, Kind>()
  #pending = 0

  constructor(options: QuestionsOptions) {
    this.#options = options
  }

  /** Says how one kind of question is answered; a ServiceError goes to who asked. */
  on(ask: string, answer: (of: unknown) => unknown): void {
    this.#known.set(ask, { answer, line: new Semaphore(MOST_AT_ONCE) })
  }

  /** Answers another node. Throws when the question is not understood, or there are too many. */
  async answer(message: unknown): Promise<z.infer<typeof AnswerSchema>> {
    const { ask, of } = QuestionSchema.parse(message)
    const kind = this.#known.get(ask)
    if (!kind) throw new Error(`unknown question ${JSON.stringify(ask)}`)
    if (this.#pending >= MOST_PENDING)
      throw new Error('too many questions from other nodes at once')
    this.#pending += 1
    try {
      return { answer: (await kind.line.run(async () => kind.answer(of))) ?? null }
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error
      return { refusal: { code: error.code, message: error.message } }
    } finally {
      this.#pending -= 1
    }
  }

  /** Throws a NoAnswerError, and the ServiceError that the other node refuses with. */
  async ask(nodeId: string, ask: string, of: object = {}): Promise<unknown> {
    const { links, clock, log } = this.#options
    const session = links.find(nodeId)?.session
    if (!session) throw new NoAnswerError(`no link to the node ${nodeId}`)
    const limits = { ...ANSWER_LIMITS, clock }
    let said: z.infer<typeof AnswerSchema>
    try {
      said = AnswerSchema.parse(await call(session, QUESTION_STREAM_TYPE, { ask, of }, limits))
    } catch (err) {
      // Whoever asks says what comes of it, and some ask again ten times a second.
      log.debug({ err, node: nodeId, ask }, 'no answer from a node')
      throw new NoAnswerError(`no answer from the node ${nodeId}`, { cause: err })
    }
    if ('refusal' in said) throw new ServiceError(said.refusal.code, said.refusal.message)
    return said.answer
  }
}

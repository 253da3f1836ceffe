import * as z from 'zod'
import type { Claims, Given, GiveRequest } from './nodes/claims.ts'
import { giveRequestIn } from './nodes/notify-asker.ts'
import type { Questions } from './questions.ts'

const QUESTION = 'give'
const AnswerSchema = z.strictObject({ said: z.enum(['given', 'kept', 'unknown']) })

export interface GiveQuestionOptions {
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
      return AnswerSchema.parse(answer).said
    } catch {
      return 'unknown'
    }
  }
}

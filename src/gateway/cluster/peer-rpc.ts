import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { call } from '../../muxado/rpc.ts'
import type { Session } from '../../muxado/session.ts'
import { NoAnswerError } from '../ports/other-gateways.ts'
import { ServiceError } from '../records/service-error.ts'
import { ClaimFactsSchema, ClaimKeySchema } from './nodes/claim.ts'
import type { Claims, Given, GiveRequest } from './nodes/claims.ts'
import { ANSWER_LIMITS, QUESTION_STREAM_TYPE } from './peers/peer-protocol.ts'
import type { DatabaseFollower } from './postgres/database-follower.ts'
import type { PostgresConnection } from './postgres/postgres-connection.ts'

const QUESTION = 'give'
const GivenSchema = z.strictObject({ said: z.enum(['given', 'kept', 'unknown']) })

const GiveRequestSchema = z.object({
  nodeId: z.string(),
  byNode: z.string(),
  heldBy: z.string(),
  wanted: z.object({ key: ClaimKeySchema, facts: ClaimFactsSchema }),
})

const ASKED_CHANNEL = 'claims_asked'
/** NOTIFY accepts payloads of less than 8,000 bytes; a request has far fewer. */
const MAX_NOTICE_BYTES = 7_999

interface GiveQuestionOptions {
  readonly nodeId: string
  readonly questions: Pick<PeerRpc, 'on' | 'ask'>
  readonly connection: Pick<PostgresConnection, 'query'>
  readonly follower: Pick<DatabaseFollower, 'listen'>
  readonly claims: () => Pick<Claims, 'asked'>
  readonly log: Logger
}

/**
 * Asks another node for a name, on the link to it. Nodes that reach PostgreSQL and not each other get the
 * request by NOTIFY, which has no answer.
 */
export class GiveQuestion {
  readonly #options: GiveQuestionOptions

  constructor(options: GiveQuestionOptions) {
    const { nodeId, questions, follower, claims, log } = options
    this.#options = options
    questions.on(QUESTION, async (of) => {
      const request = giveRequestIn(of, nodeId)
      return { said: request ? await claims().asked(request) : 'unknown' }
    })
    follower.listen(ASKED_CHANNEL, {
      onNotice: (payload) => {
        const request = readGiveRequest(payload, nodeId)
        if (!request) return
        claims()
          .asked(request)
          .catch((err: unknown) => {
            log.warn({ err, name: request.wanted.facts.url }, 'a name was not released')
          })
      },
    })
  }

  /** Never rejects. */
  async ask(request: GiveRequest): Promise<Given> {
    try {
      const answer = await this.#options.questions.ask(request.nodeId, QUESTION, request)
      return GivenSchema.parse(answer).said
    } catch {
      await this.#notify(request).catch(() => {})
      return 'unknown'
    }
  }

  async #notify(request: GiveRequest): Promise<void> {
    const text = JSON.stringify(request)
    if (Buffer.byteLength(text) > MAX_NOTICE_BYTES) return
    await this.#options.connection.query('SELECT pg_notify($1::text, $2::text)', [
      ASKED_CHANNEL,
      text,
    ])
  }
}

/** Reads a notification; undefined if it is no request, or not for this node. */
export function readGiveRequest(payload: string, nodeId: string): GiveRequest | undefined {
  try {
    return giveRequestIn(JSON.parse(payload), nodeId)
  } catch {
    return undefined
  }
}

function giveRequestIn(value: unknown, nodeId: string): GiveRequest | undefined {
  const { data } = GiveRequestSchema.safeParse(value)
  return data?.nodeId === nodeId ? data : undefined
}

/**
 * Simultaneous calls of one kind. A separate limit for each kind avoids deadlocks: a call may depend on a
 * call of another kind.
 */
const MAX_CONCURRENT = 64
/** Limit of all running and waiting calls; others are refused. */
const MAX_PENDING = 2_048

const QuestionSchema = z.strictObject({ ask: z.string().max(64), of: z.unknown() })
const AnswerSchema = z.union([
  z.strictObject({ answer: z.unknown() }),
  /** A refusal for people, as this node would have said it itself. */
  z.strictObject({ refusal: z.strictObject({ code: z.number().int(), message: z.string() }) }),
])

export interface PeerRpcOptions {
  readonly links: { find(nodeId: string): { readonly session: Session | undefined } | undefined }
  readonly clock: Clock
  readonly log: Logger
}

interface Kind {
  readonly answer: (of: unknown) => unknown
  readonly line: Semaphore
}

/**
 * Calls between nodes, separate from visitors: a message in each direction on the existing link, within 2 s.
 * The certificate of the caller proves that it is in the cluster.
 */
export class PeerRpc {
  readonly #options: PeerRpcOptions
  readonly #known = new Map<string, Kind>()
  #pending = 0

  constructor(options: PeerRpcOptions) {
    this.#options = options
  }

  /** Registers a handler. A ServiceError is returned to the caller. */
  on(ask: string, answer: (of: unknown) => unknown): void {
    this.#known.set(ask, { answer, line: new Semaphore(MAX_CONCURRENT) })
  }

  /** Answers another node. Throws when the question is not understood, or there are too many. */
  async answer(message: unknown): Promise<z.infer<typeof AnswerSchema>> {
    const { ask, of } = QuestionSchema.parse(message)
    const kind = this.#known.get(ask)
    if (!kind) throw new Error(`unknown question ${JSON.stringify(ask)}`)
    if (this.#pending >= MAX_PENDING) throw new Error('too many questions from other nodes at once')
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
      // The caller reports the consequence, and some callers retry ten times a second.
      log.debug({ err, node: nodeId, ask }, 'no answer from a node')
      throw new NoAnswerError(`no answer from the node ${nodeId}`, { cause: err })
    }
    if ('refusal' in said) throw new ServiceError(said.refusal.code, said.refusal.message)
    return said.answer
  }
}

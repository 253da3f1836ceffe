import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { FailureLimiter } from '../../base/limit/failure-limiter.ts'
import { Semaphore } from '../../base/limit/semaphore.ts'
import type { Logger } from '../../base/logger.ts'
import type { ClusterAuthority } from './cluster-authority.ts'
import type { ClusterMaterial } from './cluster-material.ts'
import { JOIN_REFUSALS, type JoinRefusalCode, JoinRefusedError } from './join-refusal.ts'
import { opens } from './join-token.ts'

const MAX_REQUEST_CHARACTERS = 4_096

/** The ports that visitors come to: the same on all nodes, or URLs would depend on the way in. */
export const PublicPortsSchema = z.strictObject({
  http: z.number().int().min(1).max(65_535),
  https: z.number().int().min(1).max(65_535),
})
export type PublicPorts = z.infer<typeof PublicPortsSchema>

export const JoinRequestSchema = z.strictObject({
  token_id: z.string().regex(/^[0-9a-f]{16}$/),
  secret: z.string().regex(/^[0-9A-Za-z_-]{43}$/),
  /** PKCS#10, PEM. */
  request: z.string().max(MAX_REQUEST_CHARACTERS),
  ports: PublicPortsSchema,
})
export type JoinRequest = z.infer<typeof JoinRequestSchema>

export type JoinAnswer =
  | { readonly node_id: string; readonly certificate: string; readonly authority: string }
  | { readonly code: JoinRefusalCode; readonly message: string }

export interface JoinDeskOptions {
  readonly authority: ClusterAuthority
  readonly material: ClusterMaterial
  readonly ports: PublicPorts
  readonly newNodeId: () => string
  readonly log: Logger
  readonly clock: Clock
}

/** Lets nodes into the cluster, each with a token of its own. */
export class JoinDesk {
  readonly #options: JoinDeskOptions
  readonly #failures: FailureLimiter
  /** For those who try too often: the database is asked for one of them at a time. */
  readonly #line = new Semaphore(1)

  constructor(options: JoinDeskOptions) {
    this.#options = options
    this.#failures = new FailureLimiter(options.clock)
  }

  /** Answers what a node has sent, `client` being its address; never rejects. */
  async answer(message: unknown, client: string): Promise<JoinAnswer> {
    const { log } = this.#options
    try {
      const answer = await this.#admit(message, client)
      log.info({ node: answer.node_id, client }, 'node joined')
      return answer
    } catch (err) {
      if (!(err instanceof JoinRefusedError)) log.error({ err, client }, 'join failed')
      const code = err instanceof JoinRefusedError ? err.code : 'join-failed'
      log.warn({ client, code }, 'join refused')
      return { code, message: JOIN_REFUSALS[code] }
    }
  }

  async #admit(message: unknown, client: string): Promise<JoinAnswer & { node_id: string }> {
    const { authority, material, ports, newNodeId, clock } = this.#options
    const parsed = JoinRequestSchema.safeParse(message)
    // Before anybody asks the database. Who has the right secret is let in all the same.
    const isOften = this.#failures.take(client) > 0
    const wrong = (code: JoinRefusalCode) => new JoinRefusedError(isOften ? 'join-too-often' : code)
    if (!parsed.success) throw wrong('join-malformed')
    const { token_id: id, ...request } = parsed.data
    const find = () => material.findJoinToken(id)
    const token = await (isOften ? this.#line.run(find) : find())
    // Whoever has not the secret learns nothing of the token.
    if (!token || !opens(request, token)) throw wrong('join-token-unknown')
    if (token.usedBy !== undefined) throw new JoinRefusedError('join-token-used')
    if (clock.now() >= token.expiresAt) throw new JoinRefusedError('join-token-expired')
    if (request.ports.http !== ports.http || request.ports.https !== ports.https) {
      throw new JoinRefusedError('join-ports-differ')
    }
    const nodeId = newNodeId()
    const certificate = await this.#issue(nodeId, request.request)
    // Last: what was used up and got nothing for it would have to be made again.
    if (!(await material.useJoinToken(id, nodeId))) throw new JoinRefusedError('join-token-used')
    return { node_id: nodeId, certificate, authority: authority.certPem }
  }

  async #issue(nodeId: string, request: string): Promise<string> {
    try {
      return await this.#options.authority.issue(nodeId, request, this.#options.clock.now())
    } catch (error) {
      if (error instanceof TypeError) throw new JoinRefusedError('join-malformed', error)
      throw error
    }
  }
}

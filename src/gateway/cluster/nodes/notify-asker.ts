import * as z from 'zod'
import type { PostgresConnection } from '../postgres/postgres-connection.ts'
import { ClaimFactsSchema, ClaimKeySchema } from './claim.ts'
import type { ClaimAsker, GiveRequest } from './claims.ts'

export const ASKED_CHANNEL = 'claims_asked'
/** NOTIFY takes 8,000; a request has far fewer. */
const MAX_BYTES = 7_999

const GiveRequestSchema = z.object({
  nodeId: z.string(),
  byNode: z.string(),
  heldBy: z.string(),
  wanted: z.object({
    key: ClaimKeySchema,
    facts: ClaimFactsSchema,
  }),
})

/** Asks by way of the database, where all nodes listen. */
export class NotifyAsker implements ClaimAsker {
  readonly #connection: PostgresConnection

  constructor(connection: PostgresConnection) {
    this.#connection = connection
  }

  async ask(request: GiveRequest): Promise<void> {
    const text = JSON.stringify(request)
    if (Buffer.byteLength(text) > MAX_BYTES) return
    await this.#connection.query('SELECT pg_notify($1::text, $2::text)', [ASKED_CHANNEL, text])
  }
}

/** Reads what another node asks; undefined for what is no request, or not for this node. */
export function readGiveRequest(payload: string, nodeId: string): GiveRequest | undefined {
  try {
    return giveRequestIn(JSON.parse(payload), nodeId)
  } catch {
    return undefined
  }
}

/** The same of what was parsed. */
export function giveRequestIn(value: unknown, nodeId: string): GiveRequest | undefined {
  const { data } = GiveRequestSchema.safeParse(value)
  return data?.nodeId === nodeId ? data : undefined
}

import { randomUUID } from 'node:crypto'
import { StartError } from '../../../base/app-error.ts'
import type { Statements } from '../postgres/postgres-session.ts'

/** Result: removed, still running, or unknown. */
export type Forgetting = 'forgotten' | 'there' | 'unknown'

/** Removes a lost node and its claims. Throws a DatabaseError. */
export async function forgetNode(statements: Statements, nodeId: string): Promise<Forgetting> {
  const [row] = await statements.query<{ found: string | null }>(
    'SELECT forget_node($1::text, $2::text) AS found',
    [nodeId, randomUUID()],
  )
  if (!row || row.found === null) return 'unknown'
  return row.found === 'forgotten' ? 'forgotten' : 'there'
}

/** When a node was forgotten, in milliseconds since the epoch; undefined when it was not. */
export async function forgottenAt(
  statements: Statements,
  nodeId: string,
): Promise<number | undefined> {
  const [row] = await statements.query<{ at: number }>(
    'SELECT at FROM forgotten_nodes WHERE id = $1',
    [nodeId],
  )
  return row?.at
}

/** Thrown where a node comes back that was forgotten. */
export class ForgottenError extends StartError {
  /** `at` in milliseconds since the epoch. */
  constructor(nodeId: string, at: number, reason?: string) {
    const said = reason === undefined ? '' : ` ${reason}`
    super(
      `This gateway, ${nodeId}, was removed from the cluster on ${new Date(at).toISOString()}. The other ` +
        'nodes refuse it. To add it again as a new node, create a token with ' +
        '`device-agent gateway join-token` on a running gateway. Write it to the file of ' +
        `GATEWAY_JOIN_TOKEN_FILE here and start this gateway. Its data directory stays unchanged until then.${said}`,
    )
  }
}

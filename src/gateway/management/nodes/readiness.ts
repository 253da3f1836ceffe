import type { Request, RequestHandler, Response } from 'express'
import * as z from 'zod'
import type { Database } from '../../../store/database.ts'
import type { ClusterNode } from '../../site/cluster-node.ts'
import type { Readiness } from '../../site/node-readiness.ts'

export const ReadinessView = z.strictObject({
  ready: z.boolean(),
  degraded: z.boolean().describe('it serves, and something is not as it should be'),
  reasons: z
    .array(z.string())
    .describe('why not, or what is not as it should be, one sentence each'),
})

/** `/readyz`: whether visitors and agents should come to this gateway, else 503; and why. */
export function readinessRoute(deps: {
  readonly database: Pick<Database, 'report'>
  readonly node?: Pick<ClusterNode, 'readiness'> | undefined
}): RequestHandler {
  return (_request: Request, response: Response) => {
    const now = deps.node?.readiness ?? ofOne(deps.database)
    const ready = now.state !== 'away'
    const view: z.infer<typeof ReadinessView> = {
      ready,
      degraded: now.state === 'degraded',
      reasons: now.state === 'ready' ? [] : [...now.reasons],
    }
    response.status(ready ? 200 : 503).json(view)
  }
}

/** Of a gateway that is the only one. */
function ofOne(database: Pick<Database, 'report'>): Readiness {
  const { problem } = database.report()
  return problem === undefined ? { state: 'ready' } : { state: 'away', reasons: [problem] }
}

import type { Request, RequestHandler, Response } from 'express'
import * as z from 'zod'
import type { Database } from '../../../store/database.ts'
import type { DomainCertificates } from '../../certificates/domain-certificates.ts'
import type { ReservedDomain, ReservedDomainStore } from '../../records/reserved-domain-store.ts'
import type { ClusterNode } from '../../site/cluster-node.ts'
import type { Readiness } from '../../site/node-readiness.ts'

export const ReadinessView = z.strictObject({
  ready: z.boolean(),
  degraded: z.boolean().describe('it serves, and something is not as it should be'),
  reasons: z
    .array(z.string())
    .describe('why not, or what is not as it should be, one sentence each'),
})

export interface ReadinessDeps {
  readonly database: Pick<Database, 'report'>
  readonly node?: Pick<ClusterNode, 'readiness'> | undefined
  readonly domains: Pick<ReservedDomainStore, 'all'>
  readonly domainCertificates: Pick<DomainCertificates, 'statusOf'>
}

/** `/readyz`: whether visitors and agents should come to this gateway, else 503; and why. */
export function readinessRoute(deps: ReadinessDeps): RequestHandler {
  return (_request: Request, response: Response) => {
    const now = deps.node?.readiness ?? ofOne(deps.database)
    const ready = now.state !== 'away'
    const reasons = [...(now.state === 'ready' ? [] : now.reasons), ...certificateProblems(deps)]
    const view: z.infer<typeof ReadinessView> = {
      ready,
      degraded: ready && reasons.length > 0,
      reasons,
    }
    response.status(ready ? 200 : 503).json(view)
  }
}

/** They keep nobody from coming. Who asks has no key, so no names. */
function certificateProblems({ domains, domainCertificates }: ReadinessDeps): string[] {
  const hasFailed = (domain: ReservedDomain) =>
    domainCertificates.statusOf(domain).job?.error !== undefined
  const failed = domains.all().filter(hasFailed).length
  if (failed === 0) return []
  return [`Certificates that could not be issued: ${failed}. GET /reserved_domains says why.`]
}

/** Of a gateway that is the only one. */
function ofOne(database: Pick<Database, 'report'>): Readiness {
  const { problem } = database.report()
  return problem === undefined ? { state: 'ready' } : { state: 'away', reasons: [problem] }
}

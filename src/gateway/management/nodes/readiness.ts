import type { Request, RequestHandler, Response } from 'express'
import * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import type { Database } from '../../../store/database.ts'
import { describeFault } from '../../../store/storage-error.ts'
import type { CertificateKeeper } from '../../certificates/certificate-keeper.ts'
import type { DomainCertificates } from '../../certificates/domain-certificates.ts'
import { ownCertificateProblem } from '../../certificates/own-certificate.ts'
import type { ClusterNode } from '../../cluster/cluster-node.ts'
import type { Readiness } from '../../cluster/node-readiness.ts'

export const ReadinessView = z.strictObject({
  ready: z.boolean(),
  degraded: z.boolean().describe('the gateway serves, but has a problem'),
  reasons: z.array(z.string()).describe('reasons, one sentence each'),
})

export interface ReadinessDeps {
  readonly database: Pick<Database, 'fault'>
  readonly node?: Pick<ClusterNode, 'readiness'> | undefined
  readonly domainCertificates: Pick<DomainCertificates, 'failed'>
  readonly certificates: Pick<CertificateKeeper, 'ownEndsAt'>
  readonly clock: Clock
}

/**
 * `/readyz`: whether visitors and agents should come to this gateway, else 503; and why. Anybody may ask, as
 * often as they like: it reads nothing from a disk.
 */
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
function certificateProblems(deps: ReadinessDeps): string[] {
  const { failed } = deps.domainCertificates
  const own = ownCertificateProblem(deps.certificates.ownEndsAt, deps.clock.now())
  return [
    ...(own === undefined ? [] : [own]),
    ...(failed === 0
      ? []
      : [`Certificates that could not be issued: ${failed}. See GET /reserved_domains.`]),
  ]
}

/** Of a gateway that is the only one. */
function ofOne({ fault }: Pick<Database, 'fault'>): Readiness {
  return fault === undefined
    ? { state: 'ready' }
    : { state: 'away', reasons: [describeFault(fault)] }
}

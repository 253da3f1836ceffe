import type { Problem } from '../problem.ts'
import type { Upstream } from './upstream-state.ts'

/** States that visitors suffer from, each with what it is and what to do. */
const TROUBLES: Partial<
  Record<Upstream, { readonly detail: string; readonly remedy: (service: string) => string }>
> = {
  down: {
    detail: 'takes no connections',
    remedy: (service) => `Start the service that belongs on ${service}.`,
  },
  slow: {
    detail: 'takes connections and does not answer in time',
    remedy: (service) =>
      `Look at the service on ${service}: it hangs or has too much to do. Restart it, or give it more time with AGENT_UPSTREAM_TIMEOUT.`,
  },
  garbage: {
    detail: 'does not answer with HTTP, or breaks its answers off',
    remedy: (service) =>
      `Check that an HTTP service listens on ${service}, one without TLS, and look into its log.`,
  },
}

/** Why visitors of a tunnel that is online get nothing from its service; undefined while they do. */
export function upstreamProblem(service: string, upstream: Upstream): Problem | undefined {
  const trouble = TROUBLES[upstream]
  return (
    trouble && {
      reason: 'upstream',
      detail: `${service} ${trouble.detail}`,
      remedy: trouble.remedy(service),
      permanent: false,
    }
  )
}

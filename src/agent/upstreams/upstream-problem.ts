import type { Problem } from '../problem.ts'
import type { UpstreamSettings } from './upstream-options.ts'
import type { Upstream } from './upstream-state.ts'

type Trouble = (service: string, settings: UpstreamSettings) => Pick<Problem, 'detail' | 'remedy'>

/** States that visitors suffer from, each with what it is and what to do. */
const TROUBLES: Partial<Record<Upstream, Trouble>> = {
  down: (service, { health }) =>
    health.startsWith('/')
      ? {
          detail: `${service} takes no connections, or answers ${health} with an error`,
          remedy: `Start the service that belongs on ${service}, or look into its log: ${health} must answer below 500.`,
        }
      : {
          detail: `${service} takes no connections`,
          remedy: `Start the service that belongs on ${service}.`,
        },
  slow: (service, { timeout }) => ({
    detail: `${service} takes connections and does not answer in time`,
    remedy: `Look at the service on ${service}: it hangs or has too much to do. Restart it, or give it more than ${timeout} s with upstream.timeout of the tunnel or AGENT_UPSTREAM_TIMEOUT.`,
  }),
  garbage: (service) => ({
    detail: `${service} does not answer with HTTP, or breaks its answers off`,
    remedy: `Check that an HTTP service listens on ${service}, one without TLS, and look into its log.`,
  }),
}

/** Why visitors of a tunnel that is online get nothing from its service; undefined while they do. */
export function upstreamProblem(
  service: string,
  upstream: Upstream,
  settings: UpstreamSettings,
): Problem | undefined {
  const trouble = TROUBLES[upstream]?.(service, settings)
  return trouble && { reason: 'upstream', ...trouble, permanent: false }
}

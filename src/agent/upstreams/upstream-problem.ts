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
      : takesNone(service, health),
  slow: (service, { timeout }) => ({
    detail: `${service} takes connections and does not answer in time`,
    remedy: `Look at the service on ${service}: it hangs or has too much to do. Restart it, or give it more than ${timeout} s with upstream.timeout of the tunnel or AGENT_UPSTREAM_TIMEOUT.`,
  }),
  garbage: (service) => ({
    detail: `${service} does not answer with HTTP, or breaks its answers off`,
    remedy: `Check that an HTTP service listens on ${service}, one ${isSecure(service) ? 'with' : 'without'} TLS, and look into its log.`,
  }),
  untrusted: (service) => ({
    detail: `${service} shows a certificate that this device does not trust`,
    remedy: `Give ${service} a certificate for its name of an authority that the device knows, name its authority in NODE_EXTRA_CA_CERTS, or set upstream.verify_tls of the tunnel to false: then nobody proves who answers.`,
  }),
}

/** Who is never asked is known by what visitors get, and they get the same for both. */
function takesNone(service: string, health: UpstreamSettings['health']): ReturnType<Trouble> {
  const start = `Start the service that belongs on ${service}`
  if (health !== 'off' || !isSecure(service)) {
    return { detail: `${service} takes no connections`, remedy: `${start}.` }
  }
  return {
    detail: `${service} takes no connections, or shows a certificate that this device does not trust`,
    remedy: `${start}, and look at its certificate: device-agent doctor does.`,
  }
}

const isSecure = (service: string) => service.startsWith('https:')

/** Why visitors of a tunnel that is online get nothing from its service; undefined while they do. */
export function upstreamProblem(
  service: string,
  upstream: Upstream,
  settings: UpstreamSettings,
): Problem | undefined {
  const trouble = TROUBLES[upstream]?.(service, settings)
  return trouble && { reason: 'upstream', ...trouble, permanent: false }
}

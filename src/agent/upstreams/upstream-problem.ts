import type { Problem } from '../problem.ts'
import type { UpstreamSettings } from './upstream-options.ts'
import type { Upstream } from './upstream-state.ts'
import type { UpstreamLoad } from './visitor-report.ts'

type Trouble = (
  service: string,
  settings: UpstreamSettings,
  load: UpstreamLoad | undefined,
) => Pick<Problem, 'detail' | 'remedy'>

/** States that visitors suffer from, each with what it is and what to do. */
const TROUBLES: Partial<Record<Upstream, Trouble>> = {
  down: (service, { health }) =>
    health.startsWith('/')
      ? {
          detail: `${service} refuses connections, or the health check ${health} fails`,
          remedy: `Start the upstream on ${service} or check its log. ${health} must return a status below 500.`,
        }
      : takesNone(service, health),
  slow: (service, { timeout }) => ({
    detail: `${service} accepts connections but does not answer in time`,
    remedy: `The upstream on ${service} hangs or is overloaded. Restart it, or raise the timeout of ${timeout} s with upstream.timeout or AGENT_UPSTREAM_TIMEOUT.`,
  }),
  busy: (service, { max_connections: max }, load) => ({
    detail: `${service} is busy: ${loadText(load)}`,
    remedy:
      max === undefined
        ? `Close streams that are not needed, such as camera views, or raise the connection limit of the upstream on ${service}.`
        : `Close streams that are not needed, such as camera views, or raise upstream.max_connections of the tunnel above ${max} if ${service} accepts more.`,
  }),
  garbage: (service) => ({
    detail: `${service} does not answer with HTTP, or closes the connection during a response`,
    remedy: `Check that an HTTP service ${isSecure(service) ? 'with' : 'without'} TLS listens on ${service}, and check its log.`,
  }),
  untrusted: (service) => ({
    detail: `the certificate of ${service} is not trusted`,
    remedy: `Install a certificate from a trusted CA on ${service}, or add its CA to NODE_EXTRA_CA_CERTS. Insecure alternative: set upstream.verify_tls of the tunnel to false.`,
  }),
  old_tls: (service, { tls_min_version: allowed }) => ({
    detail: `${service} speaks only an old version of TLS, or uses weak ciphers or keys`,
    remedy:
      allowed === '1.0'
        ? `Update the upstream on ${service}, or use its HTTP port.`
        : `Update the upstream on ${service}, or set upstream.tls_min_version of the tunnel to "1.0". That also allows weak ciphers.`,
  }),
}

function loadText(load: UpstreamLoad | undefined): string {
  if (!load) return 'all its connections are in use'
  const { connections, streams, waiting } = load
  const byStreams = streams > 0 ? `, ${streams} by open-ended streams` : ''
  return `all ${connections} connections are in use${byStreams}, requests waiting: ${waiting}`
}

/** Who is never asked is known by what visitors get, and they get the same for both. */
function takesNone(service: string, health: UpstreamSettings['health']): ReturnType<Trouble> {
  const start = `Start the upstream on ${service}`
  if (health !== 'off' || !isSecure(service)) {
    return { detail: `${service} refuses connections`, remedy: `${start}.` }
  }
  return {
    detail: `${service} refuses connections, or its certificate is not trusted`,
    remedy: `${start}, and check its certificate with device-agent doctor.`,
  }
}

const isSecure = (service: string) => service.startsWith('https:')

/** Why visitors of a tunnel that is online get nothing from its service; undefined while they do. */
export function upstreamProblem(
  service: string,
  upstream: Upstream,
  settings: UpstreamSettings,
  load?: UpstreamLoad | undefined,
): Problem | undefined {
  const trouble = TROUBLES[upstream]?.(service, settings, load)
  return trouble && { reason: 'upstream', ...trouble, permanent: false }
}

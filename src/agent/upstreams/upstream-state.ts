import * as z from 'zod'
import type { Problem } from '../problem.ts'
import type { UpstreamSettings } from './upstream-options.ts'

/** Longer than any notice. */
const MAX_LENGTH = 4_096
const MAX_HOST = 253

const Count = z.number().int().nonnegative()
const Report = z.object({
  host: z.string().max(MAX_HOST),
  state: z.enum(['answered', 'slow', 'garbage', 'unreachable']),
  answered: Count,
  abandoned: Count,
  failed: Count,
  oldest_wait_ms: Count,
  busy: z.object({ connections: Count, streams: Count, waiting: Count }).optional(),
})
const Notice = z.object({ 'device-agent': z.object({ visitors: z.array(Report) }) })

/** Latest report of our gateway about the visitors of one tunnel. Counts start when it was opened there. */
export interface VisitorReport {
  readonly state: z.infer<typeof Report>['state'] | 'busy'
  readonly answered: number
  /** Visitors that disconnected before an answer began. */
  readonly abandoned: number
  /** Visitors that got an error because of the service. */
  readonly failed: number
  readonly oldestWaitMs: number
  /** Set for the state `busy`. */
  readonly busy?: UpstreamLoad | undefined
}

/** Use of the connections to a service that accepts no more. */
export interface UpstreamLoad {
  readonly connections: number
  /** Connections with an open-ended stream. */
  readonly streams: number
  /** Requests waiting for a connection. */
  readonly waiting: number
}

const EVENTS: Record<VisitorReport['state'], UpstreamEvent> = {
  answered: 'answered',
  slow: 'hung',
  busy: 'crowded',
  garbage: 'garbled',
  unreachable: 'failed',
}

export function eventOf({ state }: VisitorReport): UpstreamEvent {
  return EVENTS[state]
}

/** Returns the reports in a notice, by host. Empty for other text. */
export function visitorReportsIn(text: string): Map<string, VisitorReport> {
  const reports = new Map<string, VisitorReport>()
  for (const { host, oldest_wait_ms: oldestWaitMs, busy, state, ...counts } of parse(text)) {
    // The gateway sends the state `slow` with `busy`, for agents that do not support busy services.
    const load = busy && { busy }
    reports.set(host, { ...counts, state: busy ? 'busy' : state, oldestWaitMs, ...load })
  }
  return reports
}

function parse(text: string): z.infer<typeof Report>[] {
  if (text.length > MAX_LENGTH) return []
  try {
    return Notice.safeParse(JSON.parse(text)).data?.['device-agent'].visitors ?? []
  } catch {
    return []
  }
}

/**
 * More than its state about a service that fails its checks. `unresolved`: its name has no address. `other-name`: its
 * certificate is for other names.
 */
export type UpstreamFlaw = 'unresolved' | 'other-name'

/** What is known beside the state. */
interface Details {
  readonly visitors?: VisitorReport | undefined
  readonly upstreamFlaw?: UpstreamFlaw | undefined
}

type Trouble = (
  service: string,
  settings: UpstreamSettings,
  details: Details,
) => Pick<Problem, 'detail' | 'remedy'>

/** Node reads this variable before the program reads `.env`. */
export const EXTRA_CA =
  'Set NODE_EXTRA_CA_CERTS to the PEM file of its CA: for the service in /etc/device-agent/agent.env, else in the environment of the start, not in .env. Then restart the agent.'

/** Upstream states that affect visitors, with description and fix. */
const TROUBLES: Partial<Record<Upstream, Trouble>> = {
  down: (service, { health }, { upstreamFlaw: flaw }) =>
    flaw === 'unresolved'
      ? unresolvedProblem(service)
      : health.startsWith('/')
        ? {
            detail: `${service} fails its health check (${health})`,
            remedy: `Start the service on ${service} or check its log. ${health} must return a status below 500.`,
          }
        : takesNone(service, health),
  slow: (service, { timeout }) => ({
    detail: `${service} does not answer in time`,
    remedy: `Restart the service on ${service}. If its answers take long, raise upstream.timeout of the tunnel above ${timeout} s.`,
  }),
  busy: (service, { max_connections: max }, { visitors }) => ({
    detail: `${service} is busy: ${loadText(visitors?.busy)}`,
    remedy:
      max === undefined
        ? `Close streams that are not needed, such as camera views, or raise the connection limit of the service on ${service}.`
        : `Close streams that are not needed, such as camera views, or raise upstream.max_connections of the tunnel above ${max}.`,
  }),
  garbage: (service, { http2 }) => ({
    detail: `${service} sends no valid HTTP`,
    remedy: [
      isSecure(service)
        ? `Check that a web service with TLS listens on ${service}.`
        : `Check that a web service without TLS listens on ${service}. If it speaks TLS, forward to https://${service}.`,
      ...(http2 ? [] : ['For gRPC, set upstream.http2 of the tunnel to true.']),
    ].join(' '),
  }),
  wrong_protocol: (service) => ({
    detail: `wrong protocol: ${service} speaks TLS. The tunnel forwards plain HTTP`,
    remedy: `Forward to https://${service}.`,
  }),
  untrusted: (service, _settings, { upstreamFlaw: flaw }) =>
    flaw === 'other-name'
      ? {
          detail: `${service} has a certificate for another name`,
          remedy: `Forward to the name of the certificate, or install a certificate for this name on ${service}. Run device-agent doctor to see its names. ${LESS_SECURE}`,
        }
      : {
          detail: `${service} has an untrusted certificate`,
          remedy: `${EXTRA_CA} Or install a certificate of a trusted CA on ${service}. ${LESS_SECURE}`,
        },
  old_tls: (service, { tls_min_version: allowed }) => ({
    detail: `${service} offers only old or weak TLS`,
    remedy:
      allowed === '1.0'
        ? `Update the service on ${service}, or use its HTTP port.`
        : `Update the service on ${service}, or set upstream.tls_min_version of the tunnel to "1.0". That also allows weak ciphers.`,
  }),
}

const LESS_SECURE = 'Less secure: set upstream.verify_tls of the tunnel to false.'

export function unresolvedProblem(service: string): ReturnType<Trouble> {
  const host = /^(?:https:\/\/)?(.+):\d+$/.exec(service)?.[1] ?? service
  return {
    detail: `the name ${host} cannot be resolved`,
    remedy: `Correct the name, or the DNS of this device. getent hosts ${host} must show an address.`,
  }
}

function loadText(load: UpstreamLoad | undefined): string {
  if (!load) return 'all its connections are in use'
  const { connections, streams, waiting } = load
  const byStreams = streams > 0 ? `, ${streams} by open-ended streams` : ''
  return `all ${connections} connections are in use${byStreams}, requests waiting: ${waiting}`
}

/**
 * Describes refused connections. Without checks, the state comes only from reports about visitors, which do
 * not distinguish the two causes.
 */
function takesNone(service: string, health: UpstreamSettings['health']): ReturnType<Trouble> {
  const detail = isOnDevice(service)
    ? `${service} refuses connections`
    : `${service} cannot be reached`
  const remedy = isOnDevice(service)
    ? `Start the service on ${service}, or forward to the port that it uses.`
    : `Check that ${service} is on, in this network, and that its service runs.`
  if (health !== 'off' || !isSecure(service)) return { detail, remedy }
  return {
    detail: `${detail}, or its certificate is not trusted`,
    remedy: `${remedy} Check its certificate with device-agent doctor.`,
  }
}

const isSecure = (service: string) => service.startsWith('https:')
const isOnDevice = (service: string) =>
  /^(?:unix:|(?:https:\/\/)?(?:localhost|127\.[\d.]+|\[::1\]):)/.test(service)

/**
 * Returns the reason why visitors of an online tunnel get no answer from its service. Undefined if they do.
 */
export function upstreamProblem(
  service: string,
  upstream: Upstream,
  settings: UpstreamSettings,
  details: Details = {},
): Problem | undefined {
  const trouble = TROUBLES[upstream]?.(service, settings, details)
  return trouble && { reason: 'upstream', ...trouble, permanent: false }
}

/**
 * State of the local service behind a tunnel.
 *
 * - `busy`: it accepts no more connections.
 * - `slow`: it accepts connections but does not answer in time. Some services are slow by nature, so it is
 *   never reported as down.
 * - `garbage`: its answers are not HTTP.
 * - `wrong_protocol`: it speaks TLS, and visitors are forwarded without TLS.
 * - `untrusted`: its certificate is not trusted.
 * - `old_tls`: its TLS version is too old.
 */
export type Upstream =
  | 'unknown'
  | 'up'
  | 'slow'
  | 'busy'
  | 'garbage'
  | 'wrong_protocol'
  | 'untrusted'
  | 'old_tls'
  | 'down'

/** `connected`: the service accepted a connection, which does not prove that it answers. */
export type UpstreamEvent =
  | 'connected'
  | 'answered'
  | 'hung'
  | 'crowded'
  | 'garbled'
  | 'speaks-tls'
  | 'untrusted'
  | 'old-tls'
  | 'failed'

const SEEN = {
  answered: 'up',
  hung: 'slow',
  crowded: 'busy',
  garbled: 'garbage',
  'speaks-tls': 'wrong_protocol',
  untrusted: 'untrusted',
  'old-tls': 'old_tls',
  failed: 'down',
} as const

const NEXT: Record<Upstream, Partial<Record<UpstreamEvent, Upstream>>> = {
  unknown: { ...SEEN, connected: 'up' },
  up: SEEN,
  slow: SEEN,
  busy: SEEN,
  garbage: SEEN,
  // Visitors get no valid HTTP because of the TLS.
  wrong_protocol: { ...SEEN, garbled: 'wrong_protocol' },
  // A connection counts only after its certificate is trusted.
  untrusted: { ...SEEN, connected: 'up' },
  old_tls: { ...SEEN, connected: 'up' },
  down: { ...SEEN, connected: 'up' },
}

/** Returns the state after an event. Events that do not apply to a state are ignored. */
export function nextUpstream(state: Upstream, event: UpstreamEvent): Upstream {
  return NEXT[state][event] ?? state
}

import type { AgentSettings, LinkSettings } from '../settings/agent-settings.ts'

/** All durations of the agent in milliseconds. Tests scale them. */
export interface AgentTimings {
  readonly link: LinkTimings
  readonly preflight: PreflightTimings
  readonly tunnel: TunnelTimings
  readonly probe: ProbeTimings
  readonly upstream: UpstreamTimings
  /** Interval of checks of watched files. */
  readonly fileWatchMs: number
  /** Time that a create or replace waits for the service before it answers "pending". */
  readonly settleMs: number
  /** Time for requests in progress to end when the agent stops. Only with our gateway. */
  readonly drainMs: number
  /** Additional time for a stop. */
  readonly stopMs: number
}

export interface LinkTimings {
  readonly backoffBaseMs: number
  readonly backoffCapMs: number
  /** After this uptime, the link starts from the shortest delay again. */
  readonly stableMs: number
  /** A link that was up for `quickAfterMs` is retried within this time, at random. */
  readonly quickMs: number
  readonly quickAfterMs: number
  readonly refusal: RefusalTimings
  /** Delay of a device that is a duplicate. Jitter adds up to half of it. */
  readonly duplicateRetryMs: number
  /** Time for which the other device shows a duplicate after it was seen. */
  readonly duplicateShownMs: number
  /** A replaced session is closed after this time, unless the service closes it. */
  readonly retireMs: number
  /** The names of a returning link come back first. The standby then connects within this time, at random. */
  readonly spareMs: number
}

/**
 * Delays after a refusal, doubled each time. A service with a temporary fault, such as a database restore,
 * also refuses. It looks the same as a refusal that a person has to fix.
 */
export interface RefusalTimings {
  readonly baseMs: number
  readonly capMs: number
}

export interface PreflightTimings {
  readonly dnsMs: number
  readonly connectMs: number
  readonly tlsMs: number
}

export interface TunnelTimings {
  readonly backoffBaseMs: number
  readonly backoffCapMs: number
  readonly stableMs: number
  readonly refusal: RefusalTimings
  /** Time in which a domain that is online elsewhere may belong to our own earlier session. */
  readonly ghostMs: number
  readonly ghostRetryMs: number
  /** Delay between attempts when another device has the domain. Jitter adds up to half of it. */
  readonly conflictRetryMs: number
}

export interface ProbeTimings {
  /** Infinity: probes only when the endpoint comes online, and after a failure. */
  readonly intervalMs: number
  /** Shorter interval after a failure, because the second failure decides. */
  readonly retryMs: number
  readonly deadlineMs: number
  /** From the start of a probe: the interval between two heartbeats plus a slow round trip. */
  readonly echoMs: number
}

export interface UpstreamTimings {
  readonly intervalMs: number
  /** Interval of checks of a service that has been up for long. */
  readonly maxIntervalMs: number
  /** Time for a service to accept a connection, or to answer a check. */
  readonly connectMs: number
}

const REFUSAL: RefusalTimings = { baseMs: 2_000, capMs: 60_000 }

export const DEFAULT_TIMINGS: AgentTimings = {
  // With a delay of up to 4 s, the median wait after a long outage is 1.2 s.
  link: {
    backoffBaseMs: 500,
    backoffCapMs: 4_000,
    stableMs: 30_000,
    quickMs: 30,
    quickAfterMs: 1_000,
    refusal: REFUSAL,
    // The original device may disconnect at any time. This one then serves within 10 s.
    duplicateRetryMs: 5_000,
    duplicateShownMs: 1_200_000,
    // Our gateway ends it within 10 s. With another service, downloads get a minute.
    retireMs: 60_000,
    spareMs: 3_000,
  },
  preflight: { dnsMs: 5_000, connectMs: 5_000, tlsMs: 5_000 },
  tunnel: {
    backoffBaseMs: 500,
    backoffCapMs: 30_000,
    stableMs: 30_000,
    refusal: REFUSAL,
    // The service drops a silent session after 25 to 40 s.
    ghostMs: 45_000,
    ghostRetryMs: 3_000,
    // For the hosted service. With our gateway, attempts are more frequent.
    conflictRetryMs: 20_000,
  },
  probe: { intervalMs: 30_000, retryMs: 5_000, deadlineMs: 10_000, echoMs: 13_000 },
  upstream: { intervalMs: 10_000, maxIntervalMs: 300_000, connectMs: 2_000 },
  fileWatchMs: 2_000,
  settleMs: 15_000,
  drainMs: 10_000,
  stopMs: 4_000,
}

/** Time for the answer to a heartbeat on a slow link. */
const ECHO_MS = 3_000

/** Whole seconds, as the SDK requires. */
export interface Heartbeat {
  readonly intervalS: number
  readonly toleranceS: number
}

/** Heartbeat of a link. On a metered link, a lost connection is noticed within 58 s. */
export function heartbeatOf({ isMetered, heartbeatS }: LinkSettings): Heartbeat {
  return {
    intervalS: heartbeatS ?? (isMetered ? 45 : 10),
    toleranceS: isMetered ? 13 : 15,
  }
}

/** Timings of an agent with these settings. On a metered link, each attempt costs some kB. */
export function timingsOf({
  link,
  serverAddrs,
  drainMs,
}: Pick<AgentSettings, 'link' | 'serverAddrs' | 'drainMs'>): AgentTimings {
  const { isMetered } = link
  const probeS = link.probeS ?? (isMetered ? 0 : 30)
  const echoMs = heartbeatOf(link).intervalS * 1_000 + ECHO_MS
  const { link: links, tunnel, probe } = DEFAULT_TIMINGS
  const duplicateRetryMs = isMetered ? 780_000 : links.duplicateRetryMs
  const ownRetryMs = serverAddrs.length > 0 ? links.duplicateRetryMs : tunnel.conflictRetryMs
  return {
    ...DEFAULT_TIMINGS,
    drainMs,
    link: { ...links, duplicateRetryMs },
    tunnel: { ...tunnel, conflictRetryMs: isMetered ? 60_000 : ownRetryMs },
    probe: {
      ...probe,
      intervalMs: probeS === 0 ? Number.POSITIVE_INFINITY : probeS * 1_000,
      retryMs: isMetered ? 30_000 : probe.retryMs,
      echoMs,
    },
  }
}

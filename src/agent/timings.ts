/** Every duration of the agent in milliseconds; tests scale them. */
export interface AgentTimings {
  readonly link: LinkTimings
  readonly preflight: PreflightTimings
  readonly tunnel: TunnelTimings
  readonly probe: ProbeTimings
  readonly upstream: UpstreamTimings
  /** How often watched files are looked at. */
  readonly fileWatchMs: number
  /** How long a create or replace waits for the service before it answers "pending". */
  readonly settleMs: number
  /** How long what is under way may take to end when the agent stops; our gateway alone knows. */
  readonly drainMs: number
  /** How long a stop may take beside that. */
  readonly stopMs: number
}

export interface LinkTimings {
  readonly backoffBaseMs: number
  readonly backoffCapMs: number
  /** A link that stayed up this long starts again from the shortest pause. */
  readonly stableMs: number
  /** A link that was up for `quickAfterMs` is tried again within this, by chance. */
  readonly quickMs: number
  readonly quickAfterMs: number
  readonly refusal: RefusalTimings
  /** Pause of a device that is another one's duplicate; up to half longer by chance. */
  readonly duplicateRetryMs: number
  /** How long the other one is told of a duplicate after it was seen. */
  readonly duplicateShownMs: number
  /** A session whose place another one has taken is closed after this, if the service does not. */
  readonly retireMs: number
}

/**
 * Pauses after a refusal, each twice the one before. A service that is wrong for a moment, as one
 * whose database is being restored, refuses like one that somebody has to change.
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
  /** How long a domain that is online elsewhere may be our own earlier session. */
  readonly ghostMs: number
  readonly ghostRetryMs: number
  /** Pause between tries once another device has the domain; up to half longer by chance. */
  readonly conflictRetryMs: number
}

export interface ProbeTimings {
  /** Infinity: only when the endpoint has come online, and after a failure. */
  readonly intervalMs: number
  /** After a failure the next probe comes sooner: the second one decides. */
  readonly retryMs: number
  readonly deadlineMs: number
  /** From the begin of a probe: the pause between two heartbeats, and a slow way there and back. */
  readonly echoMs: number
}

export interface UpstreamTimings {
  readonly intervalMs: number
  /** Between two checks of a service that has been up for long. */
  readonly maxIntervalMs: number
  /** How long a service may take to connect, or to answer when it is asked. */
  readonly connectMs: number
}

const REFUSAL: RefusalTimings = { baseMs: 2_000, capMs: 60_000 }

export const DEFAULT_TIMINGS: AgentTimings = {
  // With a pause of up to 4 s the middle of the wait after a long outage is 1.2 s.
  link: {
    backoffBaseMs: 500,
    backoffCapMs: 4_000,
    stableMs: 30_000,
    quickMs: 30,
    quickAfterMs: 1_000,
    refusal: REFUSAL,
    // The original may end at any time: this one serves within 10 s.
    duplicateRetryMs: 5_000,
    duplicateShownMs: 1_200_000,
    // Our gateway ends it itself, within 10 s. Downloads from another service get a minute.
    retireMs: 60_000,
  },
  preflight: { dnsMs: 5_000, connectMs: 5_000, tlsMs: 5_000 },
  tunnel: {
    backoffBaseMs: 500,
    backoffCapMs: 30_000,
    stableMs: 30_000,
    refusal: REFUSAL,
    // The service gives up a silent session after 25 to 40 s.
    ghostMs: 45_000,
    ghostRetryMs: 3_000,
    // Of the hosted service; a gateway of ours is asked more often.
    conflictRetryMs: 20_000,
  },
  probe: { intervalMs: 30_000, retryMs: 5_000, deadlineMs: 10_000, echoMs: 13_000 },
  upstream: { intervalMs: 10_000, maxIntervalMs: 300_000, connectMs: 2_000 },
  fileWatchMs: 2_000,
  settleMs: 15_000,
  drainMs: 10_000,
  stopMs: 4_000,
}

import type { Readiness } from '../ports/membership.ts'
import type { LeaseState } from './nodes/lease-state.ts'
import type { DatabaseError } from './postgres/database-error.ts'

/** Larger differences between clocks make certificates and tokens invalid. */
const MAX_CLOCK_OFF_MS = 300_000

/** `own`: most clocks agree with PostgreSQL's and not with this one. `unknown`: either may be wrong. */
export type ClockFault = 'own' | 'unknown'

/** Compares the clock of this gateway with PostgreSQL's, as the other gateways have compared theirs. */
export function clockFaultOf(
  ownOffMs: number | undefined,
  othersOffMs: readonly (number | undefined)[],
): ClockFault | undefined {
  const isRight = (offMs: number | undefined) =>
    offMs !== undefined && Math.abs(offMs) <= MAX_CLOCK_OFF_MS
  if (ownOffMs === undefined || isRight(ownOffMs)) return undefined
  const isLikeOwn = (offMs: number | undefined) =>
    offMs !== undefined && Math.abs(offMs - ownOffMs) <= MAX_CLOCK_OFF_MS
  const withPostgres = othersOffMs.filter(isRight).length
  const withOwn = 1 + othersOffMs.filter(isLikeOwn).length
  // PostgreSQL counts as one more. It may share a machine, and the wrong clock, with a gateway.
  return withPostgres > 0 && withPostgres + 1 > withOwn ? 'own' : 'unknown'
}

export interface OwnCondition {
  readonly lease: LeaseState
  readonly isDraining: boolean
  readonly clock: ClockFault | undefined
  /** Why the records are not followed here. */
  readonly problem: Pick<DatabaseError, 'code' | 'message'> | undefined
}

export interface NodeCondition extends OwnCondition {
  /** Another gateway reaches the database, and this one does not. */
  readonly isOutageOwn: boolean
}

interface Reason {
  readonly state: 'degraded' | 'away'
  /** The problem and its remedy. */
  readonly sentence: string
}

const REASONS = {
  draining: {
    state: 'away',
    sentence: 'This gateway is draining. Run `gateway drain --undo` to cancel.',
  },
  'outage-own': {
    state: 'away',
    sentence:
      'This gateway does not reach PostgreSQL, but other gateways do. Check the network of this machine and GATEWAY_DATABASE_URL.',
  },
  'outage-of-all': {
    state: 'degraded',
    sentence:
      'No gateway reaches PostgreSQL. Existing names are still served; new names and changes must wait.',
  },
  'not-joined': {
    state: 'away',
    sentence: 'This gateway has not joined the cluster yet. It joins when PostgreSQL answers.',
  },
  'not-asked': {
    state: 'away',
    sentence:
      'This gateway was paused and is checking with PostgreSQL which names it still holds. This takes seconds.',
  },
  'given-up': {
    state: 'away',
    sentence: 'The other gateways marked this gateway as lost. It is joining the cluster again.',
  },
  unfit: {
    state: 'degraded',
    sentence:
      'This gateway cannot rejoin the cluster, because its version or ports do not match the other nodes. See its log.',
  },
  replaced: {
    state: 'away',
    sentence: 'Another process runs as this gateway. Run only one process for each data directory.',
  },
  forgotten: {
    state: 'away',
    sentence: 'This gateway was removed from the cluster. Join it again with a new token.',
  },
  left: { state: 'away', sentence: 'This gateway has stopped.' },
  'clock-own': {
    state: 'away',
    sentence:
      'The clock of this machine is wrong by more than 5 minutes, as PostgreSQL and another gateway show. Set the clock, for example with NTP.',
  },
  'clock-unknown': {
    state: 'degraded',
    sentence:
      'The clocks of this machine and of PostgreSQL differ by more than 5 minutes. Set the wrong clock, for example with NTP.',
  },
} as const satisfies Record<string, Reason>

/** Reasons by the state of the lease. */
const BY_LEASE: Record<Exclude<LeaseState, 'overdue'>, keyof typeof REASONS | undefined> = {
  none: 'not-joined',
  held: undefined,
  unsure: 'not-asked',
  fenced: 'given-up',
  unfit: 'unfit',
  replaced: 'replaced',
  forgotten: 'forgotten',
  left: 'left',
}

/** Answer for load balancers in front of several gateways. */
export function readinessOf(condition: NodeCondition): Readiness {
  const reasons = [...reasonsFor(condition)]
  if (reasons.length === 0) return { state: 'ready' }
  const isAway = reasons.some(({ state }) => state === 'away')
  return {
    state: isAway ? 'away' : 'degraded',
    reasons: reasons.map(({ sentence }) => sentence),
  }
}

function* reasonsFor({
  lease,
  isDraining,
  isOutageOwn,
  clock,
  problem,
}: NodeCondition): Generator<Reason> {
  if (isDraining) yield REASONS.draining
  if (clock) yield REASONS[`clock-${clock}`]
  // The others may have ended by now without a word, or have trouble with their files, too.
  const unlessOthersAreFine = isOutageOwn ? 'away' : 'degraded'
  const own = lease === 'overdue' ? outageOf(isOutageOwn) : BY_LEASE[lease]
  if (own === 'unfit') yield { ...REASONS.unfit, state: unlessOthersAreFine }
  else if (own) yield REASONS[own]
  // All other problems are nothing that takes visitors elsewhere.
  if (problem) {
    const state = problem.code === 'replica-failed' ? unlessOthersAreFine : 'degraded'
    yield { state, sentence: problem.message }
  }
}

/** Whether something is wrong that may be so at all gateways: then it counts whether it is. */
export function isShared({ lease, problem }: OwnCondition): boolean {
  return lease === 'overdue' || lease === 'unfit' || problem?.code === 'replica-failed'
}

const outageOf = (isOwn: boolean) => (isOwn ? 'outage-own' : 'outage-of-all')

import type { LeaseState } from '../cluster/lease-state.ts'
import type { DatabaseError } from '../postgres/database-error.ts'

/**
 * Whether visitors and devices should come to a gateway. `degraded`: they should, although not all goes as
 * it does otherwise: nobody else could do better. `away`: another gateway should have them.
 */
export type Readiness =
  | { readonly state: 'ready' }
  | { readonly state: 'degraded' | 'away'; readonly reasons: readonly string[] }

export interface OwnCondition {
  readonly lease: LeaseState
  readonly isDraining: boolean
  /** Why the records are not followed here. */
  readonly problem: Pick<DatabaseError, 'code' | 'message'> | undefined
}

export interface NodeCondition extends OwnCondition {
  /** Another gateway is fine, and this one is not. */
  readonly isOutageOwn: boolean
}

interface Reason {
  readonly state: 'degraded' | 'away'
  /** What it is, and what to do about it. */
  readonly sentence: string
}

const REASONS = {
  draining: {
    state: 'away',
    sentence: 'This gateway is about to end: `gateway drain --undo` has it take what comes again.',
  },
  'outage-own': {
    state: 'away',
    sentence:
      'Other gateways of the site reach PostgreSQL, and this one does not: look at the network of its machine, and at its GATEWAY_DATABASE_URL.',
  },
  'outage-of-all': {
    state: 'degraded',
    sentence:
      'No gateway that answers reaches PostgreSQL: visitors and devices are served on, new names and changes wait for it.',
  },
  'not-joined': {
    state: 'away',
    sentence:
      'This gateway has no place among the others yet, and knows no names: it takes one as soon as PostgreSQL answers.',
  },
  'not-asked': {
    state: 'away',
    sentence:
      'This gateway stood still, and asks PostgreSQL which names it still has: that takes seconds.',
  },
  'given-up': {
    state: 'away',
    sentence: 'The other gateways have given this one up: it is joining them again.',
  },
  unfit: {
    state: 'degraded',
    sentence:
      'The other gateways cannot take this one back, because its version or its ports do not fit theirs: its log says what to do.',
  },
  replaced: {
    state: 'away',
    sentence: 'Another process runs as this gateway: see that there is one for each data folder.',
  },
  forgotten: {
    state: 'away',
    sentence: 'The site has forgotten this gateway: it can join anew, with a new token.',
  },
  left: { state: 'away', sentence: 'This gateway has ended.' },
} as const satisfies Record<string, Reason>

/** Of a lease alone. */
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

/** What a gateway of several answers a load balancer. */
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
  problem,
}: NodeCondition): Generator<Reason> {
  if (isDraining) yield REASONS.draining
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

import type { Problem } from '../problem.ts'

/**
 * Result of the last end-to-end probe.
 *
 * - `busy`: the service has no free stream for this device.
 * - `unverified`: this device cannot reach its own address, but its link answers, as behind a router without
 *   hairpin NAT. Visitors may well get through.
 * - `misdated`: the clock of this device is wrong, so certificates cannot be checked.
 * - `expired`: the certificate has expired, also for visitors.
 * - `unreachable`: visitors cannot reach the address either.
 */
export type Reach =
  | { readonly name: 'unknown' | 'reached' }
  | {
      readonly name: 'busy' | 'unverified' | 'misdated' | 'expired' | 'unreachable'
      readonly problem: Problem
    }

export const UNKNOWN_REACH: Reach = { name: 'unknown' }

/** Result for display: whether the device can reach its own public address. */
export type Reachable = 'yes' | 'no' | 'unverified' | 'unknown'

interface ErrorMapping {
  readonly shown: Reachable
  /** The link is not the cause, so open endpoints stay online. */
  readonly isLinkFine: boolean
}

const MEANINGS: Record<Reach['name'], ErrorMapping> = {
  unknown: { shown: 'unknown', isLinkFine: true },
  reached: { shown: 'yes', isLinkFine: true },
  busy: { shown: 'no', isLinkFine: true },
  unverified: { shown: 'unverified', isLinkFine: true },
  misdated: { shown: 'unverified', isLinkFine: true },
  expired: { shown: 'no', isLinkFine: true },
  unreachable: { shown: 'no', isLinkFine: false },
}

export function meaningOf(reach: Reach): ErrorMapping {
  return MEANINGS[reach.name]
}

export function reachProblem(reach: Reach): Problem | undefined {
  return 'problem' in reach ? reach.problem : undefined
}

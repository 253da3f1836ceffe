import type { Problem } from '../problem.ts'

/**
 * What the last end-to-end probe has shown. `busy`: the service has no stream of this device left.
 * `unverified`: this device cannot reach its own address while its link answers, as behind a router
 * without hairpin NAT; visitors may well get through. `misdated`: its clock is wrong, so that no
 * certificate can be judged. `expired`: the certificate has ended, for visitors, too. `unreachable`: nor does anybody else.
 */
export type Reach =
  | { readonly name: 'unknown' | 'reached' }
  | {
      readonly name: 'busy' | 'unverified' | 'misdated' | 'expired' | 'unreachable'
      readonly problem: Problem
    }

/** The same for people: whether the device reaches its own public address. */
export type Reachable = 'yes' | 'no' | 'unverified' | 'unknown'

interface Meaning {
  readonly shown: Reachable
  /** Nothing that was seen is the link's fault: what is open on it stays online. */
  readonly isLinkFine: boolean
}

const MEANINGS: Record<Reach['name'], Meaning> = {
  unknown: { shown: 'unknown', isLinkFine: true },
  reached: { shown: 'yes', isLinkFine: true },
  busy: { shown: 'no', isLinkFine: true },
  unverified: { shown: 'unverified', isLinkFine: true },
  misdated: { shown: 'unverified', isLinkFine: true },
  expired: { shown: 'no', isLinkFine: true },
  unreachable: { shown: 'no', isLinkFine: false },
}

export function meaningOf(reach: Reach): Meaning {
  return MEANINGS[reach.name]
}

export function reachProblem(reach: Reach): Problem | undefined {
  return 'problem' in reach ? reach.problem : undefined
}

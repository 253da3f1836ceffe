/**
 * The right of a node to its names. `overdue`: it could not renew in time, so others may give it up;
 * `unsure`: it was stopped for so long, and has not looked since; `fenced`: they have given it up;
 * `unfit`: they have, and as it is, it cannot join them again; `replaced`: a newer process is this node
 * now; `forgotten`: somebody has said that it is gone for good.
 */
export type LeaseState =
  | 'none'
  | 'held'
  | 'overdue'
  | 'unsure'
  | 'fenced'
  | 'unfit'
  | 'replaced'
  | 'forgotten'
  | 'left'

export type LeaseEvent =
  | 'joined'
  | 'renewed'
  | 'expired'
  | 'woke'
  | 'failed'
  | 'fenced'
  | 'unfit'
  | 'replaced'
  | 'forgotten'
  | 'leave'

const NEXT: Record<LeaseState, Partial<Record<LeaseEvent, LeaseState>>> = {
  none: { joined: 'held', leave: 'left' },
  held: { renewed: 'held', expired: 'overdue', woke: 'unsure', fenced: 'fenced', leave: 'left' },
  // Late, but nobody has minded: the names are still its own.
  overdue: { renewed: 'held', woke: 'unsure', fenced: 'fenced', leave: 'left' },
  // Where nobody can be asked, it is as late as any other.
  unsure: { renewed: 'held', failed: 'overdue', fenced: 'fenced', leave: 'left' },
  // Only with another epoch, and without the names of this one.
  fenced: {
    ...{ joined: 'held', failed: 'overdue', unfit: 'unfit' },
    ...{ replaced: 'replaced', forgotten: 'forgotten', leave: 'left' },
  },
  // As long as those are there whom it does not fit.
  unfit: {
    ...{ joined: 'held', failed: 'overdue', woke: 'unsure' },
    ...{ replaced: 'replaced', forgotten: 'forgotten', leave: 'left' },
  },
  replaced: { leave: 'left' },
  forgotten: { leave: 'left' },
  left: {},
}

/** The state after an event; an event that means nothing in a state changes nothing. */
export function nextLeaseState(state: LeaseState, event: LeaseEvent): LeaseState {
  return NEXT[state][event] ?? state
}

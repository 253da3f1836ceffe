/**
 * Right of a node to its names. `overdue`: the renewal is late, others may give it up. `unsure`: the process
 * was stopped for long and has not checked yet. `fenced`: others gave it up. `unfit`: others gave it up, and
 * it does not fit to rejoin. `replaced`: a newer process is this node. `forgotten`: the node was removed.
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
  // Late, but not given up: the names still belong to it.
  overdue: { renewed: 'held', woke: 'unsure', fenced: 'fenced', leave: 'left' },
  // Without an answer, it counts as late.
  unsure: { renewed: 'held', failed: 'overdue', fenced: 'fenced', leave: 'left' },
  // Leaves this state only with a new epoch, without the names of the old one.
  fenced: {
    ...{ joined: 'held', failed: 'overdue', unfit: 'unfit' },
    ...{ replaced: 'replaced', forgotten: 'forgotten', leave: 'left' },
  },
  // While incompatible nodes are there.
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

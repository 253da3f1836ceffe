import { ServiceError } from '../records/service-error.ts'

/**
 * Limit for a gateway of a cluster that stops: by then it ends with the agents and names that it still has.
 * Shorter than TimeoutStopSec of the shipped unit, with all other work of a stop.
 */
export const MAX_END_MS = 40_000

/** Work that is left in a drain. */
export interface DrainLeft {
  readonly agents: number
  readonly endpoints: number
  /** Requests and connections under way. */
  readonly requests: number
}

/** Progress of a drain. */
export interface DrainProgress {
  /** Milliseconds since the epoch. */
  readonly since: number
  readonly from: DrainLeft
  readonly left: DrainLeft
}

/** A drain that has ended by itself. */
export interface DrainGivenUp {
  /** Milliseconds since the epoch. */
  readonly at: number
  /** For people. */
  readonly reason: string
}

/** Sends an agent to another gateway; never rejects. */
export type SendAway = (sessionId: string, withinMs: number) => Promise<void>

/** Moves agents and endpoints of this gateway to the other gateways. */
export interface Drain {
  readonly isOn: boolean
  /** Undefined if this gateway is not draining. */
  readonly progress: DrainProgress | undefined
  /** Reason why the last drain ended by itself; undefined if it did not. */
  readonly givenUp: DrainGivenUp | undefined
  /** Throws a ServiceError if no other gateway can take over now. */
  start(): Promise<void>
  /** Cancels the drain. Throws ServiceError 841 if it is too late. */
  undo(): Promise<void>
  /** Hands over as much as possible within that time, before this gateway stops. Throws like `start`. */
  end(withinMs: number): Promise<void>
}

/** For a single gateway: there is no gateway to drain to. */
export class NoDrain implements Drain {
  readonly isOn = false
  readonly progress = undefined
  readonly givenUp = undefined

  async start(): Promise<void> {
    throw new ServiceError(841, 'This gateway is not part of a cluster. Stop it without a drain.')
  }

  undo(): Promise<void> {
    return this.start()
  }

  async end(): Promise<void> {}
}

import { ServiceError } from '../records/service-error.ts'

/** What is still to go. */
export interface DrainLeft {
  readonly agents: number
  readonly endpoints: number
  /** Requests and connections under way. */
  readonly requests: number
}

/** How far a drain is. */
export interface DrainProgress {
  /** Milliseconds since the epoch. */
  readonly since: number
  readonly from: DrainLeft
  readonly left: DrainLeft
}

/** That a drain has ended by itself. */
export interface DrainGivenUp {
  /** Milliseconds since the epoch. */
  readonly at: number
  /** For people. */
  readonly reason: string
}

/** Sends an agent to another gateway; never rejects. */
export type SendAway = (sessionId: string, withinMs: number) => Promise<void>

/** Gives what is served here to the other gateways. */
export interface Drain {
  readonly isOn: boolean
  /** Undefined while this gateway takes what comes. */
  readonly progress: DrainProgress | undefined
  /** Why the last drain has ended by itself; undefined when it did not. */
  readonly givenUp: DrainGivenUp | undefined
  /** Throws a ServiceError where no other gateway can take over now. */
  start(): Promise<void>
  /** Takes what comes again. Throws ServiceError 841 where that is too late. */
  undo(): Promise<void>
  /** This gateway ends: gives away what it can within that time. Throws as `start` does. */
  end(withinMs: number): Promise<void>
}

/** There is no gateway to give anything to. */
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

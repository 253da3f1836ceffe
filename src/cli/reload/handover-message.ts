/**
 * What an old and a new process of a service say to each other, in this order: the new one that it
 * could start, the old one that it has let go, the new one that it serves.
 */
export type HandoverMessage = 'prepared' | 'released' | 'serving'

/** The last words of a new process that cannot start: the status of the service shows them. */
export interface HandoverFailure {
  readonly failed: string
}

/** In the environment of the new process: the pid of the old one, whose child it is. */
export const PREDECESSOR = 'DEVICE_GATEWAY_PREDECESSOR'

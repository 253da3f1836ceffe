import type { Session } from '../muxado/session.ts'

export interface StreamSlotsOptions {
  readonly session: Session
}

/** The stream budget of one agent session, shared by the pools of its endpoints. */
export class StreamSlots {
  readonly session: Session

  constructor({ session }: StreamSlotsOptions) {
    this.session = session
  }

  /** Ends the idle streams and refuses who waits; call it when the session is over. */
  close(): void {}
}

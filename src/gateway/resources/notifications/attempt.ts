/** Result of sending one message. */
export interface Attempt {
  readonly isTaken: boolean
  /** Status of the receiver, or null if there was no answer. */
  readonly status: number | null
  /** The receiver may have accepted the message. It has to be sent again with the same id. */
  readonly isUnclear?: boolean
  /** For people. */
  readonly text: string
}

export const NOT_SENT: Attempt = {
  isTaken: false,
  status: null,
  text: 'The message could not be sent.',
}

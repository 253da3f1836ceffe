/** What `error` of an action's results says: texts that are empty when nothing went wrong. */
export type ResultError = {
  readonly code: string
  readonly message: string
}

export const NO_ERROR: ResultError = { code: '', message: '' }

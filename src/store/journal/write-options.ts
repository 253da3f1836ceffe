export interface WriteOptions {
  /** For changes that free space: a full disk gives them the reserve, and runs `change` again. */
  readonly mayUseReserve?: boolean
  /** For what may be lost with the file, such as times of use: no backup is made for it. */
  readonly withoutBackup?: boolean
  /** The id of what was changed, where this is the last write of a change that somebody asked for. */
  readonly concludes?: string
}

/**
 * Called at the end of each transaction, inside of it, with what it concludes: what it throws undoes
 * all. What it answers is called when the transaction is on stable storage.
 */
export type WriteListener = (concludes: string | undefined) => (() => void) | undefined

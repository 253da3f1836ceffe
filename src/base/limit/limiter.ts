/** Limits how often something happens, for each key on its own. */
export interface Limiter {
  /**
   * Counts one event of the key and answers 0; or refuses it, which does not count, and answers the
   * milliseconds after which one fits if no other comes first.
   */
  take(key: string): number
}

import { Backoff, type BackoffOptions } from '../../base/backoff.ts'
import type { RefusalTimings } from '../timings.ts'

/**
 * With full jitter a row of short pauses could be followed by the longest one. With a quarter, what
 * was refused for 8 s is tried again before 15 s have passed, whatever chance says.
 */
const JITTER = 0.25

/** The pauses after refusals: 2, 4, 8 … 60 s, a little less by chance. */
export function refusalBackoff(
  timings: RefusalTimings,
  random: Pick<BackoffOptions, 'random'> | undefined,
): Backoff {
  return new Backoff({ ...timings, jitter: JITTER, ...random })
}

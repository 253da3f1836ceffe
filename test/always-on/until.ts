import { setTimeout as sleep } from 'node:timers/promises'

const WITHIN_MS = 60_000

/** Waits for something that takes as long as it takes, a minute at most. */
export async function until(
  what: string,
  isSo: () => Promise<boolean>,
  everyMs = 50,
): Promise<void> {
  const end = performance.now() + WITHIN_MS
  while (!(await isSo())) {
    if (performance.now() > end) throw new Error(`not so: ${what}`)
    await sleep(everyMs)
  }
}

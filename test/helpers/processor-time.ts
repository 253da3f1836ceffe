/**
 * Milliseconds of the processor that the best of a few runs takes; a run that is quick `enough` is the
 * last. Time by the clock would tell how busy the machine is with other tests. What others do on the
 * same core makes the processor itself slower: who compares with a limit takes many rounds.
 */
export function processorMs(run: () => void, rounds = 5, enoughMs = 0): number {
  let bestMs = Number.POSITIVE_INFINITY
  for (let round = 0; round < rounds && bestMs >= enoughMs; round += 1) {
    const before = process.cpuUsage()
    run()
    const { user, system } = process.cpuUsage(before)
    bestMs = Math.min(bestMs, (user + system) / 1_000)
  }
  return bestMs
}

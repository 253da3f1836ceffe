/**
 * Milliseconds of the processor that the best of a few runs takes. Time by the clock would tell how
 * busy the machine is with other tests.
 */
export function processorMs(run: () => void, rounds = 5): number {
  let bestMs = Number.POSITIVE_INFINITY
  for (let round = 0; round < rounds; round += 1) {
    const before = process.cpuUsage()
    run()
    const { user, system } = process.cpuUsage(before)
    bestMs = Math.min(bestMs, (user + system) / 1_000)
  }
  return bestMs
}

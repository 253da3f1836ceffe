/**
 * Loaded into the gateway by `--import`: writes at its end, to the file that COLLECTOR_FILE names with
 * the process id behind it, how long the collector held its thread and how much processor time it took, in ms.
 */
import { writeFileSync } from 'node:fs'
import { PerformanceObserver } from 'node:perf_hooks'

let collectorMs = 0
const add = (entries) => {
  for (const { duration } of entries) collectorMs += duration
}
const observer = new PerformanceObserver((list) => add(list.getEntries()))
observer.observe({ entryTypes: ['gc'] })
process.once('exit', () => {
  add(observer.takeRecords())
  const { user, system } = process.cpuUsage()
  const cpuMs = (user + system) / 1_000
  writeFileSync(
    `${process.env.COLLECTOR_FILE}.${process.pid}`,
    JSON.stringify({ collectorMs, cpuMs }),
  )
})

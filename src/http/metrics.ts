import process from 'node:process'

/** Of one metric; what is more is left out, so that nobody fills the database of who watches. */
export const MOST_SERIES = 1_000

/** One value for each set of labels. */
export type Samples = Iterable<readonly [labels: Readonly<Record<string, string>>, value: number]>

/** A figure that is read when somebody asks for it; keeping it costs nothing. */
export interface Metric {
  readonly name: string
  readonly type: 'gauge' | 'counter'
  /** What it says, for people; the table in the documentation has the same. */
  readonly help: string
  readonly labels?: readonly string[]
  /** Undefined: there is nothing to say now. */
  readonly read: () => number | undefined | Samples
}

/** What every process has, under the names that Prometheus' own clients give it. */
export const PROCESS_METRICS: readonly Metric[] = [
  {
    name: 'process_cpu_seconds_total',
    type: 'counter',
    help: 'CPU time used by the process, in seconds.',
    read: () => {
      const { user, system } = process.cpuUsage()
      return (user + system) / 1_000_000
    },
  },
  {
    name: 'process_resident_memory_bytes',
    type: 'gauge',
    help: 'Resident memory of the process, in bytes.',
    read: () => process.memoryUsage.rss(),
  },
  {
    name: 'process_start_time_seconds',
    type: 'gauge',
    help: 'Start time of the process, in seconds since the epoch.',
    read: () => Math.round(Date.now() / 1_000 - process.uptime()),
  },
]

/** One sample with the value 1 for the state that is, and 0 for each other. */
export function* oneOf<State extends string>(states: readonly State[], now: State): Samples {
  for (const state of states) yield [{ state }, state === now ? 1 : 0]
}

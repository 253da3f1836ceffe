import process from 'node:process'
import type { RequestHandler } from 'express'
import type {
  Counter,
  Gauge,
  Metric as LibraryMetric,
  MetricValueWithName,
  Registry,
} from 'prom-client'

/** Maximum number of series per metric. More are left out, to protect the monitoring database. */
export const MAX_SERIES = 1_000

/** One value per set of labels. */
export type Samples = Iterable<readonly [labels: Readonly<Record<string, string>>, value: number]>

interface MetricText {
  readonly name: string
  /** Description for people. The table in the documentation has the same text. */
  readonly help: string
  readonly labels?: readonly string[]
}

/** A metric with one value per set of labels. */
export interface ValueMetric extends MetricText {
  readonly type: 'gauge' | 'counter'
  /** Undefined: no value at present. */
  readonly read: () => number | undefined | Samples
}

/** Observations of one set of labels. */
export interface Distribution {
  /** Number of observations for each bound, then above the last bound. Not cumulative. */
  readonly buckets: readonly number[]
  readonly sum: number
}

/** A metric with one distribution per set of labels. */
export interface HistogramMetric extends MetricText {
  readonly type: 'histogram'
  /** Upper bounds of the buckets. */
  readonly bounds: readonly number[]
  readonly read: () => Iterable<
    readonly [labels: Readonly<Record<string, string>>, value: Distribution]
  >
}

/** A metric that is read at each scrape. It costs nothing in between. */
export type Metric = ValueMetric | HistogramMetric

/** Metrics of every process, with the names used by Prometheus' own clients. */
export const PROCESS_METRICS: readonly ValueMetric[] = [
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

/** Yields one sample per state: 1 for the current state, 0 for the others. */
export function* oneOf<State extends string>(states: readonly State[], now: State): Samples {
  for (const state of states) yield [{ state }, state === now ? 1 : 0]
}

/** Serves `GET /metrics` in the text format of Prometheus. */
export function serveMetrics(metrics: readonly Metric[]): RequestHandler {
  let loaded: Promise<Registry> | undefined
  return async (_request, response) => {
    loaded ??= createRegistry(metrics)
    const registry = await loaded
    const text = await registry.metrics()
    response.setHeader('content-type', registry.contentType)
    response.end(text)
  }
}

/** Creates the registry that answers scrapes. */
export async function createRegistry(metrics: readonly Metric[]): Promise<Registry> {
  // Loaded on demand: the library is needed only for scrapes. The bundle exports it only as `default`.
  const { default: library } = await import('prom-client')
  const registry = new library.Registry()
  for (const metric of metrics) {
    if (metric.type === 'histogram') registry.registerMetric(histogram(metric))
    else register(metric, registry, library)
  }
  return registry
}

/** A metric of the library that takes its buckets from `read`: its own histogram only takes observations. */
function histogram({ name, help, bounds, read }: HistogramMetric): LibraryMetric {
  const get = async () => {
    const values: MetricValueWithName<string>[] = []
    for (const [labels, { buckets, sum }] of read()) {
      if (values.length + bounds.length + 3 > MAX_SERIES) break
      let count = 0
      for (const [at, number] of buckets.entries()) {
        count += number
        const le = bounds[at] ?? '+Inf'
        values.push({ metricName: `${name}_bucket`, labels: { ...labels, le }, value: count })
      }
      values.push({ metricName: `${name}_sum`, labels, value: sum })
      values.push({ metricName: `${name}_count`, labels, value: count })
    }
    return { name, help, type: 'histogram', aggregator: 'sum', values }
  }
  return { name, help, get } as unknown as LibraryMetric
}

function register(
  { name, type, help, labels = [], read }: ValueMetric,
  registry: Registry,
  { Counter, Gauge }: typeof import('prom-client'),
): void {
  const options = { name, help, labelNames: [...labels], registers: [registry] }
  if (type === 'gauge') {
    new Gauge({
      ...options,
      collect() {
        empty(this, labels)
        for (const [of, value] of samplesOf(read())) this.set(of, value)
      },
    })
    return
  }
  new Counter({
    ...options,
    collect() {
      empty(this, labels)
      for (const [of, value] of samplesOf(read())) this.inc(of, value)
    },
  })
}

/** Resets a metric. Without labels it would have the value 0, so it is removed to have no value. */
function empty(metric: Gauge | Counter, labels: readonly string[]): void {
  metric.reset()
  if (labels.length === 0) metric.remove()
}

function* samplesOf(read: ReturnType<ValueMetric['read']>): Samples {
  if (read === undefined) return
  if (typeof read === 'number') {
    yield [{}, read]
    return
  }
  let count = 0
  for (const sample of read) {
    if (count === MAX_SERIES) return
    count += 1
    yield sample
  }
}

import process from 'node:process'
import { type RequestHandler, Router } from 'express'
import type { Counter, Gauge, Registry } from 'prom-client'
import { methodNotAllowed } from './error-response.ts'

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

/** `GET /metrics` in the text format of Prometheus. */
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

export function metricsRoutes(metrics: readonly Metric[]): Router {
  const router = Router()
  router.route('/metrics').get(serveMetrics(metrics)).all(methodNotAllowed('GET', 'HEAD'))
  return router
}

/** Makes the answer to a scrape out of metrics. */
export async function createRegistry(metrics: readonly Metric[]): Promise<Registry> {
  // Loaded late: without a scrape, nothing needs the library. The bundle has it as `default` alone.
  const { default: library } = await import('prom-client')
  const registry = new library.Registry()
  for (const metric of metrics) register(metric, registry, library)
  return registry
}

function register(
  { name, type, help, labels = [], read }: Metric,
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

/** A metric without labels that was reset says 0, and not that there is nothing to say. */
function empty(metric: Gauge | Counter, labels: readonly string[]): void {
  metric.reset()
  if (labels.length === 0) metric.remove()
}

function* samplesOf(read: ReturnType<Metric['read']>): Samples {
  if (read === undefined) return
  if (typeof read === 'number') {
    yield [{}, read]
    return
  }
  let count = 0
  for (const sample of read) {
    if (count === MOST_SERIES) return
    count += 1
    yield sample
  }
}

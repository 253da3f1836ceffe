import { Counter, Gauge, Registry } from 'prom-client'
import { type Metric, MOST_SERIES, type Samples } from './metrics.ts'

/** Makes the answer to a scrape out of metrics. */
export function createRegistry(metrics: readonly Metric[]): Registry {
  const registry = new Registry()
  for (const metric of metrics) register(metric, registry)
  return registry
}

function register({ name, type, help, labels = [], read }: Metric, registry: Registry): void {
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

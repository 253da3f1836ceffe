import * as z from 'zod'
import { durationMs } from '../document/read-config.ts'
import { CONTINUE, type Outcome, refuse } from '../exchange/outcome.ts'
import { Circuit } from '../limit/circuit.ts'
import { defineAction } from './action.ts'

const DURATION = durationMs('1s', '2m')

/** Spares a failing upstream: answers 503 while too many of its answers are errors. */
export const circuitBreaker = defineAction({
  type: 'circuit-breaker',
  phases: ['on_http_request'],
  config: z.strictObject({
    error_threshold: z.number().min(0).max(1).default(0.5),
    volume_threshold: z.int().min(1).max(2_000_000_000).default(10),
    window_duration: DURATION.prefault('10s'),
    tripped_duration: DURATION.prefault('10s'),
    num_buckets: z.literal(10).default(10),
    enforce: z.boolean().default(true),
  }),
  fields: {
    error_threshold:
      'Share of failed requests at which the circuit opens. Failed: status 500 or above, or no answer.',
    volume_threshold: 'Fewest requests in the window at which the circuit can open.',
    window_duration: 'Time over which requests are counted, 1s to 2m.',
    tripped_duration:
      'Time for which requests get 503 once it is open, 1s to 2m. Then one request tests the service.',
    num_buckets: 'Parts of the window.',
    enforce: 'false: the action does nothing.',
  },
  example: {
    error_threshold: 0.5,
    volume_threshold: 10,
    window_duration: '10s',
    tripped_duration: '30s',
    num_buckets: 10,
    enforce: true,
  },
  build(config, context) {
    if (!config.enforce) return () => CONTINUE
    const { clock } = context
    const circuit = context.carry(
      () =>
        new Circuit({
          errorThreshold: config.error_threshold,
          volumeThreshold: config.volume_threshold,
          windowMs: config.window_duration,
          trippedMs: config.tripped_duration,
        }),
    )
    return (exchange) => {
      const admission = circuit.admit(clock.monotonic())
      if (admission === 'refuse') return spare(circuit.waitMs(clock.monotonic()))
      exchange.whenUpstreamEnds((status) => {
        circuit.record(clock.monotonic(), admission, status === undefined || status >= 500)
      })
      return CONTINUE
    }
  },
})

function spare(waitMs: number): Outcome {
  const seconds = String(Math.max(1, Math.ceil(waitMs / 1_000)))
  const message = 'The upstream failed too often. Requests are blocked for a while.'
  return refuse(503, 'ERR_NGROK_3202', message, ['retry-after', seconds])
}

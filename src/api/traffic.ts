import * as z from 'zod'
import type { Agent } from '../agent/agent.ts'
import type { Route } from '../http/routes.ts'

const Count = z.number().min(0)

const TrafficView = z.strictObject({
  tunnels: z
    .array(
      z.strictObject({
        id: z.string(),
        requests: Count.describe('requests or connections since the gateway opened the endpoint'),
        errors: Count.describe('requests that failed because of the service'),
        bytes_in: Count.describe('from visitors'),
        bytes_out: Count.describe('to visitors'),
      }),
    )
    .nullable()
    .describe('online tunnels; null without a link, and with the hosted service'),
})

/** `/traffic`: requests, errors and bytes of each tunnel, counted by the gateway. */
export function trafficRoute(agent: Pick<Agent, 'traffic' | 'list'>): Route {
  return {
    route: 'GET /traffic',
    id: 'getTraffic',
    summary: 'Get the traffic of the tunnels',
    about: 'Traffic of the tunnels.',
    description:
      'Asks the gateway, which counts. The answer may be 5 seconds old, on a metered link 30 seconds. Counts start at 0 when the gateway opens the endpoint, for example after a new connection.',
    answers: {
      200: { means: 'Counts by tunnel.', schema: { Traffic: TrafficView } },
    },
    handle: async (_request, response) => {
      const counts = await agent.traffic()
      const tunnels = agent.list().flatMap(({ id, spec }) => {
        const found = counts?.get(spec.domain)
        if (!found) return []
        const { requests, errors, bytesIn, bytesOut } = found
        return [{ id, requests, errors, bytes_in: bytesIn, bytes_out: bytesOut }]
      })
      const view: z.infer<typeof TrafficView> = {
        tunnels: counts ? tunnels : null,
      }
      response.json(view)
    },
  }
}

import * as z from 'zod'
import type { Agent } from '../agent/agent.ts'
import type { LocalService } from '../agent/upstreams/local-services.ts'
import type { Route } from '../http/routes.ts'

const ServicesView = z.strictObject({
  services: z
    .array(
      z.strictObject({
        port: z.int(),
        forwards_to: z.string().describe('value for forwards_to of a tunnel'),
        protocol: z.enum(['http', 'tcp']).describe('tcp: does not answer HTTP, or was not asked'),
        title: z
          .string()
          .nullable()
          .describe('title of its start page, or name of its protocol; text from the service'),
      }),
    )
    .readonly()
    .describe('at most 40, by port; empty on systems without /proc'),
})

/** `/services`: the services that listen on the device. */
export function servicesRoute(agent: Pick<Agent, 'findServices'>): Route {
  let running: Promise<readonly LocalService[]> | undefined
  return {
    route: 'GET /services',
    id: 'findServices',
    summary: 'Find services that listen on the device',
    about: 'Services on the device.',
    description:
      'Lists services that listen on loopback or on all addresses of the device, except those of the agent. Sends each a GET request for its start page, to show its title. Takes a few seconds.',
    answers: {
      200: { means: 'The services that tunnels may lead to.', schema: { Services: ServicesView } },
    },
    handle: async (_request, response) => {
      // Callers during a search share its result.
      running ??= agent.findServices().finally(() => {
        running = undefined
      })
      const found = await running
      const view: z.infer<typeof ServicesView> = {
        services: found.map(({ port, forwardsTo, protocol, title }) => ({
          port,
          forwards_to: forwardsTo,
          protocol,
          title: title ?? null,
        })),
      }
      response.json(view)
    },
  }
}

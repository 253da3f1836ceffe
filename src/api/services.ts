import * as z from 'zod'
import type { Agent } from '../agent/agent.ts'
import type { LocalService } from '../agent/upstreams/local-services.ts'
import type { Clock } from '../base/clock.ts'
import { writersOnly } from '../http/caller.ts'
import type { Route } from '../http/routes.ts'

/** Callers within this time get the same result, because each search contacts the services. */
const KEPT_MS = 30_000

const ServicesView = z.strictObject({
  services: z
    .array(
      z.strictObject({
        port: z.int(),
        forwards_to: z.string().describe('value for forwards_to of a tunnel'),
        protocol: z
          .enum(['http', 'tcp'])
          .describe('tcp: does not answer HTTP, or was not checked, see http_checked'),
        http_checked: z.boolean().describe('whether a request was sent to the service'),
        title: z
          .string()
          .nullable()
          .describe('title of its start page, or name of its protocol; text from the service'),
      }),
    )
    .readonly()
    .describe('at most 40, by port; empty on systems without /proc'),
})

type Search = { readonly found: Promise<readonly LocalService[]>; endedAt?: number }

/** `/services`: the services that listen on the device. */
export function servicesRoute(agent: Pick<Agent, 'findServices'>, clock: Clock): Route {
  let last: Search | undefined
  return {
    route: 'GET /services',
    id: 'findServices',
    summary: 'Find services that listen on the device',
    about: 'Services on the device.',
    description:
      'Lists services that listen on loopback or on all addresses of the device, except those of the agent. Contacts services: sends a GET request for the start page to each on a usual port of web pages, to show its title. So it requires the scope `write`. Takes a few seconds. The result is kept for 30 s.',
    answers: {
      200: { means: 'The services that tunnels may lead to.', schema: { Services: ServicesView } },
    },
    before: [writersOnly('Searching for services')],
    handle: async (_request, response) => {
      const isOld = last?.endedAt !== undefined && clock.monotonic() - last.endedAt >= KEPT_MS
      if (!last || isOld) last = start()
      const found = await last.found
      const view: z.infer<typeof ServicesView> = {
        services: found.map(({ port, forwardsTo, protocol, isAsked, title }) => ({
          port,
          forwards_to: forwardsTo,
          protocol,
          http_checked: isAsked,
          title: title ?? null,
        })),
      }
      response.json(view)
    },
  }

  function start(): Search {
    const search: Search = { found: agent.findServices() }
    search.found.then(
      () => {
        search.endedAt = clock.monotonic()
      },
      () => {
        last = undefined
      },
    )
    return search
  }
}

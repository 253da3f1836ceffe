import * as z from 'zod'
import { MAX_SERVERS } from '../../settings/forms.ts'
import type { ManagementClient } from './management-client.ts'

const Node = z.object({
  id: z.string(),
  state: z.string(),
  agent_addresses: z.array(z.string()).default([]),
})

/**
 * SVC_SERVER_ADDR for devices: the own address, then one of each other gateway of the cluster, so that a device
 * keeps its tunnels if a gateway stops. A key of another owner does not see the gateways.
 */
export async function clusterAddresses(
  client: ManagementClient,
  own: string | undefined,
): Promise<string | undefined> {
  const nodes = (await client.listIfServed('nodes', Node)) ?? []
  const others = nodes
    .filter(({ state }) => state !== 'gone')
    .flatMap(({ agent_addresses: addresses }) => addresses.slice(0, 1))
  const all = [...new Set([...(own ? [own] : []), ...others])].slice(0, MAX_SERVERS)
  return all.length > 0 ? all.join(',') : undefined
}

import type { Closer } from '../../base/closer.ts'
import { agentAddresses } from '../../base/net/public-names.ts'
import {
  GATEWAY_APPLICATION_ID,
  GATEWAY_MIGRATIONS,
  gatewayStores,
  type OpenRecords,
  type RecordsOptions,
} from '../gateway-database.ts'
import type { Places } from '../ports/membership.ts'
import { ClusterNode, type ClusterNodeOptions } from './cluster-node.ts'
import { openSite, type Site, type SiteOptions } from './open-site.ts'
import { SiteOrders } from './site-orders.ts'

/** How a gateway finds the others of its site, and they find it. */
export type SharedGateway = Pick<
  SiteOptions,
  'server' | 'peerListen' | 'peerAddress' | 'joinTokenPath'
> &
  Pick<ClusterNodeOptions, 'timings'>

/** The records that all gateways of a site have in common. Throws a StartError. */
export async function openSharedGateway(
  shared: SharedGateway,
  options: RecordsOptions,
  closer: Closer,
): Promise<OpenRecords> {
  const { dataDir: folder, version = '', holdMs, onRestartNeeded = () => {}, log, clock } = options
  const ports = { http: options.httpListen.port, https: options.httpsListen.port }
  const site = await openSite({
    ...shared,
    folder,
    version,
    log,
    clock,
    ports,
    agentAddresses: agentAddresses(options.agentListen, options.publicNames),
    migrations: GATEWAY_MIGRATIONS,
    applicationId: GATEWAY_APPLICATION_ID,
  })
  closer.own('records of the site', site, (it) => it.stop())
  const { nodeId } = site.identity
  const stores = gatewayStores(site.database, { log, clock, node: nodeId })
  const orders = options.acme && openOrders(shared, site, options, closer)
  return {
    stores,
    orders,
    named: (text) => `${text}, ${nodeId}`,
    join: (places: Places) => {
      const { trail } = stores
      const joining = { ...shared, ...places, site, ports, trail, holdMs, onRestartNeeded }
      const node = new ClusterNode({ ...joining, log, clock })
      orders?.orderAs(node.cluster.lease)
      return node
    },
  }
}

/** Certificate orders of the site. */
function openOrders(
  { timings }: SharedGateway,
  { material, connection, follower }: Site,
  { log, clock }: RecordsOptions,
  closer: Closer,
): SiteOrders {
  const reads = follower.connection
  const lookMs = timings?.lookMs
  const orders = new SiteOrders({ connection, reads, material, lookMs, log, clock })
  closer.own('orders of certificates', orders, (it) => it.stop()).start()
  return orders
}

import type { Clock } from '../../base/clock.ts'
import type { Closer } from '../../base/closer.ts'
import type { ListenAddress } from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import { GATEWAY_APPLICATION_ID, GATEWAY_MIGRATIONS } from '../records/gateway-database.ts'
import { ClusterNode, type ClusterNodeOptions } from './cluster-node.ts'
import { openSite, type Site, type SiteOptions } from './open-site.ts'
import type { PublicPorts } from './peers/public-ports.ts'
import { SiteOrders } from './site-orders.ts'

/** How a gateway finds the others of its site, and they find it. */
export type SharedGateway = Pick<
  SiteOptions,
  'server' | 'peerListen' | 'peerAddress' | 'joinTokenPath'
> &
  Pick<ClusterNodeOptions, 'timings'>

export interface SharedGatewayOptions {
  /** Undefined where a gateway is the only one. */
  readonly shared: SharedGateway | undefined
  readonly dataDir: string
  readonly httpListen: ListenAddress
  readonly httpsListen: ListenAddress
  readonly version?: string
  readonly holdMs: number | undefined
  /** Set where certificates are ordered. */
  readonly acme?: object | undefined
  readonly onRestartNeeded?: ((reason: string) => void) | undefined
  readonly log: Logger
  readonly clock: Clock
}

/** What all gateways of the site have in common. Throws a StartError. */
export async function openShared(
  options: SharedGatewayOptions,
  closer: Closer,
): Promise<Site | undefined> {
  const { shared, dataDir: folder, version = '', log, clock } = options
  if (!shared) return undefined
  const site = await openSite({
    ...{ ...shared, folder, version, log, clock, ports: portsOf(options) },
    migrations: GATEWAY_MIGRATIONS,
    applicationId: GATEWAY_APPLICATION_ID,
  })
  return closer.own('records of the site', site, (it) => it.stop())
}

/** What the gateways order together; to be opened before all that orders. */
export function openOrders(
  { shared, acme, log, clock }: SharedGatewayOptions,
  site: Site | undefined,
  closer: Closer,
): SiteOrders | undefined {
  if (!shared || !site || !acme) return undefined
  const { server, timings } = shared
  const orders = new SiteOrders({ ...site, server, lookMs: timings?.lookMs, log, clock })
  closer.own('orders of certificates', orders, (it) => it.stop()).start()
  return orders
}

/** To be opened before all that has names: it is stopped after that, and gives them up. */
export function openNode(
  options: SharedGatewayOptions,
  site: Site | undefined,
  places: Pick<
    ClusterNodeOptions,
    | 'registry'
    | 'owners'
    | 'mayReturn'
    | 'sessionOf'
    | 'sessionIds'
    | 'policies'
    | 'buffers'
    | 'ids'
  >,
  closer: Closer,
): ClusterNode | undefined {
  const { shared, holdMs, onRestartNeeded = () => {}, log, clock } = options
  if (!shared || !site) return undefined
  const node = new ClusterNode({
    ...{ ...shared, ...places, site, holdMs, onRestartNeeded, log, clock },
    ports: portsOf(options),
  })
  return closer.own('cluster membership', node, (it) => it.stop())
}

function portsOf({ httpListen, httpsListen }: SharedGatewayOptions): PublicPorts {
  return { http: httpListen.port, https: httpsListen.port }
}

import { expect, onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../src/base/clock.ts'
import type { Logger } from '../../src/base/logger.ts'
import type { PeerLinks } from '../../src/gateway/cluster/peers/peer-links.ts'
import type { Endpoint } from '../../src/gateway/endpoints/endpoint.ts'
import { EndpointRegistry } from '../../src/gateway/endpoints/endpoint-registry.ts'
import type { NameState } from '../../src/gateway/endpoints/host-table.ts'
import {
  ClusterRoutes,
  type RemoteEndpoint,
  type RemoteEndpoints,
} from '../../src/gateway/endpoints/routes.ts'
import type { TcpAddresses } from '../../src/gateway/endpoints/tcp-addresses.ts'
import type { IngressLimits } from '../../src/gateway/ingress/common/ingress-context.ts'
import {
  Ingress,
  type IngressAddresses,
  type IngressTls,
} from '../../src/gateway/ingress/ingress.ts'
import { createCluster, openLinks, startListener, type TestCluster } from './cluster.ts'
import { eventually } from './eventually.ts'
import { wipingReads } from './wiping-reads.ts'

/** What every home in these tests is at, unless a test says otherwise. */
export const HOME = 'nd_home'

/** The homes of what a registry has, online or away: what nodes tell each other in a cluster. */
export function homesOf(registry: EndpointRegistry, nodeId = HOME): RemoteEndpoints {
  const homeOf = (state: NameState | undefined): RemoteEndpoint | undefined => {
    if (!state) return undefined
    const { protocol, host, url, ownerId } = state
    const endsTls = state.type !== 'disconnected' && doesEndTls(state)
    return { type: 'remote', nodeId, protocol, host, url, ownerId, endsTls }
  }
  return {
    find: (entrance, host) => {
      const found = registry.match(host, entrance)
      const isThere = entrance !== 'http' || found?.protocol === 'http'
      return isThere ? homeOf(found) : undefined
    },
    findInternal: (protocol, host, ownerId) =>
      homeOf(registry.matchInternal(new URL(`${protocol}://${host}`), ownerId)),
  }
}

const doesEndTls = ({ policy }: Endpoint) =>
  policy.hasConnectRules && policy.has?.('on_tcp_connect', 'terminate-tls') === true

export interface FirstNodeOptions {
  readonly cluster: TestCluster
  readonly nodeId?: string
  readonly homes: RemoteEndpoints
  /** What is at home here. */
  readonly registry?: EndpointRegistry
  readonly nodes: readonly {
    readonly id: string
    readonly address: { host: string; port: number }
  }[]
  readonly httpHost?: string
  readonly limits?: Partial<IngressLimits> | undefined
  readonly tls: IngressTls
  readonly log: Logger
  readonly clock: Clock
  /** Of the links, where a test decides how long visitors wait for them: beats stand still with it. */
  readonly linkClock?: Clock
  readonly holdMs?: number | undefined
  readonly tcp?: { readonly listenHost: string; readonly addresses: TcpAddresses } | undefined
}

export interface FirstNode {
  readonly ingress: Ingress
  readonly addresses: IngressAddresses
  readonly links: PeerLinks
  readonly routes: ClusterRoutes
}

/** A node that visitors come to, with links to where endpoints are at home. */
export async function startFirstNode(options: FirstNodeOptions): Promise<FirstNode> {
  const { cluster, nodeId = 'nd_first', homes, nodes, httpHost = '127.0.0.1', tls } = options
  const { log, clock, linkClock = systemClock, limits, holdMs, tcp } = options
  const registry = options.registry ?? new EndpointRegistry({ clock })
  const ownerships = { nodeId, of: () => 'owned' as const }
  const routes = new ClusterRoutes({ registry, homes, ownerships, clock, holdMs })
  const { links } = openLinks(await cluster.identify(nodeId), {
    clock: linkClock,
    onChange: (id) => {
      if (links.find(id)?.session) routes.onNodeUp(id)
    },
  })
  const ingress = new Ingress({
    registry,
    routes,
    ownRoutes: routes.forPeers,
    peers: links,
    http: { host: httpHost, port: 0 },
    https: { host: '127.0.0.1', port: 0 },
    tls,
    tcp,
    log,
    clock,
    reads: wipingReads(),
    ...(limits ? { limits } : {}),
  })
  onTestFinished(() => ingress.stop(0))
  const addresses = await ingress.start()
  links.follow(nodes)
  await eventually(() => {
    for (const link of links.all()) expect(link.state.name).toBe('up')
  })
  return { ingress, addresses, links, routes }
}

/** Puts a node in front of an ingress: what visitors are given to connect to is that. */
export async function putNodeBefore(
  home: { readonly ingress: Ingress; readonly registry: EndpointRegistry },
  options: Omit<FirstNodeOptions, 'cluster' | 'homes' | 'nodes'>,
): Promise<FirstNode> {
  const cluster = await createCluster(options.linkClock)
  const { address } = await startListener(cluster, HOME, {
    onVisitor: (stream, origin) => home.ingress.acceptPeer(stream, origin),
  })
  return startFirstNode({
    ...options,
    cluster,
    homes: homesOf(home.registry),
    nodes: [{ id: HOME, address }],
  })
}

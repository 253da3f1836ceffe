import { join } from 'node:path'
import type { Clock } from '../base/clock.ts'
import type { Closer } from '../base/closer.ts'
import { type HandedOver, Handover } from '../base/handover.ts'
import type { ListenAddress, PortRange } from '../base/listen-address.ts'
import type { Logger } from '../base/logger.ts'
import { type ProxyConfig, TrustedProxies } from '../base/net/trusted-proxies.ts'
import type { AddressTable } from '../policy/exchange/address-tables.ts'
import { LimiterTables } from '../policy/limit/limiter-tables.ts'
import { type AllowEntry, mayDial } from '../policy/outbound/outbound-allow.ts'
import { preparePolicies } from '../policy/policy-language.ts'
import { lockFolder } from '../store/data-folder.ts'
import { AccountSecrets } from './access/account-secrets.ts'
import { tellOfLostNames } from './access/acl.ts'
import { Authority, type BoundName, watchCredentials } from './access/authority.ts'
import { CredentialIssuer } from './access/credential-issuer.ts'
import { ALONE, type NameClaims } from './access/name-claims.ts'
import { tellOfOverlaps } from './access/name-rules.ts'
import {
  type CredentialLimits,
  DEFAULT_CREDENTIAL_LIMITS,
  SessionTable,
} from './agents/session-table.ts'
import { openAcme } from './certificates/acme/acme-authority.ts'
import { CertificateKeeper } from './certificates/certificate-keeper.ts'
import { CertificateWatch } from './certificates/certificate-watch.ts'
import type { ClusterNode } from './cluster/cluster-node.ts'
import { LeftChanges } from './cluster/left-changes.ts'
import { openNode, openOrders, openShared, type SharedGateway } from './cluster/shared-gateway.ts'
import { Devices } from './devices/devices.ts'
import { AddrRegistrar, watchAddrs } from './endpoints/addr-registrar.ts'
import type { AwayName } from './endpoints/away-name.ts'
import { CloudEndpoints } from './endpoints/cloud-endpoints.ts'
import { DomainRegistrar, watchDomains } from './endpoints/domain-registrar.ts'
import { EndpointUrls } from './endpoints/endpoint-host.ts'
import {
  EndpointPolicies,
  type PlacedStates,
  type PolicyPlace,
  policyReach,
} from './endpoints/endpoint-policies.ts'
import { PoolAffinity } from './endpoints/endpoint-pool.ts'
import { EndpointRegistry } from './endpoints/endpoint-registry.ts'
import { KeptLimits } from './endpoints/kept-limits.ts'
import { KeptNames } from './endpoints/kept-names.ts'
import { TcpAddresses } from './endpoints/tcp-addresses.ts'
import { Ingress } from './ingress/ingress.ts'
import { AddressOrigins } from './origins/address-origins.ts'
import { findDomainProblem, isBelow } from './records/domain-name.ts'
import {
  type GatewayDatabase,
  gatewayStores,
  openGatewayDatabase,
} from './records/gateway-database.ts'
import { IdSource, IssuedIds } from './records/resource-id.ts'
import { BufferAccount } from './streams/buffer-account.ts'
import { Webhooks } from './webhooks/webhooks.ts'

export interface GatewayCoreOptions {
  readonly onRestartNeeded?: ((reason: string) => void) | undefined
  /** Folder for `gateway.db`, the CA and the certificates; made when missing. */
  readonly dataDir: string
  /** Where agents connect: their server certificate names it. */
  readonly agentHost: string
  /** Where the ingress is going to listen; port 0 is left to the system. */
  readonly httpListen: ListenAddress
  readonly httpsListen: ListenAddress
  readonly tls: { readonly certPath: string; readonly keyPath: string } | undefined
  /** Where certificates are ordered for domains that ask for it; unset: the own CA issues all. */
  readonly acme: { readonly directoryUrl: string; readonly email: string | undefined } | undefined
  /** Where the authority's questions about challenges come in. */
  readonly dnsListen: ListenAddress | undefined
  /** The ports of TCP endpoints; unset: there are none. */
  readonly tcpListen: PortRange | undefined
  /** How long a connection to a TCP endpoint may be silent. */
  readonly tcpIdleMs: number | undefined
  /** How long a service may take to begin its response. */
  readonly upstreamTimeoutMs?: number | undefined
  /** How long upgraded connections and response streams may be silent. */
  readonly idleMs?: number | undefined
  readonly cnameBase: string
  /** Under which the management API is served beside its addresses. */
  readonly apiHosts: readonly string[]
  readonly rateLimitKeys: number | undefined
  readonly rateLimitIpv6Prefix: number | undefined
  readonly bufferBytes: number | undefined
  /** How long requests wait for a device that is away. */
  readonly holdMs: number | undefined
  /** Who serves a request to a pool. */
  readonly poolAffinity: 'none' | 'client' | undefined
  readonly proxies: ProxyConfig | undefined
  /** Tables of addresses; see `AddressOrigins`. */
  readonly geoPath: string | undefined
  readonly asnPath: string | undefined
  /** How long the process before may need to let go of its agents; undefined: there is none. */
  readonly predecessorMs: number | undefined
  /** Where policies may connect to beside internal endpoints. */
  readonly outboundAllow: readonly AllowEntry[]
  readonly credentialLimits: Partial<CredentialLimits> | undefined
  /** What it has in common with other gateways; undefined where it is the only one. */
  readonly shared: SharedGateway | undefined
  readonly version?: string
  readonly log: Logger
  readonly clock: Clock
}

/** What all listeners of the gateway share. */
export interface GatewayCore extends GatewayDatabase {
  readonly authority: Authority
  /** This gateway among others; not started yet. */
  readonly node: ClusterNode | undefined
  readonly names: NameClaims
  readonly registry: EndpointRegistry
  readonly sessions: SessionTable
  readonly devices: Devices
  readonly webhooks: Webhooks
  readonly policies: EndpointPolicies
  /** Not started yet. */
  readonly ingress: Ingress
  /** For bytes of the whole gateway that wait for somebody. */
  readonly buffers: BufferAccount
  /** Undefined where no proxy in front is trusted. */
  readonly proxies: TrustedProxies | undefined
  /** What the rate limits of all policies have in common. */
  readonly limits: LimiterTables
  readonly urls: EndpointUrls
  readonly secrets: AccountSecrets
  readonly tcpAddresses: TcpAddresses | undefined
  readonly addrRegistrar: AddrRegistrar
  readonly cloudEndpoints: CloudEndpoints
  readonly certificates: CertificateKeeper
  readonly registrar: DomainRegistrar
  readonly issuer: CredentialIssuer
  readonly ids: IdSource
  /** Of sessions and endpoints of agents. */
  readonly agentIds: IssuedIds
  readonly dnsAddress: ListenAddress | undefined
  /** What only one process may have, in the order in which it is let go of. */
  readonly exclusive: readonly HandedOver[]
}

/** Opens the data folder. Throws a StartError when a person has to act. */
export async function openGatewayCore(
  options: GatewayCoreOptions,
  closer: Closer,
): Promise<GatewayCore> {
  const {
    dataDir,
    rateLimitKeys,
    rateLimitIpv6Prefix: ipv6Prefix,
    bufferBytes,
    outboundAllow,
    holdMs,
    poolAffinity,
    predecessorMs,
    credentialLimits,
    clock,
    log,
    onRestartNeeded,
    tcpListen,
    tcpIdleMs,
    upstreamTimeoutMs,
    idleMs,
  } = options
  const lock = closer.own('lock', lockFolder({ folder: dataDir, owner: 'gateway', log }), (it) =>
    it.release(),
  )
  const site = await openShared(options, closer)
  const stores = site
    ? gatewayStores(site.database, { log, clock, node: site.identity.nodeId })
    : openGatewayDatabase(dataDir, { log, clock, onRestartNeeded })
  if (!site) closer.own('gateway database', stores.database, (it) => it.close())
  await tellOfHealing(stores, { clock, log })
  const affinity = poolAffinity === 'client' ? new PoolAffinity() : undefined
  const ownNames = gatewayNames(options)
  const authority = new Authority({ ...stores, ownNames, clock })
  const { owners } = authority
  tellOfOverlaps(stores.domains, log)
  tellOfLostNames(stores, owners, log)
  const registry = new EndpointRegistry({ clock, holdMs, affinity, owners })
  const ids = new IdSource(clock)
  const nodes = site && {
    self: site.identity.nodeId,
    isThere: (id: string) => node?.serves(id) ?? true,
    isOnDuty: () => node?.isOurs('webhooks') ?? false,
  }
  const devices = new Devices({ ...stores, nodes, ids, clock, log })
  closer.own('devices', devices, (it) => it.stop()).start()
  const webhooks = new Webhooks({
    ...stores,
    mayDial: (target) => mayDial(outboundAllow, target),
    ids,
    clock,
    log,
  })
  closer.own('webhooks', webhooks, (it) => it.stop())
  if (!site) webhooks.start()
  const sessions = new SessionTable({
    limits: { ...DEFAULT_CREDENTIAL_LIMITS, ...credentialLimits },
    watch: devices,
    clock,
  })
  const orders = openOrders(options, site, closer)
  const { authority: acme, dns, dnsAddress } = await openAcme(options, orders, closer)
  const certificates = closer.own(
    'certificates',
    await CertificateKeeper.open({ ...options, acme, domains: stores.domains }),
    (it) => it.stop(),
  )
  const watch = new CertificateWatch({
    ...stores,
    statusOf: (domain) => certificates.domains.statusOf(domain),
    ownEndsAt: () => certificates.ownEndsAt,
    isOneOfSeveral: site !== undefined,
    clock,
    log,
  })
  closer.own('certificate watch', watch, (it) => it.stop()).start()
  const elsewhere = () => node?.namesElsewhere() ?? []
  stores.quotas.countOnline({
    here: (ownerId) => registry.usageOf(ownerId),
    elsewhere: () => node?.deviceNamesElsewhere() ?? [],
  })
  const registrar = new DomainRegistrar({
    ...stores,
    store: stores.domains,
    owners,
    registry,
    elsewhere,
    ids,
    clock,
    hasAcme: acme !== undefined,
  })
  watchDomains(stores.domains, (domain) => {
    void certificates.domains.follow(domain)
    const isBelowIt = ({ host }: AwayName) => host === domain.domain || isBelow(host, domain.domain)
    registry.forgetUnless((name) => !isBelowIt(name) || authority.mayBind(name))
  })
  const issuer = new CredentialIssuer({ ...stores, ids, clock })
  watchCredentials(stores, (id) => {
    sessions.recheck(id)
    registry.forgetUnless((name) => name.credentialId !== id || authority.mayBind(name))
  })
  const keptNames = new KeptNames({
    path: join(dataDir, 'names.json'),
    registry,
    holderOf: ({ sessionId }) => sessions.find(sessionId)?.identity,
    mayReturn: (name) => authority.mayBind(name),
    extraMs: holdMs === 0 ? 0 : predecessorMs,
    clock,
    log,
  })
  closer.own('names of devices', keptNames, (it) => it.stop()).start()
  const limits = new LimiterTables({ maxKeys: rateLimitKeys, ipv6Prefix, clock, log })
  const { httpListen: http, httpsListen: https } = options
  const buffers = new BufferAccount(bufferBytes)
  const places = {
    ...{ registry, owners, sessionOf: (id: string) => sessions.find(id), buffers, ids },
    sessionIds: () => Array.from(sessions.all(), ({ id }) => id),
    mayReturn: (name: BoundName) => authority.mayBind(name),
    policies: {
      last: (place: PolicyPlace) => policies.last(place),
      remember: (place: PolicyPlace, last: Pick<PlacedStates, 'states'>) =>
        policies.remember(place, last),
    },
  }
  const node = openNode(options, site, places, closer)
  node?.share('webhooks', webhooks)
  if (node) {
    orders?.orderAs(node.cluster.lease)
    node.share('certificates', watch)
    sessions.countElsewhere(node.cluster.table.usage)
    const changes = new LeftChanges({ ...stores, isThere: (id) => node.isThere(id), clock })
    node.share(
      'audit',
      closer.own('changes of other gateways', changes, (it) => it.release()),
    )
  }
  const names = node?.names ?? ALONE
  const routes = node?.routes ?? registry
  const tcpAddresses = tcpAddressesOf(options, registry, stores)
  const addrRegistrar = new AddrRegistrar({
    ...{ ...stores, registry, elsewhere, tcpAddresses, ids, clock },
  })
  watchAddrs(stores.reservedAddrs, (addr) =>
    registry.forgetUnless(
      (name) => name.protocol !== 'tcp' || name.host !== addr || authority.mayBind(name),
    ),
  )
  const { geoPath, asnPath } = options
  const addresses = new AddressOrigins({ geoPath, asnPath, clock, log })
  await closer.own('tables of addresses', addresses, (it) => it.stop()).start()
  const secrets = new AccountSecrets(join(dataDir, 'login.key'), log)
  const proxies = options.proxies && new TrustedProxies({ ...options.proxies, log, clock })
  const ingress = new Ingress({
    proxies,
    hasProxyProtocol: options.proxies?.sendProxyProtocol === true,
    registry,
    routes: node?.routes,
    askKey: secrets.secretFor(null, 'request depth'),
    peers: node?.links,
    addresses,
    http,
    https,
    tls: certificates,
    tcp: tcpListen && tcpAddresses && { listenHost: tcpListen.host, addresses: tcpAddresses },
    limits: {
      ...(tcpIdleMs !== undefined && { tcpIdleMs }),
      ...(upstreamTimeoutMs !== undefined && { answerMs: upstreamTimeoutMs }),
      ...(idleMs !== undefined && { idleMs }),
    },
    buffers,
    log,
    clock,
  })
  const hasTable = (table: AddressTable) => addresses.has(table)
  const reachOf = policyReach({
    ...stores,
    ...{ registry: routes, secrets, outboundAllow, ingress, hasTable },
  })
  preparePolicies(clock)
  const policies = new EndpointPolicies({ reachOf, limits, clock, log })
  const keptLimits = new KeptLimits({
    path: join(dataDir, 'limits.json'),
    registry,
    policies,
    tables: limits,
    clock,
    log,
  })
  closer.own('rate limits', keptLimits, (it) => it.stop()).start()
  const urls = new EndpointUrls({ http: http.port, https: https.port })
  const cloudEndpoints = new CloudEndpoints({
    ...stores,
    registry,
    authority,
    names,
    policies,
    urls,
    ids,
    coverHost: (host) => certificates.coverHost(host),
    tcpAddresses,
    openAddress: (address) => ingress.openAddress(address),
    clock,
    log,
  })
  return {
    ...stores,
    authority,
    node,
    names,
    registry,
    sessions,
    devices,
    webhooks,
    policies,
    ingress,
    buffers,
    proxies,
    limits,
    urls,
    secrets,
    tcpAddresses,
    addrRegistrar,
    cloudEndpoints,
    certificates,
    registrar,
    issuer,
    ids,
    agentIds: new IssuedIds(clock, secrets.secretFor(null, 'ids of agents')),
    dnsAddress,
    exclusive: [
      { release: () => dns?.stop(), reclaim: async () => void (await dns?.start()) },
      // Without the lock another process has the folder.
      new Handover([webhooks, keptNames, keptLimits, devices, stores.database, lock], {
        isChain: true,
      }),
    ],
  }
}

/** The database was damaged at this start, and is whole again. */
async function tellOfHealing(
  { database, events }: GatewayDatabase,
  { clock, log }: Pick<GatewayCoreOptions, 'clock' | 'log'>,
): Promise<void> {
  const { healing, lossProblem } = database.report()
  if (!healing) return
  const { damage, copy, missing } = healing
  const details = {
    damage,
    restored_from: copy,
    missing,
    text: lossProblem ?? 'Nothing is missing.',
  }
  try {
    const event = { at: clock.now(), type: 'storage.healed', ownerId: null, details } as const
    await database.change(() => events.append(event))
  } catch (error) {
    log.warn({ err: error }, 'the event storage.healed was not written')
  }
}

/** The names that people reach the gateway itself by, and that its DNS records lead to. */
function gatewayNames({ cnameBase, agentHost, apiHosts, tcpListen }: GatewayCoreOptions): string[] {
  const targets = ['cname', 'acme'].map((label) => `${label}.${cnameBase}`)
  const hosts = [cnameBase, agentHost, ...apiHosts, tcpListen?.host ?? '']
  const names = [...hosts, ...targets, ...targets.map((target) => `*.${target}`)]
  return names.map((name) => name.toLowerCase()).filter((name) => !findDomainProblem(name))
}

/** Who listens on all addresses of the machine has a name in front of them. */
function tcpAddressesOf(
  { tcpListen: range, cnameBase, clock }: GatewayCoreOptions,
  registry: EndpointRegistry,
  { reservedAddrs }: GatewayDatabase,
): TcpAddresses | undefined {
  if (!range) return undefined
  const host = ['0.0.0.0', '::'].includes(range.host) ? cnameBase : range.host
  const isReserved = (address: string) => reservedAddrs.find(address) !== undefined
  return new TcpAddresses({ range: { ...range, host }, registry, isReserved, clock })
}

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
import { AccountSecrets } from './access/account-secrets.ts'
import { tellOfLostNames } from './access/acl.ts'
import { Authority, watchCredentials } from './access/authority.ts'
import { CredentialIssuer } from './access/credential-issuer.ts'
import type { NameClaims } from './access/name-claims.ts'
import { tellOfOverlaps } from './access/name-rules.ts'
import {
  type CredentialLimits,
  DEFAULT_CREDENTIAL_LIMITS,
  SessionTable,
} from './agents/session-table.ts'
import { openAcme } from './certificates/acme/acme-authority.ts'
import { CertificateKeeper } from './certificates/certificate-keeper.ts'
import { CertificateWatch } from './certificates/certificate-watch.ts'
import { Devices } from './devices/devices.ts'
import { AddrRegistrar, watchAddrs } from './endpoints/addr-registrar.ts'
import type { AwayName } from './endpoints/away-name.ts'
import { CloudEndpoints } from './endpoints/cloud-endpoints.ts'
import { DomainRegistrar, watchDomains } from './endpoints/domain-registrar.ts'
import { EndpointUrls } from './endpoints/endpoint-host.ts'
import { EndpointPolicies, policyReach } from './endpoints/endpoint-policies.ts'
import { PoolAffinity } from './endpoints/endpoint-pool.ts'
import { EndpointRegistry } from './endpoints/endpoint-registry.ts'
import { KeptLimits } from './endpoints/kept-limits.ts'
import { KeptNames } from './endpoints/kept-names.ts'
import { TcpAddresses } from './endpoints/tcp-addresses.ts'
import { Ingress } from './ingress/ingress.ts'
import { AddressOrigins } from './origins/address-origins.ts'
import type { Drain } from './ports/drain.ts'
import type { Membership, OpenRecords } from './ports/membership.ts'
import type { OtherGateways } from './ports/other-gateways.ts'
import { findDomainProblem, isBelow } from './records/domain-name.ts'
import type { GatewayDatabase } from './records/gateway-database.ts'
import { IdSource, IssuedIds } from './records/resource-id.ts'
import { BufferAccount } from './streams/buffer-account.ts'
import { Webhooks } from './webhooks/webhooks.ts'

/** How long exchanges under way may take to end when the gateway stops. */
export const DRAIN_MS = 10_000
const DEFAULT_CNAME_BASE = 'gateway.localhost'

export interface GatewayCoreOptions {
  /** Folder for `gateway.db`, the CA and the certificates; made when missing. */
  readonly dataDir: string
  readonly agentListen: ListenAddress
  readonly httpListen: ListenAddress
  readonly httpsListen: ListenAddress
  /** The ports of TCP endpoints; without them, there are none. */
  readonly tcpListen?: PortRange | undefined
  /** How long a connection to a TCP endpoint may be silent; an hour unless given. */
  readonly tcpIdleMs?: number | undefined
  /** How long a service may take to begin its response; a minute unless given. */
  readonly upstreamTimeoutMs?: number | undefined
  /** How long upgraded connections and response streams may be silent; an hour unless given. */
  readonly idleMs?: number | undefined
  /** Where the management API listens; without it, it is not served. */
  readonly apiListen?: ListenAddress | undefined
  /** Host names of the management API beside `localhost`, its address and all other addresses. */
  readonly apiHosts?: readonly string[]
  /** CNAME targets of reserved domains lie below it; its names have to lead to this gateway. */
  readonly cnameBase?: string
  /** Where certificates are ordered for domains that ask for it; unset: the own CA issues all. */
  readonly acme?: { readonly directoryUrl: string; readonly email: string | undefined } | undefined
  /** Where ACME authorities ask about their challenges; without it, DNS is not answered. */
  readonly dnsListen?: ListenAddress | undefined
  /** Where policies may connect to beside internal endpoints; unless given, nowhere. */
  readonly outboundAllow?: readonly AllowEntry[]
  /** Certificate for the HTTPS ingress; without it the own CA issues one per reserved domain. */
  readonly tls?: { readonly certPath: string; readonly keyPath: string } | undefined
  /** Keys that each rate limit counts apart. */
  readonly rateLimitKeys?: number
  /** Bits of an IPv6 address that rate limits count as one visitor. */
  readonly rateLimitIpv6Prefix?: number
  /** What agents are told about the service. */
  readonly version?: string
  /** Bytes that may wait for slow visitors and devices, of the whole gateway. */
  readonly bufferBytes?: number
  /** Requests wait this long for a disconnected device; 0: no wait. */
  readonly holdMs?: number
  /** Who serves a request to a pool: the least busy member, or for each client address the same. */
  readonly poolAffinity?: 'none' | 'client'
  /** Proxies and load balancers in front, which may name the client. */
  readonly proxies?: ProxyConfig | undefined
  /** Tables in MaxMind's format: where addresses are, and whose; unset: policies cannot ask. */
  readonly geoPath?: string | undefined
  readonly asnPath?: string | undefined
  /** How long exchanges under way may take to end when the gateway stops; 10 s unless given. */
  readonly drainMs?: number
  /** Another process of this gateway ends now: it takes its `drainMs` to let go of its agents. */
  readonly hasPredecessor?: boolean
  readonly credentialLimits?: Partial<CredentialLimits>
  /** Called when the database can be written again, or read, by a new process only. */
  readonly onRestartNeeded?: (reason: string) => void
  readonly log: Logger
  readonly clock: Clock
}

/** What all listeners of the gateway share. */
export interface GatewayCore extends GatewayDatabase {
  readonly authority: Authority
  /** This gateway among others; not started yet. */
  readonly member: Membership
  readonly names: NameClaims
  readonly others: OtherGateways
  readonly drain: Drain
  readonly registry: EndpointRegistry
  readonly sessions: SessionTable
  readonly devices: Devices
  readonly webhooks: Webhooks
  readonly policies: EndpointPolicies
  /** Not started yet. */
  readonly ingress: Ingress
  /** Unsent bytes for slow visitors and devices, for the whole gateway. */
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

/** CNAME targets of reserved domains lie below it. */
export function cnameBaseOf({ cnameBase = DEFAULT_CNAME_BASE }: GatewayCoreOptions): string {
  return cnameBase
}

/**
 * Opens all parts that serve nothing yet, each of what was opened before; the closer closes the newest
 * first. Throws a StartError when a person has to act.
 */
export async function openGatewayCore(
  options: GatewayCoreOptions,
  { records, lock }: { readonly records: OpenRecords; readonly lock: HandedOver },
  closer: Closer,
): Promise<GatewayCore> {
  const { clock } = options
  const { stores } = records
  await tellOfHealing(stores, options)
  const naming = openNaming(options, records)
  const fleet = openFleet(options, naming, closer)
  const { dns, acme, ...secured } = await openCertificates(options, records, naming, closer)
  const registrars = openRegistrars(options, naming, acme !== undefined)
  const core = { ...naming, ...fleet, ...secured, ...registrars }
  followRecords(core)
  const keptNames = openKeptNames(options, core, closer)
  closer.own('cluster membership', naming.member, (it) => it.stop())
  const front = await openFront(options, core, closer)
  const { keptLimits, ...rules } = openPolicies(options, { ...core, ...front }, closer)
  const { ingress, secrets } = front
  return {
    ...core,
    ...front,
    ...rules,
    cloudEndpoints: openCloudEndpoints(options, { ...core, ...rules, ingress }),
    agentIds: new IssuedIds(clock, secrets.secretFor(null, 'ids of agents')),
    exclusive: [
      { release: () => dns?.stop(), reclaim: async () => void (await dns?.start()) },
      // Without the lock another process has the folder.
      new Handover([fleet.webhooks, keptNames, keptLimits, fleet.devices, stores.database, lock], {
        isChain: true,
      }),
    ],
  }
}

/** Who may have which names, which are online, and where. */
function openNaming(options: GatewayCoreOptions, { stores, join: joinAs }: OpenRecords) {
  const { holdMs, poolAffinity, bufferBytes, clock, log } = options
  const authority = new Authority({ ...stores, ownNames: gatewayNames(options), clock })
  const { owners } = authority
  tellOfOverlaps(stores.domains, log)
  tellOfLostNames(stores, owners, log)
  const affinity = poolAffinity === 'client' ? new PoolAffinity() : undefined
  const registry = new EndpointRegistry({ clock, holdMs, affinity, owners })
  const ids = new IdSource(clock)
  const buffers = new BufferAccount(bufferBytes)
  const member = joinAs({ registry, authority, buffers, ids })
  const { names, others, drain } = member
  stores.quotas.countOnline({
    here: (ownerId) => registry.usageOf(ownerId),
    elsewhere: () => names.devicesElsewhere(),
  })
  return { ...stores, authority, registry, ids, buffers, member, names, others, drain }
}

type Naming = ReturnType<typeof openNaming>

/** The devices, their sessions, and what is told of them. */
function openFleet(options: GatewayCoreOptions, naming: Naming, closer: Closer) {
  const { outboundAllow = [], credentialLimits, clock, log } = options
  const { ids, names, others } = naming
  const { duties } = naming.member
  const nodes = {
    self: others.self,
    isShared: others.isShared,
    isThere: (id: string) => others.serves(id),
    isOnDuty: () => duties.isOurs('webhooks'),
  }
  const devices = new Devices({ ...naming, nodes, ids, clock, log })
  closer.own('devices', devices, (it) => it.stop()).start()
  const webhooks = new Webhooks({
    ...naming,
    mayDial: (target) => mayDial(outboundAllow, target),
    clock,
    log,
  })
  closer.own('webhooks', webhooks, (it) => it.stop())
  duties.share('webhooks', webhooks)
  const sessions = new SessionTable({
    limits: { ...DEFAULT_CREDENTIAL_LIMITS, ...credentialLimits },
    watch: devices,
    clock,
  })
  sessions.countElsewhere(names.usage)
  return { devices, webhooks, sessions }
}

async function openCertificates(
  options: GatewayCoreOptions,
  { orders }: OpenRecords,
  naming: Naming,
  closer: Closer,
) {
  const { agentListen, acme, dnsListen, tls, clock, log } = options
  const ordering = { ...options, acme, dnsListen, tls, cnameBase: cnameBaseOf(options) }
  const { authority, dns, dnsAddress } = await openAcme(ordering, orders, closer)
  const { domains, member } = naming
  const agentHost = agentListen.host
  const certificates = closer.own(
    'certificates',
    await CertificateKeeper.open({ ...ordering, agentHost, acme: authority, domains }),
    (it) => it.stop(),
  )
  const watch = new CertificateWatch({
    ...naming,
    statusOf: (domain) => certificates.domains.statusOf(domain),
    ownEndsAt: () => certificates.ownEndsAt,
    clock,
    log,
  })
  closer.own('certificate watch', watch, (it) => it.stop()).start()
  member.duties.share('certificates', watch)
  return { certificates, acme: authority, dns, dnsAddress }
}

function openRegistrars(options: GatewayCoreOptions, naming: Naming, hasAcme: boolean) {
  const { registry, authority, ids, names, domains } = naming
  const { clock } = options
  const { owners } = authority
  const elsewhere = () => names.elsewhere()
  const tcpAddresses = tcpAddressesOf(options, registry, naming)
  const placed = { ...naming, elsewhere, ids, clock }
  return {
    registrar: new DomainRegistrar({ ...placed, store: domains, owners, hasAcme }),
    issuer: new CredentialIssuer({ ...naming, ids, clock }),
    addrRegistrar: new AddrRegistrar({ ...placed, tcpAddresses }),
    tcpAddresses,
  }
}

/** What follows on changes of records: names that may not be had any more are forgotten. */
function followRecords(
  core: Naming & Pick<GatewayCore, 'sessions' | 'certificates' | 'reservedAddrs'>,
): void {
  const { registry, authority, sessions, certificates, domains } = core
  watchDomains(domains, (domain) => {
    void certificates.domains.follow(domain)
    const isBelowIt = ({ host }: AwayName) => host === domain.domain || isBelow(host, domain.domain)
    registry.forgetUnless((name) => !isBelowIt(name) || authority.mayBind(name))
  })
  watchCredentials(core, (id) => {
    sessions.recheck(id)
    registry.forgetUnless((name) => name.credentialId !== id || authority.mayBind(name))
  })
  watchAddrs(core.reservedAddrs, (addr) =>
    registry.forgetUnless(
      (name) => name.protocol !== 'tcp' || name.host !== addr || authority.mayBind(name),
    ),
  )
}

function openKeptNames(
  { dataDir, holdMs, hasPredecessor = false, drainMs = DRAIN_MS, clock, log }: GatewayCoreOptions,
  { registry, sessions, authority }: Pick<GatewayCore, 'registry' | 'sessions' | 'authority'>,
  closer: Closer,
): KeptNames {
  // The process before may need so long to let go of its agents.
  const predecessorMs = hasPredecessor ? drainMs : undefined
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
  return keptNames
}

/** Where visitors come in, and what is known of them. */
async function openFront(
  options: GatewayCoreOptions,
  core: Naming & Pick<GatewayCore, 'certificates' | 'tcpAddresses'>,
  closer: Closer,
) {
  const { dataDir, geoPath, asnPath, tcpListen, httpListen: http, httpsListen: https } = options
  const { tcpIdleMs, upstreamTimeoutMs, idleMs, clock, log } = options
  const { registry, member, buffers, certificates: tls, tcpAddresses } = core
  const addresses = new AddressOrigins({ geoPath, asnPath, clock, log })
  await closer.own('tables of addresses', addresses, (it) => it.stop()).start()
  const secrets = new AccountSecrets(join(dataDir, 'login.key'), log)
  const proxies = options.proxies && new TrustedProxies({ ...options.proxies, log, clock })
  const ingress = new Ingress({
    proxies,
    hasProxyProtocol: options.proxies?.sendProxyProtocol === true,
    registry,
    routes: member.routes,
    ownRoutes: member.ownRoutes,
    askKey: secrets.secretFor(null, 'request depth'),
    peers: member.links,
    addresses,
    http,
    https,
    tls,
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
  return { ingress, secrets, proxies, hasTable }
}

function openPolicies(
  options: GatewayCoreOptions,
  core: Naming &
    Pick<GatewayCore, 'ingress' | 'secrets'> & {
      readonly hasTable: (table: AddressTable) => boolean
    },
  closer: Closer,
) {
  const { dataDir, rateLimitKeys, rateLimitIpv6Prefix: ipv6Prefix, clock, log } = options
  const { outboundAllow = [], httpListen: http, httpsListen: https } = options
  const { registry, member } = core
  const limits = new LimiterTables({ maxKeys: rateLimitKeys, ipv6Prefix, clock, log })
  const reachOf = policyReach({ ...core, registry: member.routes, outboundAllow })
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
  return { limits, policies, keptLimits, urls }
}

function openCloudEndpoints(
  { clock, log }: GatewayCoreOptions,
  core: Naming &
    Pick<GatewayCore, 'certificates' | 'tcpAddresses' | 'policies' | 'urls' | 'ingress'>,
): CloudEndpoints {
  const { certificates, ingress } = core
  return new CloudEndpoints({
    ...core,
    coverHost: (host) => certificates.coverHost(host),
    openAddress: (address) => ingress.openAddress(address),
    clock,
    log,
  })
}

/** The database was damaged at this start, and is whole again. */
async function tellOfHealing(
  { database, events }: GatewayDatabase,
  { clock, log }: GatewayCoreOptions,
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
function gatewayNames(options: GatewayCoreOptions): string[] {
  const { agentListen, apiListen, apiHosts = [], tcpListen } = options
  const base = cnameBaseOf(options)
  const targets = ['cname', 'acme'].map((label) => `${label}.${base}`)
  const listens = [agentListen, apiListen, tcpListen].map((listen) => listen?.host ?? '')
  const names = [base, ...listens, ...apiHosts, ...targets, ...targets.map((it) => `*.${it}`)]
  return names.map((name) => name.toLowerCase()).filter((name) => !findDomainProblem(name))
}

/** A gateway that listens on all addresses of the machine has a name in front of them. */
function tcpAddressesOf(
  options: GatewayCoreOptions,
  registry: EndpointRegistry,
  { reservedAddrs }: GatewayDatabase,
): TcpAddresses | undefined {
  const { tcpListen: range, clock } = options
  if (!range) return undefined
  const host = ['0.0.0.0', '::'].includes(range.host) ? cnameBaseOf(options) : range.host
  const isReserved = (address: string) => reservedAddrs.find(address) !== undefined
  return new TcpAddresses({ range: { ...range, host }, registry, isReserved, clock })
}

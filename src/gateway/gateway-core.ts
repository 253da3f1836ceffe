import { join } from 'node:path'
import type { Clock } from '../base/clock.ts'
import type { Closer } from '../base/closer.ts'
import { type HandedOver, Handover } from '../base/handover.ts'
import type { ListenAddress } from '../base/listen-address.ts'
import type { Logger } from '../base/logger.ts'
import { isAnyHost, machineAddresses } from '../base/net/public-names.ts'
import { TrustedProxies } from '../base/net/trusted-proxies.ts'
import type { AddressTable } from '../policy/exchange/address-tables.ts'
import { LimiterTables } from '../policy/limit/limiter-tables.ts'
import { type DialTarget, mayDial } from '../policy/outbound/outbound-allow.ts'
import { preparePolicies } from '../policy/policy-language.ts'
import type { GatewaySettings } from '../settings/gateway-settings.ts'
import { AccountSecrets } from './access/account-secrets.ts'
import { tellOfLostNames } from './access/acl.ts'
import { Authority, watchCredentials } from './access/authority.ts'
import { CredentialIssuer } from './access/credential-issuer.ts'
import { SecretAccess } from './access/endpoint-secrets.ts'
import type { NameClaims } from './access/name-claims.ts'
import { tellOfOverlaps, tellOfRefusedDomains } from './access/name-rules.ts'
import { SECRETS_KEY, type SealedValue, SecretSeal } from './access/secret-seal.ts'
import {
  type CredentialLimits,
  DEFAULT_CREDENTIAL_LIMITS,
  SessionTable,
} from './agents/session-table.ts'
import { openAcme } from './certificates/acme/acme-authority.ts'
import type { ChallengeAnswers } from './certificates/acme/challenge-answers.ts'
import { OrderGates } from './certificates/acme/order-gate.ts'
import { OwnAddresses } from './certificates/acme/own-addresses.ts'
import { CertificateKeeper } from './certificates/certificate-keeper.ts'
import { CertificateWatch } from './certificates/certificate-watch.ts'
import type { OnDemand } from './certificates/domain-certificates.ts'
import { checkCovers } from './certificates/uploaded-certificate.ts'
import type { DisconnectedName } from './endpoints/disconnected-name.ts'
import { EndpointUrls } from './endpoints/endpoint-host.ts'
import { EndpointPolicies, policyReach } from './endpoints/endpoint-policies.ts'
import { PoolAffinity } from './endpoints/endpoint-pool.ts'
import { EndpointRegistry } from './endpoints/endpoint-registry.ts'
import { KeptLimits } from './endpoints/kept-limits.ts'
import { KeptNames } from './endpoints/kept-names.ts'
import { TcpAddresses } from './endpoints/tcp-addresses.ts'
import { OwnPages } from './error-pages/own-pages.ts'
import { readPageFolder } from './error-pages/page-folder.ts'
import type { GatewayDatabase, OpenRecords } from './gateway-database.ts'
import { Ingress } from './ingress/ingress.ts'
import { AddressOrigins } from './origins/address-origins.ts'
import type { Drain } from './ports/drain.ts'
import type { Membership } from './ports/membership.ts'
import type { OtherGateways } from './ports/other-gateways.ts'
import { tellOfExceededQuotas } from './records/account-quotas.ts'
import { findDomainProblem, isBelow } from './records/domain-name.ts'
import type { ChallengeMethod } from './records/reserved-domain-store.ts'
import { IdSource, IssuedIds } from './records/resource-id.ts'
import { Devices } from './resources/devices/devices.ts'
import { CloudEndpoints } from './resources/endpoints/cloud-endpoints.ts'
import { IpPolicyRanges } from './resources/ip-policies/ip-policy-ranges.ts'
import { GatewayWatch } from './resources/nodes/gateway-watch.ts'
import { Delivery } from './resources/notifications/delivery.ts'
import { Mailer } from './resources/notifications/mailer.ts'
import { Notifications } from './resources/notifications/notifications.ts'
import { AddrRegistrar, watchAddrs } from './resources/reserved-names/addr-registrar.ts'
import { DomainRegistrar, watchDomains } from './resources/reserved-names/domain-registrar.ts'
import { Webhooks } from './resources/webhooks/webhooks.ts'
import { BufferAccount } from './streams/buffer-account.ts'

export interface GatewayCoreOptions extends GatewaySettings {
  /** Version of the service, as reported to agents. */
  readonly version?: string
  /** Another process of this gateway is ending. It needs up to `drainMs` to release its agents. */
  readonly hasPredecessor?: boolean
  readonly credentialLimits?: Partial<CredentialLimits>
  /** Called if only a new process can write or read the database again. */
  readonly onRestartNeeded?: (reason: string) => void
  readonly log: Logger
  readonly clock: Clock
}

/** Parts that all listeners of the gateway share. */
export interface GatewayCore extends GatewayDatabase {
  readonly authority: Authority
  /** Membership of this gateway in the cluster; not started yet. */
  readonly member: Membership
  readonly names: NameClaims
  readonly others: OtherGateways
  readonly drain: Drain
  readonly registry: EndpointRegistry
  readonly sessions: SessionTable
  readonly devices: Devices
  readonly webhooks: Webhooks
  readonly notifications: Notifications
  readonly policies: EndpointPolicies
  /** Not started yet. */
  readonly ingress: Ingress
  /** Unsent bytes for slow visitors and devices, for the whole gateway. */
  readonly buffers: BufferAccount
  /** Undefined if no proxy is trusted. */
  readonly proxies: TrustedProxies | undefined
  /** State that the rate limits of all policies share. */
  readonly limits: LimiterTables
  readonly urls: EndpointUrls
  readonly secrets: AccountSecrets
  /** Seals secrets of policies and keys of uploaded certificates. */
  readonly seal: SecretSeal
  readonly secretAccess: SecretAccess
  readonly tcpAddresses: TcpAddresses | undefined
  readonly addrRegistrar: AddrRegistrar
  readonly cloudEndpoints: CloudEndpoints
  readonly certificates: CertificateKeeper
  readonly registrar: DomainRegistrar
  readonly issuer: CredentialIssuer
  readonly ids: IdSource
  /** Ids of the sessions and endpoints of agents. */
  readonly agentIds: IssuedIds
  readonly dnsAddress: ListenAddress | undefined
  /** Resources that only one process may have, in the order of their release. */
  readonly exclusive: readonly HandedOver[]
}

/**
 * Opens all parts that serve no requests yet; later parts use earlier parts. The closer closes the newest
 * part first. Throws a StartError if a person must act.
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
  const { dns, ...secured } = await openCertificates(options, records, naming, closer)
  const registrars = openRegistrars(options, naming)
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
      // The lock is last, because it releases the directory to another process.
      new Handover(
        [
          ...[fleet.webhooks, fleet.notifications, keptNames, keptLimits, fleet.devices],
          ...[stores.database, lock],
        ],
        { isChain: true },
      ),
    ],
  }
}

/** Opens the parts that know names: who may have them, which are online, and at which node. */
function openNaming(options: GatewayCoreOptions, { stores, join: joinAs }: OpenRecords) {
  const { holdMs, poolAffinity, bufferBytes, clock, log } = options
  const authority = new Authority({ ...stores, ownNames: gatewayNames(options), clock })
  const { owners } = authority
  tellOfOverlaps(stores.domains, log)
  tellOfRefusedDomains(stores.domains, owners, log)
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
  tellOfExceededQuotas(stores, log)
  const seal = new SecretSeal({
    path: join(options.dataDir, SECRETS_KEY),
    isShared: others.isShared,
    sample: () => sealedSample(stores),
    log,
  })
  return { ...stores, authority, registry, ids, buffers, seal, member, names, others, drain }
}

/** A secret, or the key of a certificate. */
function sealedSample({
  vaultSecrets,
  tlsCertificates,
}: Pick<GatewayDatabase, 'vaultSecrets' | 'tlsCertificates'>): SealedValue | undefined {
  const [secret] = vaultSecrets.page({ limit: 1 })
  if (secret) return { sealed: secret.sealed, place: secret }
  const [certificate] = tlsCertificates.page({ limit: 1 })
  if (!certificate) return undefined
  return { sealed: certificate.sealedKey, place: { certificateId: certificate.id } }
}

type Naming = ReturnType<typeof openNaming>

/** Opens devices, their sessions, and webhooks and notifications for their events. */
function openFleet(options: GatewayCoreOptions, naming: Naming, closer: Closer) {
  const { outboundAllow, mail, credentialLimits, clock, log } = options
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
  const reach = { mayDial: (target: DialTarget) => mayDial(outboundAllow, target), log }
  const webhooks = new Webhooks({ ...naming, ...reach, clock })
  closer.own('webhooks', webhooks, (it) => it.stop())
  duties.share('webhooks', webhooks)
  const delivery = new Delivery({ ...reach, mailer: mail && new Mailer(mail), clock })
  const notifications = new Notifications({ ...naming, delivery, clock, log })
  closer.own('notifications', notifications, (it) => it.stop())
  duties.share('notifications', notifications)
  const gatewayWatch = new GatewayWatch({ ...naming, clock, log })
  closer.own('gateway watch', gatewayWatch, (it) => it.stop()).start()
  duties.share('lost gateways', gatewayWatch)
  const sessions = new SessionTable({
    limits: { ...DEFAULT_CREDENTIAL_LIMITS, ...credentialLimits },
    watch: devices,
    clock,
  })
  sessions.countElsewhere(names.usage)
  return { devices, webhooks, notifications, sessions }
}

async function openCertificates(
  options: GatewayCoreOptions,
  { orders }: OpenRecords,
  naming: Naming,
  closer: Closer,
) {
  const { agentListen, clock, log } = options
  const acme = await openAcme(options, orders, closer)
  const { domains, member, seal } = naming
  const agentHost = agentListen.host
  const onDemand = acme.authority && openOnDemand(options, naming)
  const certificates = closer.own(
    'certificates',
    await CertificateKeeper.open({
      ...options,
      ...{
        agentHost,
        acme: acme.authority,
        onDemand,
        domains,
        uploads: naming.tlsCertificates,
        seal,
      },
    }),
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
  const { challenges, dns, dnsAddress } = acme
  return { certificates, challenges, dns, dnsAddress }
}

/** Opens the checks before orders of certificates for single names. */
function openOnDemand(options: GatewayCoreOptions, naming: Naming): OnDemand {
  const { dnsServers: servers, clock } = options
  const { member, authority, certificateOrders: orders, others } = naming
  const hosts = () => ownHosts(options, others)
  const addresses = new OwnAddresses({ hosts, servers, clock })
  return {
    gates: new OrderGates({ orders, addresses, clock }),
    holderOf: (host) => {
      const found = member.routes.match(host, 'https')
      // TLS endpoints have certificates of their own, and a disconnected device may not come back.
      const isOnline = found?.protocol === 'https' && found.type !== 'disconnected'
      return isOnline && found.host === host ? found : undefined
    },
    reservationOf: (host) => authority.owners.reservationOf(host),
  }
}

/** Names and addresses by which visitors reach this gateway, or another gateway of the cluster. */
function ownHosts(options: GatewayCoreOptions, others: OtherGateways): string[] {
  const { publicNames, cnameBase, httpListen, httpsListen } = options
  const listens = [httpListen.host, httpsListen.host]
  const machine = listens.some(isAnyHost) ? machineAddresses() : []
  const agents = others.all().flatMap(({ agentAddresses }) => agentAddresses)
  const given = [...publicNames.map(({ host }) => host), ...agents.map(hostOf), cnameBase]
  const isUseful = (host: string) => !isAnyHost(host) && !host.endsWith('.localhost')
  return [...given, ...listens, ...machine].filter(isUseful)
}

/** Host of `host:port`. */
const hostOf = (address: string) => address.replace(/:\d+$/, '').replace(/^\[|\]$/g, '')

function openRegistrars(options: GatewayCoreOptions, naming: Naming) {
  const { registry, authority, ids, names, domains } = naming
  const { clock } = options
  const { owners } = authority
  const elsewhere = () => names.elsewhere()
  const challenges = challengesOf(options)
  const tcpAddresses = tcpAddressesOf(options, registry, naming)
  const placed = { ...naming, elsewhere, ids, clock }
  return {
    registrar: new DomainRegistrar({ ...placed, store: domains, owners, challenges, checkCovers }),
    issuer: new CredentialIssuer({ ...naming, ids, clock }),
    addrRegistrar: new AddrRegistrar({ ...placed, tcpAddresses }),
    tcpAddresses,
  }
}

/** Ways to certificates of the authority, the default first. */
function challengesOf({ acme, dnsListen }: GatewayCoreOptions): ChallengeMethod[] {
  if (!acme) return []
  return dnsListen ? ['dns-01', 'on-demand'] : ['on-demand']
}

/** Reacts to changes of records: forgets names that are no longer allowed. */
function followRecords(
  core: Naming & Pick<GatewayCore, 'sessions' | 'certificates' | 'reservedAddrs'>,
): void {
  const { registry, authority, sessions, certificates, domains } = core
  watchDomains(domains, (domain) => {
    void certificates.domains.follow(domain)
    const isBelowIt = ({ host }: DisconnectedName) =>
      host === domain.domain || isBelow(host, domain.domain)
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
  { dataDir, holdMs, hasPredecessor = false, drainMs, clock, log }: GatewayCoreOptions,
  { registry, sessions, authority }: Pick<GatewayCore, 'registry' | 'sessions' | 'authority'>,
  closer: Closer,
): KeptNames {
  // The previous process may need this long to release its agents.
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

/** Opens the ingress for visitors and the data about their addresses. */
async function openFront(
  options: GatewayCoreOptions,
  core: Naming &
    Pick<GatewayCore, 'certificates' | 'tcpAddresses'> & {
      readonly challenges: ChallengeAnswers | undefined
    },
  closer: Closer,
) {
  const { dataDir, tcpListen, httpListen: http, httpsListen: https, clock, log } = options
  const { registry, member, buffers, certificates: tls, tcpAddresses } = core
  const addresses = new AddressOrigins({ ...options.origins, clock, log })
  await closer.own('tables of addresses', addresses, (it) => it.stop()).start()
  const secrets = new AccountSecrets(join(dataDir, 'login.key'), log)
  const proxies = options.proxies && new TrustedProxies({ ...options.proxies, log, clock })
  const errorPages = new OwnPages({
    store: core.errorPageStore,
    domains: core.domains,
    reservationOf: (host) => core.authority.owners.reservationOf(host),
    folder: readPageFolder(options.errorPagesPath),
  })
  const ingress = new Ingress({
    errorPages,
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
    challenges: core.challenges,
    tcp: tcpListen && tcpAddresses && { listenHost: tcpListen.host, addresses: tcpAddresses },
    limits: options.timeouts,
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
  const { dataDir, outboundAllow, httpListen: http, httpsListen: https, clock, log } = options
  const { registry, member } = core
  const limits = new LimiterTables({ ...options.rateLimits, clock, log })
  const secretAccess = new SecretAccess({ ...core, owners: core.authority.owners })
  const reachOf = policyReach({
    ...core,
    secretAccess,
    ranges: new IpPolicyRanges(core),
    registry: member.routes,
    outboundAllow,
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
  return { limits, policies, keptLimits, urls, secretAccess }
}

function openCloudEndpoints(
  { clock, log }: GatewayCoreOptions,
  core: Naming &
    Pick<GatewayCore, 'certificates' | 'tcpAddresses' | 'policies' | 'urls' | 'ingress'>,
): CloudEndpoints {
  const { certificates, ingress } = core
  return new CloudEndpoints({
    ...core,
    coverHost: (host, ownerId) => certificates.coverHost(host, ownerId),
    openAddress: (address) => ingress.openAddress(address),
    clock,
    log,
  })
}

/** Records that the database was damaged at this start and is repaired. */
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

/** Names of the gateway itself: for people, and as targets of DNS records. */
function gatewayNames(options: GatewayCoreOptions): string[] {
  const { agentListen, apiListen, apiHosts, tcpListen, cnameBase: base, publicNames } = options
  const targets = ['cname', 'acme'].map((label) => `${label}.${base}`)
  const listens = [agentListen, apiListen, tcpListen].map((listen) => listen?.host ?? '')
  const given = [...publicNames.map(({ host }) => host), ...apiHosts]
  const names = [base, ...listens, ...given, ...targets, ...targets.map((it) => `*.${it}`)]
  return names.map((name) => name.toLowerCase()).filter((name) => !findDomainProblem(name))
}

/** If the gateway listens on all addresses, the TCP addresses need a host name. */
function tcpAddressesOf(
  options: GatewayCoreOptions,
  registry: EndpointRegistry,
  { reservedAddrs }: GatewayDatabase,
): TcpAddresses | undefined {
  const { tcpListen: range, tcpHost, clock } = options
  if (!range) return undefined
  const host = isAnyHost(range.host) ? tcpHost : range.host
  const isReserved = (address: string) => reservedAddrs.find(address) !== undefined
  return new TcpAddresses({ range: { ...range, host }, registry, isReserved, clock })
}

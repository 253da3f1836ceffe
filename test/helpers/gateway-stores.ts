import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { AccountSecrets } from '../../src/gateway/access/account-secrets.ts'
import { Authority, watchCredentials } from '../../src/gateway/access/authority.ts'
import { CredentialIssuer } from '../../src/gateway/access/credential-issuer.ts'
import { SecretAccess } from '../../src/gateway/access/endpoint-secrets.ts'
import { SECRETS_KEY, SecretSeal } from '../../src/gateway/access/secret-seal.ts'
import { checkCovers } from '../../src/gateway/certificates/uploaded-certificate.ts'
import { EndpointUrls } from '../../src/gateway/endpoints/endpoint-host.ts'
import { EndpointPolicies, policyReach } from '../../src/gateway/endpoints/endpoint-policies.ts'
import { EndpointRegistry } from '../../src/gateway/endpoints/endpoint-registry.ts'
import { TcpAddresses } from '../../src/gateway/endpoints/tcp-addresses.ts'
import { gatewayStores, openGatewayDatabase } from '../../src/gateway/gateway-database.ts'
import { onlyMember } from '../../src/gateway/ports/only-gateway.ts'
import { IdSource } from '../../src/gateway/records/resource-id.ts'
import { Devices } from '../../src/gateway/resources/devices/devices.ts'
import { CloudEndpoints } from '../../src/gateway/resources/endpoints/cloud-endpoints.ts'
import { IpPolicyRanges } from '../../src/gateway/resources/ip-policies/ip-policy-ranges.ts'
import { Delivery } from '../../src/gateway/resources/notifications/delivery.ts'
import type { Mailer } from '../../src/gateway/resources/notifications/mailer.ts'
import { Notifications } from '../../src/gateway/resources/notifications/notifications.ts'
import {
  AddrRegistrar,
  watchAddrs,
} from '../../src/gateway/resources/reserved-names/addr-registrar.ts'
import {
  DomainRegistrar,
  watchDomains,
} from '../../src/gateway/resources/reserved-names/domain-registrar.ts'
import { Webhooks } from '../../src/gateway/resources/webhooks/webhooks.ts'
import type { YamlReader } from '../../src/policy/document/yaml-reader.ts'
import type { PolicyReach } from '../../src/policy/outbound/outbound-allow.ts'
import type { Database } from '../../src/store/database.ts'
import { captureLog } from './captured-log.ts'
import { ManualClock } from './manual-clock.ts'
import { temporaryFolder } from './temporary-folder.ts'

/** The gateway's stores and those who change them, on a real database in a folder of its own. */
export function openGatewayStores(
  folder = temporaryFolder(),
  {
    hasAcme = false,
    mayDial = () => false,
    now,
    database,
    ownNames,
    sharesClock = false,
    yaml,
    mailer,
  }: {
    hasAcme?: boolean
    mayDial?: NonNullable<PolicyReach['mayDial']>
    now?: number
    /** Instead of one in the folder. */
    database?: Database
    /** Names of the gateway itself. */
    ownNames?: readonly string[]
    /** The registry holds names by the clock of the test. */
    sharesClock?: boolean
    /** Instead of one with the built thread. */
    yaml?: YamlReader
    mailer?: Mailer
  } = {},
) {
  const clock = new ManualClock(now)
  const captured = captureLog()
  const { log } = captured
  const options = { log, clock }
  const stores = database ? gatewayStores(database, options) : openGatewayDatabase(folder, options)
  onTestFinished(() => stores.database.close())
  const ids = new IdSource(clock)
  const authority = new Authority({ ...stores, ownNames, clock })
  const { owners } = authority
  const registry = new EndpointRegistry({ owners, ...(sharesClock && { clock }) })
  const devices = new Devices({ ...stores, ids, clock, log })
  devices.start()
  const webhooks = new Webhooks({ ...stores, ids, mayDial, clock, log })
  webhooks.start()
  onTestFinished(() => webhooks.stop())
  const delivery = new Delivery({ mailer, mayDial, clock, log })
  const notifications = new Notifications({ ...stores, ids, delivery, clock, log })
  notifications.reclaim()
  onTestFinished(() => notifications.stop())
  onTestFinished(() => devices.stop())
  const changedCredentials: string[] = []
  const changedDomains: string[] = []
  const changedAddrs: string[] = []
  const issuer = new CredentialIssuer({ ...stores, ids, clock })
  watchCredentials(stores, (id) => changedCredentials.push(id))
  const registrar = new DomainRegistrar({
    ...stores,
    store: stores.domains,
    owners,
    registry,
    ids,
    clock,
    challenges: hasAcme ? ['dns-01', 'on-demand'] : [],
    checkCovers,
  })
  watchDomains(stores.domains, ({ domain }) => changedDomains.push(domain))
  const addrRegistrar = new AddrRegistrar({
    ...stores,
    registry,
    tcpAddresses: new TcpAddresses({
      range: { host: 'gw.site.test', first: 20_000, last: 20_007 },
      registry,
      isReserved: (address) => stores.reservedAddrs.find(address) !== undefined,
      clock,
    }),
    ids,
    clock,
  })
  watchAddrs(stores.reservedAddrs, (addr) => changedAddrs.push(addr))
  const secrets = new AccountSecrets(join(folder, 'login.key'), log)
  const path = join(folder, SECRETS_KEY)
  const sample = () => {
    const [secret] = stores.vaultSecrets.page({ limit: 1 })
    return secret && { sealed: secret.sealed, place: secret }
  }
  const seal = new SecretSeal({ path, isShared: false, sample, log })
  const secretAccess = new SecretAccess({ ...stores, owners, seal })
  const reachOf = policyReach({
    ranges: new IpPolicyRanges(stores),
    ...stores,
    secretAccess,
    secrets,
    registry,
    // Whoever tests what policies ask over an ingress brings one.
    ingress: { connectInternal: () => undefined, sealDepth: String },
    outboundAllow: [],
  })
  const policies = new EndpointPolicies({ reachOf, clock, log, ...(yaml && { yaml }) })
  const member = onlyMember({ database: stores.database, registry, version: '0.0.0-test' })
  const urls = new EndpointUrls({ http: 8080, https: 8443 })
  const coveredHosts: string[] = []
  const cloudEndpoints = new CloudEndpoints({
    ...stores,
    registry,
    authority,
    names: member.names,
    policies,
    urls,
    ids,
    coverHost: async (host) => {
      coveredHosts.push(host)
    },
    tcpAddresses: undefined,
    openAddress: async () => {},
    clock,
    log,
  })
  return {
    ...stores,
    folder,
    log,
    clock,
    ids,
    registry,
    devices,
    webhooks,
    notifications,
    issuer,
    registrar,
    addrRegistrar,
    changedAddrs,
    authority,
    policies,
    secrets,
    seal,
    secretAccess,
    member,
    names: member.names,
    others: member.others,
    drain: member.drain,
    urls,
    cloudEndpoints,
    coveredHosts,
    captured,
    changedCredentials,
    changedDomains,
  }
}

import { join } from 'node:path'
import type { Clock } from '../base/clock.ts'
import type { Closer } from '../base/closer.ts'
import type { Logger } from '../base/logger.ts'
import { agentAddresses } from '../base/net/public-names.ts'
import type { GatewaySettings } from '../settings/gateway-settings.ts'
import { AuditTrail, auditMigrations } from '../store/audit-trail.ts'
import { type Database, openDatabase } from '../store/database.ts'
import type { Migration } from '../store/migrations.ts'
import {
  CERTIFICATE_ORDER_MIGRATIONS,
  CertificateOrderStore,
} from './certificates/acme/certificate-order-store.ts'
import type { OrderBook } from './certificates/acme/order-book.ts'
import type { Membership, Places } from './ports/membership.ts'
import { onlyMember } from './ports/only-gateway.ts'
import { AccountQuotas, QUOTA_MIGRATIONS } from './records/account-quotas.ts'
import { API_KEY_MIGRATIONS, ApiKeyStore } from './records/api-key-store.ts'
import { BOT_USER_MIGRATIONS, BotUserStore } from './records/bot-user-store.ts'
import { CONSOLE_SESSION_MIGRATIONS, ConsoleSessionStore } from './records/console-session-store.ts'
import { CREDENTIAL_MIGRATIONS, CredentialStore } from './records/credential-store.ts'
import { EVENT_MIGRATIONS, EventStore } from './records/event-store.ts'
import { RESERVED_ADDR_MIGRATIONS, ReservedAddrStore } from './records/reserved-addr-store.ts'
import { RESERVED_DOMAIN_MIGRATIONS, ReservedDomainStore } from './records/reserved-domain-store.ts'
import { TLS_CERTIFICATE_MIGRATIONS, TlsCertificateStore } from './records/tls-certificate-store.ts'
import { VAULT_MIGRATIONS, VaultSecretStore, VaultStore } from './records/vault-store.ts'
import {
  CERTIFICATE_AUTHORITY_MIGRATIONS,
  CertificateAuthorityStore,
} from './resources/certificate-authorities/certificate-authority-store.ts'
import { DEVICE_MIGRATIONS, DeviceStore } from './resources/devices/device-store.ts'
import {
  CLOUD_ENDPOINT_MIGRATIONS,
  CloudEndpointStore,
} from './resources/endpoints/cloud-endpoint-store.ts'
import { ERROR_PAGE_MIGRATIONS, ErrorPageStore } from './resources/error-pages/error-page-store.ts'
import {
  INVITE_MIGRATIONS,
  InviteClaimStore,
  InviteStore,
} from './resources/invites/invite-store.ts'
import {
  IP_POLICY_MIGRATIONS,
  IP_POLICY_RULE_MIGRATIONS,
  IpPolicyRuleStore,
  IpPolicyStore,
} from './resources/ip-policies/ip-policy-store.ts'
import {
  ChannelStateStore,
  NOTIFICATION_MIGRATIONS,
  NotificationChannelStore,
} from './resources/notifications/channel-store.ts'
import { NoticeStore } from './resources/notifications/notice-store.ts'
import { WEBHOOK_MIGRATIONS, WebhookStore } from './resources/webhooks/webhook-store.ts'

/** `dagw`: the mark in the header of the gateway's database file. */
export const GATEWAY_APPLICATION_ID = 0x64_61_67_77

const AUDIT_BOUNDS = { changes: 10_000, refusals: 2_000 }

export const GATEWAY_MIGRATIONS: readonly Migration[] = [
  ...RESERVED_DOMAIN_MIGRATIONS,
  ...BOT_USER_MIGRATIONS,
  ...CREDENTIAL_MIGRATIONS,
  ...API_KEY_MIGRATIONS,
  ...IP_POLICY_MIGRATIONS,
  ...IP_POLICY_RULE_MIGRATIONS,
  ...CLOUD_ENDPOINT_MIGRATIONS,
  ...RESERVED_ADDR_MIGRATIONS,
  ...DEVICE_MIGRATIONS,
  ...EVENT_MIGRATIONS,
  ...WEBHOOK_MIGRATIONS,
  ...CONSOLE_SESSION_MIGRATIONS,
  ...QUOTA_MIGRATIONS,
  ...CERTIFICATE_ORDER_MIGRATIONS,
  ...INVITE_MIGRATIONS,
  ...ERROR_PAGE_MIGRATIONS,
  ...VAULT_MIGRATIONS,
  ...TLS_CERTIFICATE_MIGRATIONS,
  ...CERTIFICATE_AUTHORITY_MIGRATIONS,
  ...NOTIFICATION_MIGRATIONS,
  ...auditMigrations(AUDIT_BOUNDS),
]

/** The gateway's database with the stores of all its tables. */
export interface GatewayDatabase {
  readonly database: Database
  /** Changes with their actors. */
  readonly trail: AuditTrail
  readonly domains: ReservedDomainStore
  readonly reservedAddrs: ReservedAddrStore
  readonly botUsers: BotUserStore
  /** How much each bot user may have. */
  readonly quotas: AccountQuotas
  readonly credentials: CredentialStore
  readonly apiKeys: ApiKeyStore
  readonly errorPageStore: ErrorPageStore
  readonly ipPolicies: IpPolicyStore
  readonly ipPolicyRules: IpPolicyRuleStore
  readonly cloudEndpointStore: CloudEndpointStore
  /** Secrets for policies. */
  readonly vaults: VaultStore
  readonly vaultSecrets: VaultSecretStore
  readonly deviceStore: DeviceStore
  /** Invitations for devices. */
  readonly inviteStore: InviteStore
  /** Devices that have joined with them. */
  readonly inviteClaims: InviteClaimStore
  /** Certificates that were uploaded for reserved domains. */
  readonly tlsCertificates: TlsCertificateStore
  /** CAs of client certificates. */
  readonly certificateAuthorities: CertificateAuthorityStore
  /** Events for webhooks. */
  readonly events: EventStore
  readonly webhookStore: WebhookStore
  /** Notification channels, their states, and parts of their next messages. */
  readonly channelStore: NotificationChannelStore
  readonly channelStates: ChannelStateStore
  readonly notices: NoticeStore
  /** Orders of certificates on demand. */
  readonly certificateOrders: CertificateOrderStore
  /** Sessions of several gateways; a gateway without others keeps them in memory. */
  readonly consoleSessionStore: ConsoleSessionStore
}

export interface GatewayDatabaseOptions {
  readonly log: Logger
  readonly clock: Clock
  /** Called when only a new process can write again. */
  readonly onRestartNeeded?: ((reason: string) => void) | undefined
}

/** Opens `gateway.db` in a folder. Throws a StartError when a person has to act. */
export function openGatewayDatabase(
  folder: string,
  { log, clock, onRestartNeeded = () => {} }: GatewayDatabaseOptions,
): GatewayDatabase {
  const database = openDatabase({
    path: join(folder, 'gateway.db'),
    migrations: GATEWAY_MIGRATIONS,
    applicationId: GATEWAY_APPLICATION_ID,
    onRestartNeeded,
    log,
    clock,
  })
  return gatewayStores(database, { log, clock })
}

/** The stores of an open database, on any storage. */
export function gatewayStores(
  database: Database,
  { log, clock, node }: Pick<GatewayDatabaseOptions, 'log' | 'clock'> & { node?: string },
): GatewayDatabase {
  const trail = new AuditTrail({ database, log, clock, node })
  void trail.start()
  const events = new EventStore(database)
  const webhookStore = new WebhookStore(database)
  const channelStates = new ChannelStateStore(database)
  events.goOnBehind(Math.max(webhookStore.farthest, channelStates.farthest))
  const botUsers = new BotUserStore(database)
  return {
    database,
    trail,
    domains: new ReservedDomainStore(database),
    reservedAddrs: new ReservedAddrStore(database),
    botUsers,
    quotas: new AccountQuotas(database, botUsers),
    credentials: new CredentialStore(database),
    apiKeys: new ApiKeyStore(database),
    errorPageStore: new ErrorPageStore(database),
    ipPolicies: new IpPolicyStore(database),
    ipPolicyRules: new IpPolicyRuleStore(database),
    cloudEndpointStore: new CloudEndpointStore(database),
    vaults: new VaultStore(database),
    vaultSecrets: new VaultSecretStore(database),
    deviceStore: new DeviceStore(database),
    inviteStore: new InviteStore(database),
    inviteClaims: new InviteClaimStore(database),
    tlsCertificates: new TlsCertificateStore(database),
    certificateAuthorities: new CertificateAuthorityStore(database),
    events,
    webhookStore,
    channelStore: new NotificationChannelStore(database),
    channelStates,
    notices: new NoticeStore(database),
    certificateOrders: new CertificateOrderStore(database),
    consoleSessionStore: new ConsoleSessionStore(database),
  }
}

/** Records of a gateway, before it serves requests. */
export interface OpenRecords {
  readonly stores: GatewayDatabase
  /** Certificate orders that several gateways share; undefined for a single gateway. */
  readonly orders: OrderBook | undefined
  /** Makes the name of an object unique to this gateway, so that it only replaces its own lost objects. */
  named(text: string): string
  /** Call it once, before the gateway serves requests. */
  join(places: Places): Membership
}

type RecordsSettings = Pick<
  GatewaySettings,
  'dataDir' | 'agentListen' | 'publicNames' | 'httpListen' | 'httpsListen' | 'holdMs' | 'acme'
>

export interface RecordsOptions extends RecordsSettings {
  readonly version?: string | undefined
  readonly onRestartNeeded?: ((reason: string) => void) | undefined
  readonly log: Logger
  readonly clock: Clock
}

/** Opens the records of a single gateway. Throws a StartError if a person must act. */
export function openOnlyGateway(options: RecordsOptions, closer: Closer): OpenRecords {
  const { dataDir, version = '', agentListen, publicNames } = options
  const addresses = agentAddresses(agentListen, publicNames)
  const stores = openGatewayDatabase(dataDir, options)
  const { database } = stores
  closer.own('gateway database', database, (it) => it.close())
  return {
    stores,
    orders: undefined,
    named: (text) => text,
    join: ({ registry }) => onlyMember({ database, registry, version, addresses }),
  }
}

import { mkdirSync } from 'node:fs'
import type { Clock } from '../base/clock.ts'
import type { Closer } from '../base/closer.ts'
import type { Logger } from '../base/logger.ts'
import {
  type CredentialLimits,
  DEFAULT_CREDENTIAL_LIMITS,
  SessionTable,
} from './agents/session-table.ts'
import { Authority } from './authority.ts'
import { CertificateKeeper } from './certificate-keeper.ts'
import { CredentialIssuer } from './credential-issuer.ts'
import { DomainRegistrar } from './domain-registrar.ts'
import { EndpointRegistry } from './endpoint-registry.ts'
import { type GatewayDatabase, openGatewayDatabase } from './gateway-database.ts'
import { IdSource } from './resource-id.ts'

export interface GatewayCoreOptions {
  /** Folder for `gateway.db`, the CA and the certificates; made when missing. */
  readonly dataDir: string
  /** Where agents connect: their server certificate names it. */
  readonly agentHost: string
  readonly tls: { readonly certPath: string; readonly keyPath: string } | undefined
  readonly credentialLimits: Partial<CredentialLimits> | undefined
  readonly log: Logger
  readonly clock: Clock
}

/** What all entrances of the gateway share. */
export interface GatewayCore extends GatewayDatabase {
  readonly authority: Authority
  readonly registry: EndpointRegistry
  readonly sessions: SessionTable
  readonly certificates: CertificateKeeper
  readonly registrar: DomainRegistrar
  readonly issuer: CredentialIssuer
  readonly ids: IdSource
}

/** Opens the data folder. Throws a StartError when a person has to act. */
export async function openGatewayCore(
  options: GatewayCoreOptions,
  closer: Closer,
): Promise<GatewayCore> {
  const { dataDir, credentialLimits, clock, log } = options
  mkdirSync(dataDir, { recursive: true, mode: 0o700 })
  const stores = openGatewayDatabase(dataDir, log, clock)
  closer.own('gateway database', stores.database, (it) => it.close())
  const registry = new EndpointRegistry()
  const ids = new IdSource(clock)
  const sessions = new SessionTable({
    limits: { ...DEFAULT_CREDENTIAL_LIMITS, ...credentialLimits },
    clock,
  })
  const certificates = await CertificateKeeper.open({ ...options, domains: stores.domains })
  const registrar = new DomainRegistrar({
    store: stores.domains,
    registry,
    ids,
    clock,
    onChange: (domain) => void certificates.domains.follow(domain),
  })
  const issuer = new CredentialIssuer({
    ...stores,
    ids,
    clock,
    onCredentialChange: (id) => sessions.recheck(id),
  })
  const authority = new Authority(stores)
  return { ...stores, authority, registry, sessions, certificates, registrar, issuer, ids }
}

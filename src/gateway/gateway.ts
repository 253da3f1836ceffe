import { mkdirSync } from 'node:fs'
import type { Clock } from '../base/clock.ts'
import { Closer } from '../base/closer.ts'
import type { ListenAddress } from '../base/listen-address.ts'
import type { Logger } from '../base/logger.ts'
import { type AgentLimits, DEFAULT_AGENT_LIMITS } from './agents/agent-deps.ts'
import { AgentListener } from './agents/agent-listener.ts'
import { Binder } from './agents/binder.ts'
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
import { Ingress, type IngressAddresses } from './ingress/ingress.ts'
import { type Provisioned, Provisioner, type ProvisionRequest } from './provisioner.ts'
import { IdSource } from './resource-id.ts'

/** How long exchanges under way may take to end when the gateway stops. */
const DRAIN_MS = 3_000

export interface GatewayOptions {
  /** Folder for `gateway.db`, the CA and the certificates; made when missing. */
  readonly dataDir: string
  readonly agentListen: ListenAddress
  readonly httpListen: ListenAddress
  readonly httpsListen: ListenAddress
  /** Certificate for the HTTPS ingress; without it the own CA issues one per reserved domain. */
  readonly tls?: { readonly certPath: string; readonly keyPath: string } | undefined
  /** What agents are told about the service. */
  readonly version?: string
  readonly agentLimits?: Partial<AgentLimits>
  readonly credentialLimits?: Partial<CredentialLimits>
  readonly log: Logger
  readonly clock: Clock
}

/** Where the started gateway really listens, and what its clients must trust. */
export interface GatewayAddresses extends IngressAddresses {
  readonly agent: ListenAddress
  readonly caCertPath: string
}

/** What a started gateway consists of. */
export interface GatewayParts extends GatewayDatabase {
  readonly addresses: GatewayAddresses
  readonly registry: EndpointRegistry
  readonly sessions: SessionTable
  readonly certificates: CertificateKeeper
  readonly authority: Authority
  readonly registrar: DomainRegistrar
  readonly issuer: CredentialIssuer
}

/** The embedded service: agents connect to it, public traffic comes in through it. */
export class Gateway {
  readonly #options: GatewayOptions
  readonly #closer: Closer
  #parts: GatewayParts | undefined

  constructor(options: GatewayOptions) {
    const log = options.log.child({ room: 'gateway' })
    this.#options = { ...options, log }
    this.#closer = new Closer(log)
  }

  /** Throws when the gateway has not started. */
  get parts(): GatewayParts {
    if (!this.#parts) throw new Error('the gateway has not started')
    return this.#parts
  }

  /** Throws a StartError when a person has to act; `stop()` closes what was opened until then. */
  async start(): Promise<GatewayAddresses> {
    this.#parts ??= await this.#open()
    return this.#parts.addresses
  }

  /** Finishes what is under way, says goodbye to the agents, closes everything. */
  stop(): Promise<void> {
    return this.#closer.close()
  }

  /** Reserves the domain, makes the bot user and its credential; call it after `start()`. */
  provision(request: ProvisionRequest): Provisioned {
    return new Provisioner(this.parts).provision(request)
  }

  async #open(): Promise<GatewayParts> {
    const { dataDir, agentListen, tls, credentialLimits, clock, log } = this.#options
    mkdirSync(dataDir, { recursive: true, mode: 0o700 })
    const stores = openGatewayDatabase(dataDir, log, clock)
    this.#closer.own('gateway database', stores.database, (it) => it.close())
    const authority = new Authority(stores)
    const registry = new EndpointRegistry()
    const ids = new IdSource(clock)
    const sessions = new SessionTable({
      limits: { ...DEFAULT_CREDENTIAL_LIMITS, ...credentialLimits },
      clock,
    })
    const certificates = await CertificateKeeper.open({
      dataDir,
      agentHost: agentListen.host,
      tls,
      domains: stores.domains,
      clock,
      log,
    })
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
    const parts = { ...stores, authority, registry, sessions, certificates, registrar, issuer }
    return { ...parts, addresses: await this.#listen(parts, ids) }
  }

  async #listen(parts: Omit<GatewayParts, 'addresses'>, ids: IdSource): Promise<GatewayAddresses> {
    const { httpListen: http, httpsListen: https, agentListen, clock, log } = this.#options
    const { authority, registry, sessions, certificates } = parts
    const listener = new AgentListener({
      listen: agentListen,
      deps: {
        authority,
        registry,
        sessions,
        binder: new Binder({
          authority,
          registry,
          policyOptions: { clock, log },
          ingressPort: (protocol) => ingressAddresses[protocol].port,
        }),
        ids,
        limits: { ...DEFAULT_AGENT_LIMITS, ...this.#options.agentLimits },
        coverHost: (host) => certificates.coverHost(host),
        version: this.#options.version ?? '',
        log,
        clock,
      },
    })
    const ingress = new Ingress({ registry, http, https, tls: certificates, log, clock })
    this.#closer.own('agent listener', listener, (it) => it.stop())
    this.#closer.own('ingress', ingress, (it) => it.stop(DRAIN_MS))
    const ingressAddresses = await ingress.start()
    const agent = await listener.start(certificates.server)
    certificates.start((certificate) => listener.setCertificate(certificate))
    this.#closer.own('certificates', certificates, (it) => it.stop())
    return { ...ingressAddresses, agent, caCertPath: certificates.caCertPath }
  }
}

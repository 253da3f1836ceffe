import type { Clock } from '../base/clock.ts'
import { Closer } from '../base/closer.ts'
import { Handover } from '../base/handover.ts'
import { FailureLimiter } from '../base/limiter.ts'
import type { ListenAddress, PortRange } from '../base/listen-address.ts'
import type { Logger } from '../base/logger.ts'
import type { ProxyConfig } from '../base/net/trusted-proxies.ts'
import type { Secret } from '../base/secret.ts'
import { HttpServer } from '../http/http-server.ts'
import { RequestGate } from '../http/request-gate.ts'
import type { AllowEntry } from '../policy/outbound/outbound-allow.ts'
import { type AgentLimits, DEFAULT_AGENT_LIMITS } from './agents/agent-deps.ts'
import { AgentListener } from './agents/agent-listener.ts'
import { Binder } from './agents/binder.ts'
import type { LeastClientVersions } from './agents/client-versions.ts'
import { sendAway } from './agents/departure.ts'
import type { CredentialLimits } from './agents/session-table.ts'
import type { SharedGateway } from './cluster/shared-gateway.ts'
import { type GatewayCore, openGatewayCore } from './gateway-core.ts'
import type { IngressAddresses } from './ingress/ingress.ts'
import { answerLists } from './management/answer-lists.ts'
import { createManagementApi, servedNames } from './management/management-api.ts'
import { answerForNode } from './management/resources/nodes.ts'
import { DnsCheck } from './management/resources/reserved-names.ts'
import {
  type ApiKeyRequest,
  type Provisioned,
  Provisioner,
  type ProvisionRequest,
} from './provisioner.ts'
import { STREAM_SLOTS_LIMITS } from './streams/stream-slots.ts'

const DEFAULT_CNAME_BASE = 'gateway.localhost'
const DRAIN_MS = 10_000
/** For what is cut off after that. */
const STOP_MS = 2_000

export interface GatewayOptions {
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
  /** Whom the DNS check asks, `address` or `address:port`; unset: the machine's resolvers. */
  readonly dnsServers?: readonly string[]
  /** Certificate for the HTTPS ingress; without it the own CA issues one per reserved domain. */
  readonly tls?: { readonly certPath: string; readonly keyPath: string } | undefined
  /** Keys that each rate limit counts apart. */
  readonly rateLimitKeys?: number
  /** Bits of an IPv6 address that rate limits count as one visitor. */
  readonly rateLimitIpv6Prefix?: number
  /** Which clients are told to update, and which are refused. */
  readonly leastClients?: LeastClientVersions | undefined
  /** Where it is, as clients show it. */
  readonly region?: string
  /** What agents are told about the service. */
  readonly version?: string
  /** Bytes that may wait for slow visitors and devices, of the whole gateway. */
  readonly bufferBytes?: number
  /** How long requests wait for a device that is away; 0: they do not. */
  readonly holdMs?: number
  /** Who serves a request to a pool: the least busy member, or for each client address the same. */
  readonly poolAffinity?: 'none' | 'client'
  /** Proxies and load balancers in front, which may name the client. */
  readonly proxies?: ProxyConfig | undefined
  /** Tables in MaxMind's format: where addresses are, and whose; unset: policies cannot ask. */
  readonly geoPath?: string | undefined
  readonly asnPath?: string | undefined
  /** Bytes a second; who moves fewer through a device is ended when others wait. 0: nobody is. */
  readonly leastRate?: number
  /** How long exchanges under way may take to end when the gateway stops; 10 s unless given. */
  readonly drainMs?: number
  /** Another process of this gateway ends now: it takes its `drainMs` to let go of its agents. */
  readonly hasPredecessor?: boolean
  readonly agentLimits?: Partial<AgentLimits>
  readonly credentialLimits?: Partial<CredentialLimits>
  /** What it has in common with other gateways; without it, it is the only one. */
  readonly shared?: SharedGateway | undefined
  /** Called when the database can be written again, or read, by a new process only. */
  readonly onRestartNeeded?: (reason: string) => void
  readonly log: Logger
  readonly clock: Clock
}

/** Where the started gateway really listens, and what its clients must trust. */
export interface GatewayAddresses extends IngressAddresses {
  readonly agent: ListenAddress
  readonly api: ListenAddress | undefined
  readonly dns: ListenAddress | undefined
  readonly caCertPath: string
}

/** A started gateway from within. */
export interface GatewayParts extends GatewayCore {
  readonly addresses: GatewayAddresses
}

/** The embedded service: agents connect to it, public traffic comes in through it. */
export class Gateway {
  readonly #options: GatewayOptions
  readonly #cnameBase: string
  readonly #closer: Closer
  readonly #gate = new RequestGate()
  #parts: GatewayParts | undefined
  #listener: AgentListener | undefined
  #api: HttpServer | undefined
  #handover: Handover | undefined
  /** When it has to have ended, monotonic. */
  #stopBy: number | undefined
  #stopped: Promise<void> | undefined

  constructor(options: GatewayOptions) {
    const log = options.log.child({ room: 'gateway' })
    this.#options = { ...options, log }
    this.#cnameBase = options.cnameBase ?? DEFAULT_CNAME_BASE
    this.#closer = new Closer(log)
  }

  /** Throws when the gateway has not started. */
  get parts(): GatewayParts {
    if (!this.#parts) throw new Error('the gateway failed to start')
    return this.#parts
  }

  /** Throws a StartError when a person has to act; `stop()` closes what was opened until then. */
  async start(): Promise<GatewayAddresses> {
    this.#parts ??= await this.#open()
    return this.#parts.addresses
  }

  /**
   * Lets go of the data folder, so that another process on the same sockets can start. Visitors and
   * agents are served on; the management API refuses with 503. Throws, with everything as before, when
   * something cannot be let go of.
   */
  release(): Promise<void> {
    const { exclusive } = this.parts
    const api = { release: () => this.#gate.close(), reclaim: () => this.#gate.open() }
    this.#handover = new Handover([api, ...exclusive])
    return this.#handover.release()
  }

  /** The other process did not come up. Throws when not all that it had can be taken back. */
  async reclaim(): Promise<void> {
    await this.#handover?.reclaim()
  }

  /** The other process is up: nobody new is let in here, and the agents are sent there. */
  leave(): void {
    const { drainMs = DRAIN_MS } = this.#options
    const { ingress, certificates } = this.parts
    certificates.stop()
    void this.#api?.stop()
    void ingress.stop(drainMs)
    this.#listener?.leave(drainMs)
  }

  /** Finishes what is under way, says goodbye to the agents, closes everything. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop()
    return this.#stopped
  }

  async #stop(): Promise<void> {
    const { drainMs = DRAIN_MS, clock } = this.#options
    this.#stopBy = clock.monotonic() + drainMs
    await this.#emptyNode(drainMs / 2)
    await this.#closer.close()
  }

  /** Of several gateways: the others take over before this one lets go, as far as they can in that time. */
  async #emptyNode(withinMs: number): Promise<void> {
    const { drain } = this.#parts?.node ?? {}
    if (!drain) return
    try {
      await drain.end(withinMs)
    } catch (err) {
      this.#options.log.info({ err }, 'the gateway stops without a handover to other nodes')
    }
  }

  /** Reserves the domain, makes the bot user and its credential; call it after `start()`. */
  provision(request: ProvisionRequest): Promise<Provisioned> {
    return new Provisioner(this.parts).provision({ ...request, name: this.#named(request.name) })
  }

  /** Makes a key to the management API; call it after `start()`. */
  provisionApiKey(request: ApiKeyRequest): Promise<Secret> {
    const description = this.#named(request.description)
    return new Provisioner(this.parts).provisionApiKey({ ...request, description })
  }

  /** Of the time to stop. */
  #leftMs(drainMs: number): number {
    const { clock } = this.#options
    return Math.max(0, (this.#stopBy ?? clock.monotonic() + drainMs) - clock.monotonic())
  }

  /** What a start makes is of this gateway alone: it replaces what it has lost, and nobody else's. */
  #named(text: string): string {
    const { node } = this.parts
    return node ? `${text}, ${node.nodeId}` : text
  }

  async #open(): Promise<GatewayParts> {
    const { agentListen } = this.#options
    const {
      tls,
      acme,
      dnsListen,
      tcpListen,
      tcpIdleMs,
      rateLimitKeys,
      rateLimitIpv6Prefix,
      bufferBytes,
      holdMs,
      poolAffinity,
      proxies,
      geoPath,
      asnPath,
      hasPredecessor = false,
      drainMs = DRAIN_MS,
      outboundAllow = [],
      credentialLimits,
      shared,
      apiListen,
    } = this.#options
    const apiHosts = [apiListen?.host ?? '', ...(this.#options.apiHosts ?? [])]
    const core = await openGatewayCore(
      {
        ...this.#options,
        agentHost: agentListen.host,
        tls,
        acme,
        dnsListen,
        tcpListen,
        tcpIdleMs,
        cnameBase: this.#cnameBase,
        apiHosts,
        rateLimitKeys,
        rateLimitIpv6Prefix,
        bufferBytes,
        holdMs,
        poolAffinity,
        proxies,
        geoPath,
        asnPath,
        predecessorMs: hasPredecessor ? drainMs : undefined,
        outboundAllow,
        credentialLimits,
        shared,
      },
      this.#closer,
    )
    answerForNode(core)
    answerLists({ ...core, clock: this.#options.clock })
    const traffic = await this.#startTraffic(core)
    const api = await this.#startManagementApi(core)
    const { dnsAddress: dns, certificates } = core
    return { ...core, addresses: { ...traffic, api, dns, caCertPath: certificates.caCertPath } }
  }

  async #startTraffic(core: GatewayCore): Promise<IngressAddresses & { agent: ListenAddress }> {
    const { agentListen: listen, clock, log } = this.#options
    const { ingress, certificates } = core
    const listener = new AgentListener({
      listen,
      isOpen: () => !core.node?.drain.isOn,
      deps: {
        ...core,
        binder: new Binder(core),
        ids: core.agentIds,
        failures: new FailureLimiter(clock, () => core.node?.gateways ?? 1),
        limits: { ...DEFAULT_AGENT_LIMITS, ...this.#options.agentLimits },
        coverHost: (host) => certificates.coverHost(host),
        openAddress: (address) => ingress.openAddress(address),
        leastClients: this.#options.leastClients,
        region: this.#options.region ?? 'self-hosted',
        leastRate: this.#options.leastRate ?? STREAM_SLOTS_LIMITS.leastRate,
        version: this.#options.version ?? '',
        log,
        clock,
      },
    })
    this.#listener = listener
    // Newest first: exchanges under way end before the agents go that carry them.
    this.#closer.own('agent listener', listener, (it) => it.stop())
    const { drainMs = DRAIN_MS } = this.#options
    this.#closer.own('ingress', ingress, (it) => it.stop(this.#leftMs(drainMs)), drainMs + STOP_MS)
    await core.cloudEndpoints.restore()
    const addresses = await ingress.start()
    core.urls.listening({ http: addresses.http.port, https: addresses.https.port })
    core.node?.drain.open(async (id, withinMs) => {
      const session = core.sessions.find(id)
      if (session) await sendAway(session, { withinMs, keptOpenMs: 0, clock, log })
    })
    await core.node?.start(ingress)
    const agent = await listener.start(certificates.server)
    certificates.start((certificate) => listener.setCertificate(certificate))
    return { ...addresses, agent }
  }

  async #startManagementApi(core: GatewayCore): Promise<ListenAddress | undefined> {
    const { apiListen: target, apiHosts = [], dnsServers, clock, log } = this.#options
    if (!target) return undefined
    const listener = createManagementApi({
      ...core,
      gate: this.#gate,
      version: this.#options.version ?? '',
      domainCertificates: core.certificates.domains,
      certificates: core.certificates,
      cnameBase: this.#cnameBase,
      dnsCheck: new DnsCheck(dnsServers),
      serves: servedNames([target.host, ...apiHosts]),
      clock,
      log,
    })
    const server = new HttpServer({
      name: 'management API',
      listener,
      target,
      setting: 'GATEWAY_API_LISTEN',
      log,
    })
    this.#api = server
    this.#closer.own('management API', server, (it) => it.stop())
    await server.start()
    return { host: target.host, port: server.port }
  }
}

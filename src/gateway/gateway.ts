import { Closer } from '../base/closer.ts'
import { Handover } from '../base/handover.ts'
import { FailureLimiter } from '../base/limiter.ts'
import type { ListenAddress } from '../base/listen-address.ts'
import { agentAddresses } from '../base/net/public-names.ts'
import type { Secret } from '../base/secret.ts'
import { HttpServer } from '../http/http-server.ts'
import { BrowserSessions } from '../http/pages/browser-sessions.ts'
import { RequestGate } from '../http/request-gate.ts'
import { lockFolder } from '../store/data-folder.ts'
import { type AgentLimits, DEFAULT_AGENT_LIMITS } from './agents/agent-deps.ts'
import { AgentListener } from './agents/agent-listener.ts'
import { Binder } from './agents/binder.ts'
import { sendAway } from './agents/departure.ts'
import { answerCompletions } from './agents/names-to-come.ts'
import { openSharedGateway, type SharedGateway } from './cluster/shared-gateway.ts'
import { type GatewayCore, type GatewayCoreOptions, openGatewayCore } from './gateway-core.ts'
import { type OpenRecords, openOnlyGateway } from './gateway-database.ts'
import type { IngressAddresses } from './ingress/ingress.ts'
import { answerLists } from './management/answer-lists.ts'
import { siteSessions } from './management/console/console.ts'
import { createManagementApi, servedNames } from './management/management-api.ts'
import {
  type ApiKeyRequest,
  type Provisioned,
  Provisioner,
  type ProvisionRequest,
} from './provisioner.ts'
import { apiErrorFormat } from './resources/common/error-response.ts'
import { Invites } from './resources/invites/invites.ts'
import { answerForNode } from './resources/nodes/routes.ts'
import { DnsCheck } from './resources/reserved-names/routes.ts'

/** Time to close connections that were cut off after the drain, in milliseconds. */
const STOP_MS = 2_000

export interface GatewayOptions extends GatewayCoreOptions {
  readonly agentLimits?: Partial<AgentLimits>
  readonly shared: SharedGateway | undefined
}

/** Actual addresses of the started gateway, and the certificate that its clients must trust. */
export interface GatewayAddresses extends IngressAddresses {
  readonly agent: ListenAddress
  readonly api: ListenAddress
  readonly dns: ListenAddress | undefined
  readonly caCertPath: string
}

/** Internal parts of a started gateway. */
export interface GatewayParts extends GatewayCore {
  readonly records: OpenRecords
  readonly addresses: GatewayAddresses
}

/** The embedded service: agents connect to it, and visitors reach their endpoints through it. */
export class Gateway {
  readonly #options: GatewayOptions
  readonly #closer: Closer
  readonly #gate = new RequestGate()
  #parts: GatewayParts | undefined
  #listener: AgentListener | undefined
  #api: HttpServer | undefined
  /** Where agents connect; the actual port once it listens. */
  #agentListen: ListenAddress
  #handover: Handover | undefined
  /** The gateway must have ended at this time; monotonic. */
  #stopBy: number | undefined
  #stopped: Promise<void> | undefined

  constructor(options: GatewayOptions) {
    const log = options.log.child({ room: 'gateway' })
    this.#options = { ...options, log }
    this.#agentListen = options.agentListen
    this.#closer = new Closer(log)
  }

  /** Throws if the gateway has not started. */
  get parts(): GatewayParts {
    if (!this.#parts) throw new Error('the gateway failed to start')
    return this.#parts
  }

  /** Throws a StartError if a person must act. `stop()` then closes the parts that were opened. */
  async start(): Promise<GatewayAddresses> {
    this.#parts ??= await this.#open()
    return this.#parts.addresses
  }

  /**
   * Releases the data directory, so that another process on the same sockets can start. Visitors and agents
   * are still served; the management API answers 503. If a part cannot be released, it throws and the gateway
   * continues as before.
   */
  release(): Promise<void> {
    const { exclusive } = this.parts
    const api = { release: () => this.#gate.close(), reclaim: () => this.#gate.open() }
    this.#handover = new Handover([api, ...exclusive])
    return this.#handover.release()
  }

  /**
   * Takes the resources back, because the other process failed to start. Throws if some cannot be taken back.
   */
  async reclaim(): Promise<void> {
    await this.#handover?.reclaim()
  }

  /** The other process has started. Stops accepting new connections here, and sends the agents there. */
  handOver(): void {
    const { drainMs } = this.#options
    const { ingress, certificates } = this.parts
    certificates.stop()
    void this.#api?.stop()
    void ingress.stop(drainMs)
    this.#listener?.stopAccepting(drainMs)
  }

  /** Finishes requests under way, says goodbye to the agents, and closes all parts. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop()
    return this.#stopped
  }

  async #stop(): Promise<void> {
    const { drainMs, clock } = this.#options
    this.#stopBy = clock.monotonic() + drainMs
    await this.#emptyNode(drainMs / 2)
    // Requests under way have their time, however long the agents took.
    this.#stopBy = Math.max(this.#stopBy, clock.monotonic() + drainMs / 2)
    await this.#closer.close()
  }

  /**
   * In a cluster, lets the other gateways take over agents and names with their limits. Ends when no more
   * have left within that time.
   */
  async #emptyNode(withinMs: number): Promise<void> {
    try {
      await this.#parts?.drain.end(withinMs)
    } catch (err) {
      this.#options.log.info({ err }, 'the gateway stops without a handover to other nodes')
    }
  }

  /** Reserves the domain, and creates the bot user and its credential. Call it after `start()`. */
  provision(request: ProvisionRequest): Promise<Provisioned> {
    return new Provisioner(this.parts).provision({
      ...request,
      name: this.parts.records.named(request.name),
    })
  }

  /** Creates an API key for the management API. Call it after `start()`. */
  provisionApiKey(request: ApiKeyRequest): Promise<Secret> {
    const description = this.parts.records.named(request.description)
    return new Provisioner(this.parts).provisionApiKey({ ...request, description })
  }

  /** Milliseconds left until the gateway must have ended. */
  #leftMs(drainMs: number): number {
    const { clock } = this.#options
    return Math.max(0, (this.#stopBy ?? clock.monotonic() + drainMs) - clock.monotonic())
  }

  async #open(): Promise<GatewayParts> {
    const { shared, dataDir: folder, log, clock } = this.#options
    const closer = this.#closer
    const lock = closer.own('lock', lockFolder({ folder, owner: 'gateway', log }), (it) =>
      it.release(),
    )
    const records = shared
      ? await openSharedGateway(shared, this.#options, closer)
      : openOnlyGateway(this.#options, closer)
    const core = await openGatewayCore(this.#options, { records, lock }, closer)
    answerForNode(core)
    answerCompletions(core.others, core.registry)
    answerLists({ ...core, clock })
    // Created before the listeners, so it closes after them: sign-outs still reach the other gateways while
    // the listeners stop.
    const consoleSessions = this.#consoleSessions(core)
    const invites = this.#invites(core)
    const traffic = await this.#startTraffic(core, invites)
    const api = await this.#startManagementApi({ ...core, invites }, consoleSessions)
    const { dnsAddress: dns, certificates } = core
    const addresses = { ...traffic, api, dns, caCertPath: certificates.caCertPath }
    return { ...core, records, addresses }
  }

  #invites(core: GatewayCore): Invites {
    const { publicNames, clock, log } = this.#options
    return new Invites({
      ...core,
      caPem: () => core.certificates.caCertPem,
      agentAddresses: () => agentAddresses(this.#agentListen, publicNames),
      clock,
      log,
    })
  }

  async #startTraffic(
    core: GatewayCore,
    invites: Invites,
  ): Promise<IngressAddresses & { agent: ListenAddress }> {
    const { agentListen: listen, clients, leastRate, version = '', clock, log } = this.#options
    const { ingress, certificates } = core
    const listener = new AgentListener({
      listen,
      invites,
      isOpen: () => !core.drain.isOn,
      deps: {
        ...core,
        binder: new Binder(core),
        ids: core.agentIds,
        failures: new FailureLimiter(clock, () => core.others.count),
        limits: { ...DEFAULT_AGENT_LIMITS, ...this.#options.agentLimits },
        coverHost: (host, ownerId) => certificates.coverHost(host, ownerId),
        openAddress: (address) => ingress.openAddress(address),
        clients,
        leastRate,
        version,
        log,
        clock,
      },
    })
    this.#listener = listener
    // Closed newest first, so exchanges under way end before the agents that carry them.
    this.#closer.own('agent listener', listener, (it) => it.stop())
    const { drainMs } = this.#options
    this.#closer.own('ingress', ingress, (it) => it.stop(this.#leftMs(drainMs)), drainMs + STOP_MS)
    await core.cloudEndpoints.restore()
    // Before the listeners: visitors wait until this gateway knows the names of the others.
    await core.member.start({
      ...core,
      sendAway: async (id, withinMs) => {
        const session = core.sessions.find(id)
        if (session) await sendAway(session, { withinMs, keptOpenMs: 0, clock, log })
      },
    })
    const addresses = await ingress.start()
    core.urls.listening({ http: addresses.http.port, https: addresses.https.port })
    const agent = await listener.start(certificates.server)
    this.#agentListen = agent
    certificates.start((certificate) => listener.setCertificate(certificate))
    return { ...addresses, agent }
  }

  #consoleSessions({ database, consoleSessionStore: store }: GatewayCore): BrowserSessions {
    const { shared, clock } = this.#options
    if (!shared) return new BrowserSessions(clock)
    const stopping = this.#closer.own('console sessions', new AbortController(), (it) => it.abort())
    return siteSessions({ database, store, signal: stopping.signal, clock })
  }

  async #startManagementApi(
    core: GatewayCore & { readonly invites: Invites },
    consoleSessions: BrowserSessions,
  ): Promise<ListenAddress> {
    const { apiListen: target, apiHosts, publicNames, dnsServers, clock, log } = this.#options
    const listener = createManagementApi({
      ...core,
      gate: this.#gate,
      version: this.#options.version ?? '',
      domainCertificates: core.certificates.domains,
      certificates: core.certificates,
      cnameBase: this.#options.cnameBase,
      defaultDomain: this.#options.reservedDomain,
      sharedCnameTarget: this.#options.sharedCnameTarget,
      consoleSessions,
      dnsCheck: new DnsCheck(dnsServers),
      serves: servedNames([target.host, ...apiHosts, ...publicNames.map(({ host }) => host)]),
      clock,
      log,
    })
    const server = new HttpServer({
      name: 'management API',
      listener,
      target,
      setting: 'GATEWAY_API_LISTEN',
      errors: apiErrorFormat(core.ids, log),
      log,
    })
    this.#api = server
    this.#closer.own('management API', server, (it) => it.stop())
    await server.start()
    return { host: target.host, port: server.port }
  }
}

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { Stream } from '../../muxado/stream.ts'
import type { BoundName } from '../access/authority.ts'
import type { NameOwners } from '../access/name-rules.ts'
import type { CloudEndpoint, Endpoint } from '../endpoints/endpoint.ts'
import type { EndpointPolicies } from '../endpoints/endpoint-policies.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import { ClusterRoutes, type Tenure } from '../endpoints/routes.ts'
import type { OwnedAddress } from '../records/endpoint-protocol.ts'
import type { IdSource } from '../records/resource-id.ts'
import type { BufferAccount } from '../streams/buffer-account.ts'
import { GiveQuestion } from './give-question.ts'
import { MovedLimits } from './moved-limits.ts'
import { Moves, type MovingSession } from './moves.ts'
import { type DrainLeft, NodeDrain } from './node-drain.ts'
import { countHome } from './node-figures.ts'
import { NodeNames } from './node-names.ts'
import { isShared, type OwnCondition, type Readiness, readinessOf } from './node-readiness.ts'
import { type Claim, type ClaimRow, claimKey } from './nodes/claim.ts'
import { Cluster, type ClusterOptions } from './nodes/cluster.ts'
import { isThere, type NodeRow } from './nodes/node-facts.ts'
import { homeFor } from './nodes/rendezvous.ts'
import { SITE_STEPS, type Site } from './open-site.ts'
import { Outage } from './outage.ts'
import { OwnIdentity } from './own-identity.ts'
import { PeerLinks } from './peers/peer-links.ts'
import { PeerListener } from './peers/peer-listener.ts'
import type { PublicPorts } from './peers/public-ports.ts'
import { DatabaseError } from './postgres/database-error.ts'
import type { PostgresServer } from './postgres/postgres-session.ts'
import { migrateSchema } from './postgres/schema.ts'
import { Questions } from './questions.ts'

/** How often it is tried to take up work while PostgreSQL is away at the start. */
const RETRY_MS = 1_000

export interface ClusterNodeOptions {
  readonly site: Site
  readonly server: PostgresServer
  readonly peerListen: { readonly host: string; readonly port: number }
  readonly ports: PublicPorts
  readonly registry: EndpointRegistry
  readonly owners: Pick<NameOwners, 'mayAnswer'>
  /** Whether the account of a name that a device left may still have it. */
  readonly mayReturn: (name: BoundName) => boolean
  readonly sessionOf: (id: string) => MovingSession | undefined
  /** Ids of all sessions of agents. */
  readonly sessionIds: () => Iterable<string>
  readonly policies: Pick<EndpointPolicies, 'last' | 'remember'>
  readonly buffers: BufferAccount
  readonly ids: IdSource
  readonly holdMs: number | undefined
  readonly timings?: ClusterOptions['timings']
  /** Only a new process can go on. */
  readonly onRestartNeeded: (reason: string) => void
  readonly log: Logger
  readonly clock: Clock
}

/** What is done at one gateway of a site alone. */
export interface Duty {
  /** From now on it is done here. */
  reclaim(): void
  release(): void | Promise<void>
}

/** What the node passes to the ingress of this gateway. */
export interface NodeEntrance {
  acceptPeer(stream: Stream, origin: { readonly nodeId: string }): void
  openAddress(address: string): Promise<void>
}

/** This gateway among the others: its lease and names, the ways to the others, and those from there. */
export class ClusterNode {
  readonly #options: ClusterNodeOptions
  readonly #moves: Moves
  readonly #limits: MovedLimits
  readonly #identity: OwnIdentity
  readonly #outage: Outage
  readonly #stopping = new AbortController()
  readonly cluster: Cluster
  readonly names: NodeNames
  readonly routes: ClusterRoutes
  readonly links: PeerLinks
  /** What other nodes ask this one, and this one them. */
  readonly questions: Questions
  readonly drain: NodeDrain
  #listener: PeerListener | undefined
  #entrance: NodeEntrance | undefined
  #starting: Promise<void> | undefined
  readonly #duties = new Map<string, { readonly duty: Duty; isOurs: boolean }>()
  /** Of the registry, and of the nodes: nothing is to be adopted while both stay. */
  #adopted = ''

  constructor(options: ClusterNodeOptions) {
    const { site, server, registry, ids, buffers, ports, holdMs, log, clock } = options
    this.#options = options
    const { sessionIds } = options
    this.questions = new Questions({ links: { find: (id) => this.links.find(id) }, log, clock })
    const { policies } = options
    const limits = new MovedLimits({
      ...{ nodeId: site.identity.nodeId, questions: this.questions, log, clock },
      isReached: (id) => this.isThere(id) && (this.links.find(id)?.isReached ?? false),
      onTaken: (key, holder) => this.cluster.claims.taken(key, holder),
      statesOf: (claim) => this.#moves.statesOf(claim),
      remember: ({ key, facts: { protocol, ownerId } }, states) => {
        const { host, member: poolMember } = key
        policies.remember({ protocol, host, ownerId, poolMember }, { states })
      },
    })
    this.#limits = limits
    const isDraining = () => this.cluster.lease.standing === 'draining'
    this.#moves = new Moves({ ...options, limits, isDraining })
    this.#identity = new OwnIdentity({
      ...{ ...site, log, clock },
      onRenewed: (identity) => this.#listener?.setIdentity(identity),
    })
    const { nodeId } = site.identity
    const asking = new GiveQuestion({
      ...{ nodeId, questions: this.questions },
      claims: () => this.cluster.claims,
    })
    this.cluster = new Cluster({
      ...{ server, steps: SITE_STEPS, nodeId: site.identity.nodeId, facts: site.facts, log, clock },
      ...(options.timings ? { timings: options.timings } : {}),
      askPeer: (request) => asking.ask(request),
      give: (own, wanted) => this.#give(own, wanted),
      onLost: (own, holder) => this.#moves.lost(own, holder),
      onReplaced: () => options.onRestartNeeded('another process runs as this node'),
      onForgotten: () => options.onRestartNeeded('this gateway was removed from the cluster'),
      onNodes: (nodes) => this.#onNodes(nodes),
      onClaims: (rows) => this.#onClaims(rows),
      onSettled: () => this.routes.onSettled(),
    })
    site.database.changeIn(() => this.cluster.lease.epoch || undefined)
    this.names = new NodeNames({
      ...{ claims: this.cluster.claims, registry, ids, limits, log },
      lastHome: (key) => this.cluster.table.lastHome(key),
      isForeign: (key, ownerId) =>
        this.cluster.table.isForeign(key, ownerId, clock.now(), (row) => this.#mayReturn(row)),
      mayOpen: () => !isDraining(),
      isDraining: (id) => this.cluster.nodes.find(id)?.standing === 'draining',
      onOpened: (host) => this.routes.onHomeChange(host),
    })
    this.routes = new ClusterRoutes({
      ...{ registry, homes: this.cluster.table, owners: options.owners, clock, holdMs },
      tenures: { nodeId: site.identity.nodeId, of: (endpoint) => this.#tenureOf(endpoint) },
    })
    this.links = new PeerLinks({
      ...{ identity: () => this.#identity.current, ports, buffers, log, clock },
      onChange: (nodeId) => {
        if (this.links.find(nodeId)?.session) this.routes.onNodeUp(nodeId)
      },
    })
    this.#outage = new Outage({
      ...{ questions: this.questions, clock },
      isHit: () => isShared(this.#condition),
      isFine: () =>
        this.cluster.lease.isFirm &&
        readinessOf({ ...this.#condition, isOutageOwn: true }).state !== 'away',
      others: () =>
        this.#others()
          .filter(isThere)
          .map(({ id }) => id),
    })
    this.drain = new NodeDrain({
      ...{ lease: this.cluster.lease, sessions: sessionIds, log, clock },
      left: () => this.load,
      hasOthers: () => this.#others().some(({ standing }) => standing === 'serving'),
    })
  }

  /** What there is to do here. */
  get load(): DrainLeft {
    const { registry, sessionIds } = this.#options
    let requests = 0
    for (const { active } of registry.totals.byProtocol().values()) requests += active
    // Whose counts are still here is.
    const counts = this.#limits.awaited + this.#moves.expected
    const endpoints = countHome({ registry, node: this }) + counts
    return { agents: [...sessionIds()].length, endpoints, requests }
  }

  /** Aborted when this gateway ends. */
  get stopping(): AbortSignal {
    return this.#stopping.signal
  }

  get nodeId(): string {
    return this.#options.site.identity.nodeId
  }

  /** Whether visitors and devices should come here. */
  get readiness(): Readiness {
    return readinessOf({ ...this.#condition, isOutageOwn: this.#outage.isOwn })
  }

  get #condition(): OwnCondition {
    const { state, standing } = this.cluster.lease
    const { problem } = this.#options.site.database
    return { lease: state, isDraining: standing === 'draining', problem }
  }

  /** How many gateways of the site there are, this one among them. */
  get gateways(): number {
    return Math.max(1, this.cluster.nodes.all().filter(isThere).length)
  }

  /** Has it done here while this node is the one for it; what two do for a moment is done twice. */
  share(name: string, duty: Duty): void {
    this.#duties.set(name, { duty, isOurs: false })
  }

  /** Whether another node of the site serves, as far as anybody has heard. */
  isThere(nodeId: string): boolean {
    const row = this.cluster.nodes.find(nodeId)
    return row !== undefined && isThere(row)
  }

  /** The same; also one that was given up, and has a link: it has lost PostgreSQL alone. */
  serves(nodeId: string): boolean {
    const isLost = this.cluster.nodes.find(nodeId)?.standing === 'lost'
    return isLost ? this.links.find(nodeId)?.session !== undefined : this.isThere(nodeId)
  }

  /** Names that are online at the other nodes. */
  *namesElsewhere(): Generator<OwnedAddress> {
    for (const { host, facts } of this.cluster.table.elsewhere()) yield { ...facts, host }
  }

  /** The same of devices alone: cloud endpoints are at home at any node. */
  *deviceNamesElsewhere(): Generator<OwnedAddress> {
    for (const { host, facts } of this.cluster.table.elsewhere()) {
      if (facts.credentialId !== null) yield { ...facts, host }
    }
  }

  isOurs(name: string): boolean {
    return this.#duties.get(name)?.isOurs ?? false
  }

  /** Takes up its work, or tries to while PostgreSQL is away. Throws a StartError. */
  async start(entrance: NodeEntrance): Promise<void> {
    const { peerListen: listen, ports, log, clock } = this.#options
    this.#entrance = entrance
    const listener = new PeerListener({
      ...{ listen, identity: this.#identity.current, ports, log, clock },
      isKnown: (id) => this.#isKnown(id),
      onVisitor: (stream, origin) => entrance.acceptPeer(stream, origin),
      onQuestion: (message) => this.questions.answer(message),
    })
    this.#listener = listener
    await listener.start()
    this.#identity.start()
    this.#outage.start()
    if (await this.#isDatabaseThere()) await this.cluster.start()
    else this.#starting = this.#startLater()
  }

  /** Lets go of all names; call it when nothing is served any more. */
  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    this.drain.stop()
    this.#identity.stop()
    this.#duties.clear()
    await this.#starting
    // What follows may wait for a database that is away.
    this.#listener?.close()
    await this.#outage.stop()
    await this.cluster.stop()
    await this.links.stop()
    await this.#listener?.stop()
  }

  /** Who came a moment ago is looked for. Where nobody can be asked, a certificate says too little. */
  async #isKnown(nodeId: string): Promise<boolean | undefined> {
    const hasLooked = this.#isListed(nodeId) || (await this.cluster.look())
    return this.#isListed(nodeId) || (hasLooked ? false : undefined)
  }

  #isListed(nodeId: string): boolean {
    return this.cluster.nodes.find(nodeId) !== undefined
  }

  /** A cloud endpoint is adopted by another node at once; a device comes back as long as it may. */
  #mayReturn({ host, facts: { credentialId, protocol, ownerId } }: ClaimRow): boolean {
    if (credentialId === null) return false
    return this.#options.mayReturn({ host, protocol, ownerId, credentialId, drawn: {} })
  }

  #others(): NodeRow[] {
    return this.cluster.nodes.all().filter(({ id }) => id !== this.nodeId)
  }

  async #isDatabaseThere(): Promise<boolean> {
    const { server } = this.#options
    try {
      await migrateSchema({ server, name: 'schema' }, SITE_STEPS)
      return true
    } catch (error) {
      if (error instanceof DatabaseError && error.isTransient) return false
      throw error
    }
  }

  async #startLater(): Promise<void> {
    const { clock, log, onRestartNeeded } = this.#options
    const { signal } = this.#stopping
    log.warn('no connection to the database: this gateway serves no names until it is back')
    try {
      do await clock.sleep(RETRY_MS, signal)
      while (!(await this.#isDatabaseThere()))
      await this.cluster.start()
    } catch (err) {
      if (signal.aborted) return
      log.error({ err }, 'this gateway could not start to serve')
      onRestartNeeded('this gateway could not join the cluster')
    }
  }

  /** What is being opened here is open first: who has it then is asked once more. */
  #give(own: Claim, wanted: Claim): Promise<boolean> {
    return this.names.run(own, async () => {
      const isOurs = this.cluster.claims.heldBy(own.key) === own
      return isOurs && (await this.#moves.give(own, wanted))
    })
  }

  /** All nodes know all cloud endpoints; those that count their visitors do it at one. */
  #tenureOf(endpoint: Endpoint): Tenure {
    const { claims } = this.cluster
    const { type, policy, ownerId, poolMember } = endpoint
    if (type === 'cloud' && policy.limiters.length === 0) return 'firm'
    const key = claimKey(endpoint, ownerId, poolMember)
    if (type === 'cloud' && this.names.isAwaited(key)) return 'unsure'
    return type === 'cloud' ? claims.tenureOfCounter(key) : claims.tenureOfDevice(key)
  }

  #onNodes(nodes: readonly NodeRow[]): void {
    this.#listener?.keep((id) => this.#isListed(id))
    // Who was given up may have lost PostgreSQL alone, and serve on.
    const followed = nodes.filter(({ standing }) => standing !== 'left')
    this.links.follow(followed.map(({ id, facts: { peer } }) => ({ id, address: peer })))
    this.drain.onNodes()
    this.#adopt(nodes)
    this.#divide(nodes)
  }

  #divide(nodes: readonly NodeRow[]): void {
    for (const [name, shared] of this.#duties) {
      const isOurs = this.cluster.lease.state === 'held' && homeFor(name, nodes) === this.nodeId
      if (isOurs === shared.isOurs) continue
      shared.isOurs = isOurs
      if (isOurs) shared.duty.reclaim()
      else void shared.duty.release()
    }
  }

  #onClaims(rows: readonly ClaimRow[]): void {
    const { registry } = this.#options
    this.#adopted = ''
    for (const { host, node, entrance, facts } of rows) {
      if (node !== null && node !== this.nodeId) {
        // Whoever waits here for its device goes where that is now.
        const away = registry.awayAt({ protocol: facts.protocol, host }, facts.ownerId)
        if (away) registry.forget(away)
        if (entrance === 'tcp') this.#entrance?.openAddress(host).catch(() => {})
      }
      this.routes.onHomeChange(host)
    }
  }

  /** Claims the cloud endpoints that no node has, or one that drains, and that this one should. */
  #adopt(nodes: readonly NodeRow[]): void {
    const { registry } = this.#options
    const { lease, table } = this.cluster
    const seen = [
      registry.revision,
      ...nodes.map(({ id, epoch, standing }) => [id, epoch, standing]),
    ]
    if (lease.state !== 'held' || this.#adopted === seen.join()) return
    this.#adopted = seen.join()
    for (const endpoint of registry.all()) {
      if (endpoint.type !== 'cloud') continue
      const { ownerId, poolMember = '', host } = endpoint
      const home = table.get(claimKey(endpoint, ownerId, poolMember))?.node
      const isLeaving = nodes.some(({ id, standing }) => id === home && standing === 'draining')
      if (home && (!isLeaving || home === this.nodeId)) continue
      this.#adopted = ''
      if (homeFor(host, nodes) === this.nodeId) void this.#claim(endpoint)
    }
  }

  async #claim(endpoint: CloudEndpoint): Promise<void> {
    const { poolMember: member = '', ...wanted } = endpoint
    const isShared = this.#options.registry.isShared(endpoint)
    const place = { ...wanted, url: endpoint.url, member, isShared, endsTls: false }
    await this.names
      .open({ ...place, session: undefined }, () => {})
      .catch((err) =>
        this.#options.log.debug({ err }, 'a cloud endpoint is not served by a node yet'),
      )
  }
}

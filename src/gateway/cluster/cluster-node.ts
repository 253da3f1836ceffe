import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { CloudEndpoint, Endpoint } from '../endpoints/endpoint.ts'
import { ClusterRoutes, type Ownership, type OwnRoutes } from '../endpoints/routes.ts'
import type { DrainLeft } from '../ports/drain.ts'
import type { LocalWork, Membership, Places, Readiness } from '../ports/membership.ts'
import { ClusterGateways } from './cluster-gateways.ts'
import { ClusterJobs, LeftChanges, type LeftChangesOptions } from './cluster-jobs.ts'
import { LearnedNames } from './learned-names.ts'
import { MovedLimits } from './moved-limits.ts'
import { NameTransfer } from './name-transfer.ts'
import { NodeDrain } from './node-drain.ts'
import { NodeNames } from './node-names.ts'
import {
  type ClockFault,
  clockFaultOf,
  isShared,
  type OwnCondition,
  readinessOf,
} from './node-readiness.ts'
import { type Claim, type ClaimRow, claimKey } from './nodes/claim.ts'
import { Cluster, type ClusterOptions } from './nodes/cluster.ts'
import { homeFor, isThere, type NodeRow } from './nodes/node-facts.ts'
import { SITE_STEPS, type Site } from './open-site.ts'
import { Outage } from './outage.ts'
import { OwnIdentity } from './own-identity.ts'
import { GiveQuestion, PeerRpc } from './peer-rpc.ts'
import type { PublicPorts } from './peers/greeting.ts'
import { PeerLinks } from './peers/peer-links.ts'
import { PeerListener } from './peers/peer-listener.ts'
import { DatabaseError } from './postgres/database-error.ts'
import type { PostgresServer } from './postgres/postgres-session.ts'
import { migrateSchema } from './postgres/schema.ts'
import { RefusedNames } from './refused-names.ts'

/** How often it is tried to take up work while PostgreSQL is away at the start. */
const RETRY_MS = 1_000

export interface ClusterNodeOptions extends Places {
  readonly site: Site
  readonly server: PostgresServer
  readonly peerListen: { readonly host: string; readonly port: number }
  readonly ports: PublicPorts
  readonly trail: LeftChangesOptions['trail']
  readonly holdMs: number | undefined
  readonly timings?: ClusterOptions['timings']
  /** Only a new process can go on. */
  readonly onRestartNeeded: (reason: string) => void
  readonly log: Logger
  readonly clock: Clock
}

/** This gateway as a node of a cluster: its lease, its names, and the links in both directions. */
export class ClusterNode implements Membership {
  readonly #options: ClusterNodeOptions
  readonly #moves: NameTransfer
  readonly #limits: MovedLimits
  readonly #identity: OwnIdentity
  readonly #outage: Outage
  readonly #leftChanges: LeftChanges
  readonly #refusedNames: RefusedNames
  readonly #stopping = new AbortController()
  readonly cluster: Cluster
  readonly names: NodeNames
  readonly routes: ClusterRoutes
  readonly links: PeerLinks
  /** Calls between nodes. */
  readonly questions: PeerRpc
  readonly others: ClusterGateways
  readonly duties: ClusterJobs
  readonly drain: NodeDrain
  readonly #learned: LearnedNames
  #listener: PeerListener | undefined
  /** Undefined until the start: nothing is served here before. */
  #work: LocalWork | undefined
  #starting: Promise<void> | undefined
  #toldClock: ClockFault | undefined
  /** Revision of registry and nodes at the last adoption. Nothing is adopted while both are unchanged. */
  #adopted = ''

  constructor(options: ClusterNodeOptions) {
    const { site, ports, buffers, authority, holdMs, registry, log, clock } = options
    const { nodeId } = site.identity
    this.#options = options
    this.#identity = new OwnIdentity({
      ...site,
      log,
      clock,
      onRenewed: (identity) => this.#listener?.setIdentity(identity),
    })
    this.links = new PeerLinks({
      identity: () => this.#identity.current,
      ports,
      buffers,
      log,
      clock,
      onChange: (id) => this.#onLink(id),
    })
    this.questions = new PeerRpc({ links: this.links, log, clock })
    this.#limits = this.#openLimits()
    this.#moves = this.#openMoves()
    this.cluster = this.#openCluster()
    site.database.changeIn(() => this.cluster.lease.epoch || undefined)
    const { questions, links, cluster } = this
    this.others = new ClusterGateways({
      self: nodeId,
      facts: site.facts,
      cluster,
      links,
      questions,
    })
    this.#learned = new LearnedNames({ folder: site.folder, cluster, links, questions, log, clock })
    this.#refusedNames = new RefusedNames({
      canClaim: () => this.#canClaim,
      onClaimable: () => this.#retryNames(),
      clock,
    })
    this.names = this.#openNames()
    this.routes = new ClusterRoutes({
      registry,
      homes: cluster.table,
      owners: authority.owners,
      clock,
      holdMs,
      ownerships: { nodeId, of: (endpoint) => this.#ownershipOf(endpoint) },
    })
    this.#outage = new Outage({
      questions,
      clock,
      isHit: () => isShared(this.#condition),
      isFine: () =>
        cluster.lease.isFirm &&
        readinessOf({ ...this.#condition, isOutageOwn: true }).state !== 'away',
      others: () =>
        this.#others()
          .filter(isThere)
          .map(({ id }) => id),
    })
    this.drain = new NodeDrain({
      lease: cluster.lease,
      sessions: () => this.#sessionIds(),
      left: () => this.#load(),
      hasOthers: () => this.#others().some(({ standing }) => standing === 'serving'),
      log,
      clock,
    })
    this.duties = new ClusterJobs(nodeId)
    this.#leftChanges = new LeftChanges({
      trail: options.trail,
      isThere: (id) => this.#isThere(id),
      clock,
    })
    this.duties.share('audit', this.#leftChanges)
  }

  #openLimits(): MovedLimits {
    const { site, log, clock } = this.#options
    return new MovedLimits({
      nodeId: site.identity.nodeId,
      questions: this.questions,
      log,
      clock,
      isReached: (id) => this.#isThere(id) && (this.links.find(id)?.isReached ?? false),
      onTaken: (key, holder) => this.cluster.claims.taken(key, holder),
      statesOf: (claim) => this.#moves.statesOf(claim),
      remember: ({ key, facts: { protocol, ownerId } }, states) => {
        const { host, member: poolMember } = key
        this.#work?.policies.remember({ protocol, host, ownerId, poolMember }, { states })
      },
    })
  }

  #openMoves(): NameTransfer {
    const { registry, log, clock } = this.#options
    return new NameTransfer({
      registry,
      sessionOf: (id) => this.#work?.sessions.find(id),
      policies: { last: (place) => this.#work?.policies.last(place) },
      limits: this.#limits,
      isDraining: () => this.#isDraining,
      log,
      clock,
    })
  }

  #openCluster(): Cluster {
    const { site, server, timings, onRestartNeeded, log, clock } = this.#options
    const { nodeId } = site.identity
    const asking = new GiveQuestion({
      nodeId,
      questions: this.questions,
      connection: site.connection,
      follower: site.follower,
      claims: () => this.cluster.claims,
      log,
    })
    return new Cluster({
      server,
      connection: site.connection,
      follower: site.follower,
      steps: SITE_STEPS,
      nodeId,
      facts: site.facts,
      log,
      clock,
      ...(timings && { timings }),
      ask: (request) => asking.ask(request),
      give: (own, wanted) => this.#give(own, wanted),
      onLost: (own, holder) => this.#moves.lost(own, holder),
      onReplaced: () => onRestartNeeded('another process runs as this node'),
      onForgotten: () => onRestartNeeded('this gateway was removed from the cluster'),
      onNodes: (nodes) => this.#onNodes(nodes),
      onClaims: (rows) => this.#onClaims(rows),
      onSettled: () => this.routes.onSettled(),
    })
  }

  #openNames(): NodeNames {
    const { registry, ids, log, clock } = this.#options
    const { claims, table, nodes } = this.cluster
    return new NodeNames({
      claims,
      table,
      registry,
      ids,
      limits: this.#limits,
      log,
      lastHome: (key) => table.lastHome(key),
      isForeign: (key, ownerId) =>
        table.isForeign(key, ownerId, clock.now(), (row) => this.#mayReturn(row)),
      mayOpen: () => !this.#isDraining,
      isDraining: (id) => nodes.find(id)?.standing === 'draining',
      onOpened: (host) => this.routes.onHomeChange(host),
      canClaim: () => this.#canClaim,
      reachedHolder: (key) => {
        const id = table.get(key)?.node ?? this.nodeId
        return this.links.find(id)?.session && nodes.find(id)?.facts.name
      },
      onUnconfirmed: () => this.#refusedNames.note(),
    })
  }

  get ownRoutes(): OwnRoutes {
    return this.routes.forPeers
  }

  get nodeId(): string {
    return this.others.self
  }

  get readiness(): Readiness {
    return readinessOf({ ...this.#condition, isOutageOwn: this.#outage.isOwn })
  }

  get #condition(): OwnCondition {
    const { problem } = this.#options.site.database
    const { lease } = this.cluster
    return { lease: lease.state, isDraining: this.#isDraining, clock: this.#clockFault, problem }
  }

  get #clockFault(): ClockFault | undefined {
    const others = this.#others().filter(isThere)
    const offs = others.map(({ facts }) => facts.clockOffMs)
    return clockFaultOf(this.cluster.lease.clockOffMs, offs)
  }

  /** Logs a change. */
  #tellClock(): void {
    const { log } = this.#options
    const fault = this.#clockFault
    if (fault === this.#toldClock) return
    this.#toldClock = fault
    const { clockOffMs } = this.cluster.lease
    if (fault === 'own') log.error({ clockOffMs }, 'the clock of this machine is wrong')
    else if (fault) log.warn({ clockOffMs }, 'the clocks of this machine and of PostgreSQL differ')
    else log.info('the clocks of this machine and of PostgreSQL agree again')
  }

  get #isDraining(): boolean {
    return this.cluster.lease.standing === 'draining'
  }

  /** Remaining work of a drain. */
  #load(): DrainLeft {
    const { registry } = this.#options
    let requests = 0
    for (const { active } of registry.totals.byProtocol().values()) requests += active
    // A name is still here as long as its counts are.
    let endpoints = this.#limits.awaited + this.#moves.expected
    for (const endpoint of registry.all()) {
      if (endpoint.type === 'agent' || this.names.isHome(endpoint)) endpoints += 1
    }
    return { agents: this.#sessionIds().length, endpoints, requests }
  }

  get #canClaim(): boolean {
    const { connection } = this.#options.site
    return this.cluster.lease.state === 'held' && connection.state === 'ready'
  }

  #retryNames(): void {
    for (const session of this.#work?.sessions.all() ?? []) session.retryNames?.()
  }

  #sessionIds(): string[] {
    return Array.from(this.#work?.sessions.all() ?? [], ({ id }) => id)
  }

  /** Whether another node of the site serves, as far as this node knows. */
  #isThere(nodeId: string): boolean {
    const row = this.cluster.nodes.find(nodeId)
    return row !== undefined && isThere(row)
  }

  #onLink(nodeId: string): void {
    if (this.links.find(nodeId)?.session) this.routes.onNodeUp(nodeId)
  }

  /** Takes up its work, or tries to while PostgreSQL is away. Throws a StartError. */
  async start(work: LocalWork): Promise<void> {
    const { peerListen: listen, ports, log, clock } = this.#options
    this.#work = work
    this.drain.open(work.sendAway)
    const listener = new PeerListener({
      ...{ listen, identity: this.#identity.current, ports, log, clock },
      isKnown: (id) => this.#isKnown(id),
      onVisitor: (stream, origin) => work.ingress.acceptPeer(stream, origin),
      onQuestion: (message) => this.questions.answer(message),
    })
    this.#listener = listener
    await listener.start()
    this.#identity.start()
    this.#outage.start()
    if (await this.#isDatabaseThere()) return this.cluster.start()
    this.#starting = this.#startLater()
    await this.#learned.learnFirst(this.#stopping.signal)
  }

  /** Releases all names. Call it when nothing is served any longer. */
  async stop(): Promise<void> {
    this.#stopping.abort('stopped')
    this.drain.stop()
    this.#identity.stop()
    this.#leftChanges.release()
    this.duties.clear()
    await this.#refusedNames.stop()
    await this.#starting
    // The next steps may wait for an unreachable database.
    this.#listener?.close()
    await this.#outage.stop()
    await this.cluster.stop()
    await this.links.stop()
    await this.#listener?.stop()
  }

  /** A new node needs a poll. Without the database, a certificate alone is not enough. */
  async #isKnown(nodeId: string): Promise<boolean | undefined> {
    const hasLooked = this.#isListed(nodeId) || (await this.cluster.refreshNodes())
    return this.#isListed(nodeId) || (hasLooked ? false : undefined)
  }

  /** Only PostgreSQL tells which nodes were removed: what other nodes say is not enough. */
  #isListed(nodeId: string): boolean {
    const { number, nodes } = this.cluster
    return number !== undefined && nodes.find(nodeId) !== undefined
  }

  /** A cloud endpoint is adopted by another node at once; a device comes back as long as it may. */
  #mayReturn({ host, facts: { credentialId, protocol, ownerId } }: ClaimRow): boolean {
    if (credentialId === null) return false
    return this.#options.authority.mayBind({ host, protocol, ownerId, credentialId, drawn: {} })
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
      do {
        await clock.sleep(RETRY_MS, signal)
        await this.#learned.learn()
      } while (!(await this.#isDatabaseThere()))
      await this.cluster.start()
    } catch (err) {
      if (signal.aborted) return
      log.error({ err }, 'this gateway could not start to serve')
      onRestartNeeded('this gateway could not join the cluster')
    }
  }

  /** An endpoint that is being opened here is opened first. Then its holder is checked again. */
  #give(own: Claim, wanted: Claim): Promise<boolean> {
    return this.names.run(own, async () => {
      const isOurs = this.cluster.claims.heldBy(own.key) === own
      return isOurs && (await this.#moves.give(own, wanted))
    })
  }

  /**
   * All nodes know all cloud endpoints. An endpoint with limits is served by one node, which counts its
   * visitors.
   */
  #ownershipOf(endpoint: Endpoint): Ownership {
    const { claims } = this.cluster
    const { type, policy, ownerId, poolMember } = endpoint
    if (type === 'cloud' && policy.limiters.length === 0) return 'owned'
    const key = claimKey(endpoint, ownerId, poolMember)
    if (type === 'cloud' && this.names.isAwaited(key)) return 'unknown'
    return type === 'cloud' ? claims.ownershipOfCounter(key) : claims.ownershipOfDevice(key)
  }

  #onNodes(nodes: readonly NodeRow[]): void {
    this.#listener?.keep((id) => this.#isListed(id))
    // A node that was given up may have lost only PostgreSQL, and still serve.
    const followed = nodes.filter(({ standing }) => standing !== 'left')
    const known = followed.map(({ id, facts: { peer } }) => ({ id, address: peer }))
    this.links.follow([...this.#learned.peers, ...known])
    this.#learned.keep(nodes)
    this.#tellClock()
    this.drain.onNodes()
    this.#adopt(nodes)
    this.duties.divide(nodes, this.cluster.lease.state === 'held')
  }

  #onClaims(rows: readonly ClaimRow[]): void {
    const { registry } = this.#options
    this.#adopted = ''
    for (const { host, node, entrance, facts } of rows) {
      if (node !== null && node !== this.nodeId) {
        // Requests that wait here for the device go to its new node.
        const away = registry.disconnectedAt({ protocol: facts.protocol, host }, facts.ownerId)
        if (away) registry.forget(away)
        if (entrance === 'tcp') this.#work?.ingress.openAddress(host).catch(() => {})
      }
      this.routes.onHomeChange(host)
    }
  }

  /** Claims cloud endpoints of no node, or of a draining node, if they fall to this node. */
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

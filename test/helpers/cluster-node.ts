import { randomUUID } from 'node:crypto'
import { createLogger } from '../../src/base/logger.ts'
import { type Claim, claimKey } from '../../src/gateway/cluster/nodes/claim.ts'
import { Cluster, type ClusterOptions } from '../../src/gateway/cluster/nodes/cluster.ts'
import { CLUSTER_STEPS } from '../../src/gateway/cluster/nodes/cluster-schema.ts'
import type { NodeFacts } from '../../src/gateway/cluster/nodes/node-facts.ts'
import { MATERIAL_STEPS } from '../../src/gateway/cluster/nodes/shared-material.ts'
import { GiveQuestion } from '../../src/gateway/cluster/peer-rpc.ts'
import { DatabaseFollower } from '../../src/gateway/cluster/postgres/database-follower.ts'
import { PostgresConnection } from '../../src/gateway/cluster/postgres/postgres-connection.ts'
import type { PostgresServer } from '../../src/gateway/cluster/postgres/postgres-session.ts'
import { NoAnswerError } from '../../src/gateway/ports/other-gateways.ts'
import type { DatabaseAddress } from '../../src/settings/database-url.ts'
import { ChaosProxy } from './chaos-proxy.ts'
import { PausableClock } from './pausable-clock.ts'

/** Twenty times as fast as in earnest. */
export const FAST = { beatMs: 100, retryMs: 50, leaseMs: 600, lookMs: 50 }

export function nodeFacts(change: Partial<NodeFacts> = {}): NodeFacts {
  return {
    name: 'one',
    version: '1.0.0',
    protocol: 1,
    oldestProtocol: 1,
    instance: randomUUID(),
    peer: { host: '127.0.0.1', port: 4444 },
    agentAddresses: [],
    ports: { http: 80, https: 443 },
    startedAt: 0,
    ...change,
  }
}

let count = 0

/** A claim of a new endpoint. */
export function claimOf(host: string, change: Partial<Claim['facts']> = {}, member = ''): Claim {
  count += 1
  const facts: Claim['facts'] = {
    endpointId: `tn_${count}`,
    kind: 'agent',
    protocol: 'https',
    url: `https://${host}`,
    ownerId: 'bot_1',
    endsTls: false,
    isShared: false,
    sessionId: null,
    credentialId: null,
    clientId: null,
    deviceId: 'device',
    instance: null,
    generation: count,
    ...change,
  }
  return { key: claimKey({ protocol: facts.protocol, host }, facts.ownerId, member), facts }
}

/** Nodes that reach PostgreSQL and not each other. */
const NO_LINKS = {
  on: () => {},
  ask: (id: string) => Promise.reject(new NoAnswerError(`no link to the node ${id}`)),
}

/** A node of a cluster in this process, with a clock and a way to the database of its own. */
export class TestNode {
  readonly clock = new PausableClock()
  readonly lost: string[] = []
  readonly cluster: Cluster
  readonly proxy: ChaosProxy
  /** Without the proxy. */
  readonly server: PostgresServer
  isAlive = true
  readonly #connection: PostgresConnection
  readonly #follower: DatabaseFollower
  #stopping: Promise<void> | undefined
  isReplaced = false
  isForgotten = false

  private constructor(
    proxy: ChaosProxy,
    address: DatabaseAddress,
    nodeId: string,
    options: Partial<ClusterOptions>,
  ) {
    this.proxy = proxy
    this.server = { address, password: address.password, passwordPath: undefined }
    const server = { ...this.server, address: { ...address, ...proxy.address } }
    const common = { server, log: createLogger('silent'), clock: this.clock }
    this.#connection = new PostgresConnection({ ...common, name: 'claims' })
    this.#follower = new DatabaseFollower({ ...common, name: 'follower' })
    const parts = { connection: this.#connection, follower: this.#follower }
    const claims = () => this.cluster.claims
    const asking = new GiveQuestion({ nodeId, questions: NO_LINKS, claims, ...parts, ...common })
    this.cluster = new Cluster({
      ...common,
      ...parts,
      ask: (request) => asking.ask(request),
      steps: [...CLUSTER_STEPS, ...MATERIAL_STEPS],
      nodeId,
      facts: nodeFacts({ name: nodeId }),
      timings: FAST,
      give: () => Promise.resolve(true),
      onReplaced: () => {
        this.isReplaced = true
      },
      onForgotten: () => {
        this.isForgotten = true
      },
      onLost: (claim) => this.lost.push(claim.key.host),
      ...options,
    })
  }

  static async start(
    address: DatabaseAddress,
    nodeId: string,
    options: Partial<ClusterOptions> = {},
  ): Promise<TestNode> {
    const node = new TestNode(await ChaosProxy.start(address), address, nodeId, options)
    node.#connection.start()
    node.#follower.start()
    await node.cluster.start()
    return node
  }

  /** Whether the node serves that name as its own now; a process that is stopped serves nobody. */
  owns(claim: Claim): boolean {
    return this.isAlive && !this.clock.isPaused && this.cluster.claims.owns(claim.key)
  }

  /** As SIGSTOP. */
  pause(): void {
    this.clock.pause()
    this.proxy.freeze()
  }

  /** As SIGCONT. */
  resume(): void {
    this.clock.resume()
    this.proxy.thaw()
  }

  /** As SIGKILL: it says goodbye to nobody. */
  kill(): void {
    this.clock.resume()
    this.proxy.thaw()
    this.proxy.refuse()
    this.proxy.cut()
    void this.stop()
  }

  /** May be called twice. */
  stop(): Promise<void> {
    this.isAlive = false
    this.#stopping ??= this.#end()
    return this.#stopping
  }

  async #end(): Promise<void> {
    await this.cluster.stop()
    await this.#follower.stop()
    await this.#connection.stop()
    await this.proxy.stop()
  }
}

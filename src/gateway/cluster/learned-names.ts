import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { writeFileDurably } from '../../base/file.ts'
import type { Logger } from '../../base/logger.ts'
import type { ClaimRow } from './nodes/claim.ts'
import type { Cluster } from './nodes/cluster.ts'
import { ClaimRowSchema } from './nodes/cluster-feed.ts'
import { type NodeRow, NodeRowSchema } from './nodes/node-facts.ts'
import type { PeerRpc } from './peer-rpc.ts'
import type { PeerLinks, PeerNode } from './peers/peer-links.ts'

const QUESTION = 'names'
/** File with the addresses of the other nodes, in the data directory. */
const PEERS_FILE = 'peers.json'
/** Names in one answer: about 1 MB. */
const PAGE = 2_000
/** Visitors wait this long for an answer of another node when PostgreSQL is away. */
const FIRST_MS = 5_000
const POLL_MS = 100

const PeersSchema = z.array(z.object({ id: z.string(), host: z.string(), port: z.int() }))
/** `number`: of the names that the asker has, or of its first page. */
const AskedSchema = z.strictObject({ from: z.int().min(0), number: z.int().nullable() })
const PageSchema = z.object({
  /** Last change that the node has read from PostgreSQL; null before its first poll. */
  number: z.int().nullable(),
  nodes: z.array(z.unknown()),
  claims: z.array(z.unknown()),
  isLast: z.boolean(),
})
type Page = z.infer<typeof PageSchema>
const NOTHING: Page = { number: null, nodes: [], claims: [], isLast: true }

/** The first page of a node. */
interface Answer {
  readonly nodeId: string
  readonly number: number
  readonly nodes: readonly NodeRow[]
  readonly page: Page
}

export interface LearnedNamesOptions {
  /** Data directory. */
  readonly folder: string
  readonly cluster: Pick<Cluster, 'number' | 'nodes' | 'table' | 'learn'>
  readonly links: Pick<PeerLinks, 'follow' | 'all'>
  readonly questions: Pick<PeerRpc, 'on' | 'ask'>
  readonly log: Logger
  readonly clock: Clock
}

/**
 * Asks the other nodes for all names, for a node that starts while PostgreSQL is away. Their addresses are
 * kept in the data directory.
 */
export class LearnedNames {
  readonly #options: LearnedNamesOptions
  /** Content of the file. */
  #kept: string | undefined
  /** Number of the learned names. */
  #number: number | null = null
  /** Nodes in the file, at the start. */
  #peers: readonly PeerNode[] = []
  /** Names of one moment, for an asker that needs more than one page. */
  #snapshot: { readonly number: number; readonly rows: readonly ClaimRow[] } | undefined

  constructor(options: LearnedNamesOptions) {
    this.#options = options
    options.questions.on(QUESTION, (of) => this.#answer(AskedSchema.parse(of)))
  }

  /** Nodes to link to beside the known ones, until PostgreSQL has told which nodes there are. */
  get peers(): readonly PeerNode[] {
    return this.#options.cluster.number === undefined ? this.#peers : []
  }

  /** Saves the addresses of the other nodes when they have changed. Only PostgreSQL knows them for sure. */
  keep(nodes: readonly NodeRow[]): void {
    const { folder, cluster, log } = this.#options
    if (cluster.number === undefined) return
    const peers = nodes.map(({ id, facts: { peer } }) => ({ id, host: peer.host, port: peer.port }))
    const content = `${JSON.stringify(peers)}\n`
    if (content === this.#kept) return
    this.#kept = content
    try {
      writeFileDurably(join(folder, PEERS_FILE), content)
    } catch (err) {
      log.warn({ err }, 'the addresses of the other nodes could not be saved')
    }
  }

  /** Links to the nodes in the file, and waits a while for the first answer. */
  async learnFirst(signal: AbortSignal): Promise<void> {
    const { links, clock, log } = this.#options
    const peers = this.#readPeers()
    this.#peers = peers.map(({ id, host, port }) => ({ id, address: { host, port } }))
    links.follow(this.#peers)
    const until = clock.monotonic() + FIRST_MS
    while (peers.length > 0 && clock.monotonic() < until && !signal.aborted) {
      if (await this.learn()) return
      await clock.sleep(POLL_MS, signal).catch(() => {})
    }
    log.warn('no other node has answered: visitors get 503 until the names are known')
  }

  /** Takes the names of the node that knows the latest change. Returns false if no node has answered. */
  async learn(): Promise<boolean> {
    const { cluster, links, log } = this.#options
    const ids = Array.from(links.all()).flatMap(({ nodeId, session }) => (session ? [nodeId] : []))
    const all = await Promise.all(ids.map((id) => this.#ask(id).catch(() => undefined)))
    const answers = all.flatMap((answer) => answer ?? [])
    const [latest] = answers
      .filter(({ nodeId }) => isListed(nodeId, answers))
      .sort((one, other) => other.number - one.number)
    if (!latest || latest.number === this.#number) return latest !== undefined
    const claims = await this.#claimsOf(latest).catch(() => undefined)
    if (!claims) return cluster.table.areKnown()
    if (!cluster.table.areKnown())
      log.info({ names: claims.length }, 'names learned from another node')
    this.#number = latest.number
    cluster.learn(latest.nodes, claims)
    return true
  }

  #readPeers(): z.infer<typeof PeersSchema> {
    const { folder, log } = this.#options
    try {
      return PeersSchema.parse(JSON.parse(readFileSync(join(folder, PEERS_FILE), 'utf8')))
    } catch (err) {
      log.info({ err }, 'no addresses of other nodes are saved')
      return []
    }
  }

  #answer({ from, number }: z.infer<typeof AskedSchema>): Page {
    const { number: current = null, nodes, table } = this.#options.cluster
    if (current === null) return NOTHING
    if (from === 0) {
      if (number === current) return { number, nodes: nodes.all(), claims: [], isLast: true }
      this.#snapshot = { number: current, rows: table.rows() }
    }
    const { rows, number: ofRows } = this.#snapshot ?? { rows: [], number: null }
    const claims = rows.slice(from, from + PAGE)
    const isLast = from + PAGE >= rows.length
    if (isLast) this.#snapshot = undefined
    return { number: ofRows, nodes: from === 0 ? nodes.all() : [], claims, isLast }
  }

  /** Undefined if the node knows nothing. */
  async #ask(nodeId: string): Promise<Answer | undefined> {
    const { questions } = this.#options
    const asked = { from: 0, number: this.#number }
    const page = PageSchema.parse(await questions.ask(nodeId, QUESTION, asked))
    const { number } = page
    if (number === null) return undefined
    return { nodeId, number, nodes: understood(NodeRowSchema, page.nodes), page }
  }

  /** Undefined if the node has answered another asker in between. */
  async #claimsOf({ nodeId, number, page: first }: Answer): Promise<ClaimRow[] | undefined> {
    const { questions } = this.#options
    const claims = understood(ClaimRowSchema, first.claims)
    for (let page = first, from = PAGE; !page.isLast; from += PAGE) {
      page = PageSchema.parse(await questions.ask(nodeId, QUESTION, { from, number }))
      if (page.number !== number) return undefined
      claims.push(...understood(ClaimRowSchema, page.claims))
    }
    return claims
  }
}

/** A node that another node does not list may have been removed. */
function isListed(nodeId: string, answers: readonly Answer[]): boolean {
  return answers.every(
    (other) => other.nodeId === nodeId || other.nodes.some(({ id }) => id === nodeId),
  )
}

/** A newer node may have rows that this version does not know. */
function understood<T>(schema: z.ZodType<T>, rows: readonly unknown[]): T[] {
  return rows.flatMap((row) => {
    const { data } = schema.safeParse(row)
    return data === undefined ? [] : [data]
  })
}

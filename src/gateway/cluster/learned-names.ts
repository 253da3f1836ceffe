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
import type { PeerLinks } from './peers/peer-links.ts'

const QUESTION = 'names'
/** File with the addresses of the other nodes, in the data directory. */
const PEERS_FILE = 'peers.json'
/** Names in one answer: about 1 MB. */
const PAGE = 2_000
/** Visitors wait this long for an answer of another node when PostgreSQL is away. */
const FIRST_MS = 5_000
const POLL_MS = 100

const PeersSchema = z.array(z.object({ id: z.string(), host: z.string(), port: z.int() }))
const AskedSchema = z.strictObject({ from: z.int().min(0) })
const PageSchema = z.object({
  /** Last change that the node has read from PostgreSQL; null before its first poll. */
  number: z.int().nullable(),
  nodes: z.array(z.unknown()),
  claims: z.array(z.unknown()),
  isLast: z.boolean(),
})

interface Known {
  readonly number: number
  readonly nodes: readonly NodeRow[]
  readonly claims: readonly ClaimRow[]
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

  constructor(options: LearnedNamesOptions) {
    this.#options = options
    options.questions.on(QUESTION, (of) => this.#answer(AskedSchema.parse(of).from))
  }

  /** Saves the addresses of the other nodes when they have changed. */
  keep(nodes: readonly NodeRow[]): void {
    const { folder, log } = this.#options
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
    links.follow(peers.map(({ id, host, port }) => ({ id, address: { host, port } })))
    const until = clock.monotonic() + FIRST_MS
    while (peers.length > 0 && clock.monotonic() < until && !signal.aborted) {
      if (await this.learn()) return
      await clock.sleep(POLL_MS, signal).catch(() => {})
    }
    log.warn('no other node has answered: visitors get 503 until the names are known')
  }

  /** Takes the names of the node that knows the latest change. Returns false if no node has answered. */
  async learn(): Promise<boolean> {
    const { cluster, links } = this.#options
    const ids = Array.from(links.all()).flatMap(({ nodeId, session }) => (session ? [nodeId] : []))
    const answers = await Promise.all(ids.map((id) => this.#ask(id).catch(() => undefined)))
    let latest: Known | undefined
    for (const known of answers) if (known && known.number >= (latest?.number ?? 0)) latest = known
    if (latest) {
      if (!cluster.table.areKnown())
        this.#options.log.info({ names: latest.claims.length }, 'names learned from another node')
      cluster.learn(latest.nodes, latest.claims)
    }
    return latest !== undefined
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

  #answer(from: number): z.infer<typeof PageSchema> {
    const { number = null, nodes, table } = this.#options.cluster
    const rows = number === null ? [] : table.rows()
    const claims = rows.slice(from, from + PAGE)
    return { number, nodes: nodes.all(), claims, isLast: from + PAGE >= rows.length }
  }

  /** Undefined if the node knows nothing, or its names have changed between two pages. */
  async #ask(nodeId: string): Promise<Known | undefined> {
    const { questions } = this.#options
    const claims: ClaimRow[] = []
    let first: number | undefined
    for (let from = 0; ; from += PAGE) {
      const page = PageSchema.parse(await questions.ask(nodeId, QUESTION, { from }))
      const { number } = page
      if (number === null || number !== (first ?? number)) return undefined
      first = number
      claims.push(...understood(ClaimRowSchema, page.claims))
      if (page.isLast) return { number, nodes: understood(NodeRowSchema, page.nodes), claims }
    }
  }
}

/** A newer node may have rows that this version does not know. */
function understood<T>(schema: z.ZodType<T>, rows: readonly unknown[]): T[] {
  return rows.flatMap((row) => {
    const { data } = schema.safeParse(row)
    return data === undefined ? [] : [data]
  })
}

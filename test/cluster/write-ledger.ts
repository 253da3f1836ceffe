import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import type { TrialNode, TrialSite } from './trial-site.ts'

/** An API key may make 120 requests a minute. */
const EVERY_MS = 1_000
const DELETED = 0.4
/** The list is read in pages of a hundred. */
const MAX_RECORDS = 250
/** How soon all nodes have what one has acknowledged, without a fault. */
const SOON_MS = 10_000

interface Written {
  readonly id: string
  readonly name: string
  /** At which node, and when: for the words of a finding. */
  readonly node: number
  readonly at: number
}

/** A write that was acknowledged and is not there, or a delete whose thing is. */
export interface LostWrite extends Written {
  readonly what: 'create' | 'delete'
  readonly missingAt: number
}

/**
 * Makes and deletes bot users at all nodes in turn, and remembers what was acknowledged. What had no
 * answer, or an error, may be there or not.
 */
export class WriteLedger {
  readonly #site: TrialSite
  readonly #random: () => number
  readonly #present = new Map<string, Written>()
  readonly #deleted = new Map<string, Written>()
  #keys: readonly string[] = []
  #isOver = false
  #working: Promise<void> | undefined
  acknowledged = 0
  refused = 0

  constructor(site: TrialSite, random: () => number) {
    this.#site = site
    this.#random = random
  }

  async start(): Promise<void> {
    const [node] = this.#site.nodes
    if (!node) throw new Error('there are no nodes')
    const keys: string[] = []
    // One to write with, one to read with, at each node.
    for (const { number } of [...this.#site.nodes, ...this.#site.nodes]) {
      const made = await this.#site.manage(node, 'POST', '/api_keys', {
        description: `of node ${number}`,
      })
      keys.push(made.body.token)
    }
    this.#keys = keys
    this.#working = this.#work()
  }

  async stop(): Promise<void> {
    this.#isOver = true
    await this.#working
  }

  /** What is missing at nodes that should have it by now. Everything has to be well. */
  async lost(): Promise<LostWrite[]> {
    const found = await Promise.all(this.#site.nodes.map((node) => this.#lostAt(node)))
    return found.flat()
  }

  async #lostAt(node: TrialNode): Promise<LostWrite[]> {
    const end = performance.now() + SOON_MS
    const [present, deleted] = [[...this.#present.values()], [...this.#deleted.values()]]
    for (;;) {
      const listed = await this.#list(node)
      const missing = [
        // What was deleted meanwhile is not missing.
        ...present
          .filter(({ id }) => !listed.has(id) && this.#present.has(id))
          .map((it) => ({ ...it, what: 'create' as const })),
        ...deleted
          .filter(({ id }) => listed.has(id))
          .map((it) => ({ ...it, what: 'delete' as const })),
      ].map((it) => ({ ...it, missingAt: node.number }))
      if (missing.length === 0 || performance.now() > end) return missing
      await sleep(1_000)
    }
  }

  async #work(): Promise<void> {
    for (let n = 0; !this.#isOver; n += 1) {
      const node = this.#site.nodes[n % this.#site.nodes.length] as TrialNode
      const isAcknowledged = await this.#change(node, n).catch(() => false)
      if (isAcknowledged) this.acknowledged += 1
      else this.refused += 1
      await sleep(EVERY_MS)
    }
  }

  /** Whether the node has said that it is done. */
  async #change(node: TrialNode, n: number): Promise<boolean> {
    const key = this.#keys[node.number - 1] ?? ''
    const ids = [...this.#present.keys()]
    const isDelete = ids.length > MAX_RECORDS || (ids.length > 3 && this.#random() < DELETED)
    const doomed = isDelete ? this.#present.get(ids[n % ids.length] ?? '') : undefined
    const at = performance.now()
    if (doomed) {
      // From here on it may be gone.
      this.#present.delete(doomed.id)
      const path = `/bot_users/${doomed.id}`
      const { status } = await this.#site.manage(node, 'DELETE', path, undefined, { key })
      if (status !== 204) return false
      this.#deleted.set(doomed.id, { ...doomed, node: node.number, at })
      return true
    }
    const name = `user${n}`
    const { status, body } = await this.#site.manage(node, 'POST', '/bot_users', { name }, { key })
    if (status !== 201) return false
    this.#present.set(body.id, { id: body.id, name, node: node.number, at })
    return true
  }

  async #list(node: TrialNode): Promise<Set<string>> {
    const key = this.#keys[this.#site.nodes.length + node.number - 1] ?? ''
    const ids = new Set<string>()
    let path: string | undefined = '/bot_users?limit=100'
    while (path !== undefined) {
      const answer = await this.#site.manage(node, 'GET', path, undefined, { key })
      if (answer.status !== 200) throw new Error(`${node.number}: ${JSON.stringify(answer.body)}`)
      const { bot_users, next_page_uri } = answer.body
      for (const { id } of bot_users) ids.add(id)
      const next: URL | undefined = next_page_uri ? new URL(next_page_uri) : undefined
      path = next && `${next.pathname}${next.search}`
    }
    return ids
  }
}

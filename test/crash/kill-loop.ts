import { setTimeout as sleep } from 'node:timers/promises'
import { type EchoUpstream, startEchoUpstream } from '../helpers/echo-upstream.ts'
import { eventually } from '../helpers/eventually.ts'
import { seeded } from '../helpers/seeded.ts'
import { Site } from '../helpers/site.ts'

const NAMES = 12
const LONGEST_LIFE_MS = 400

/** What the acknowledgements so far allow for one domain. */
type Belief = 'present' | 'absent' | 'either'

export interface KillLoopReport {
  readonly kills: number
  readonly created: number
  readonly deleted: number
  /** Requests that were under way when the process died: both outcomes are right. */
  readonly unanswered: number
}

/**
 * Kills the agent at random moments during creates and deletes. After each restart: what was
 * acknowledged is what is there, each listed tunnel carries traffic, and no other name does.
 */
export class KillLoop {
  readonly #site: Site
  readonly #upstream: EchoUpstream
  readonly #random: () => number
  readonly #beliefs = new Map<string, Belief>()
  #created = 0
  #deleted = 0
  #unanswered = 0

  private constructor(site: Site, upstream: EchoUpstream, random: () => number) {
    this.#site = site
    this.#upstream = upstream
    this.#random = random
    for (let name = 0; name < NAMES; name += 1) {
      this.#beliefs.set(`device${name}.site.localhost`, 'absent')
    }
  }

  static async run(options: {
    readonly folder: string
    readonly kills: number
    readonly seed: number
    readonly onKill?: (count: number) => void
  }): Promise<KillLoopReport> {
    const upstream = await startEchoUpstream()
    const site = await Site.start(options.folder)
    const loop = new KillLoop(site, upstream, seeded(options.seed))
    try {
      for (let count = 1; count <= options.kills; count += 1) {
        await loop.#live()
        await site.startAgent()
        await loop.#compare()
        options.onKill?.(count)
      }
      return {
        kills: options.kills,
        created: loop.#created,
        deleted: loop.#deleted,
        unanswered: loop.#unanswered,
      }
    } finally {
      await site.stop()
      await upstream.close()
    }
  }

  /** Three clients change tunnels until the process is killed under their hands. */
  async #live(): Promise<void> {
    let isAlive = true
    const clients = Promise.all(
      [0, 1, 2].map(async (client) => {
        while (isAlive) await this.#change(client)
      }),
    )
    // A finding is thrown below; until then it must not count as unhandled.
    clients.catch(() => {})
    await sleep(this.#random() * LONGEST_LIFE_MS)
    await this.#site.agent.end('SIGKILL')
    isAlive = false
    await clients
  }

  /** Each client has names of its own, so that a belief never depends on two requests at once. */
  async #change(client: number): Promise<void> {
    const own = [...this.#beliefs.keys()].filter((_, index) => index % 3 === client)
    const domain = own[Math.floor(this.#random() * own.length)] ?? ''
    const belief = this.#beliefs.get(domain)
    this.#beliefs.set(domain, 'either')
    try {
      if (belief === 'absent') {
        const { status } = await this.#site.create(domain, this.#upstream.port)
        if (status !== 200 && status !== 202) throw new Error(`create answered ${status}`)
        this.#beliefs.set(domain, 'present')
        this.#created += 1
      } else {
        const { status } = await this.#site.call('DELETE', `/tunnels/${domain}`)
        if (status !== 204) throw new Error(`delete answered ${status}`)
        this.#beliefs.set(domain, 'absent')
        this.#deleted += 1
      }
    } catch (error) {
      // The connection of a killed process; anything else is a finding.
      if (!(error instanceof TypeError)) throw error
      this.#unanswered += 1
      await sleep(5)
    }
  }

  async #compare(): Promise<void> {
    const storage = await this.#site.call('GET', '/storage')
    const { healed, unconfirmed } = (await storage.json()) as Record<string, unknown[] | null>
    if (healed || unconfirmed?.length) throw new Error('a kill was taken for damage')
    const listed = new Set((await this.#site.list()).map((tunnel) => tunnel.domain))
    for (const [domain, belief] of this.#beliefs) {
      if (belief === 'present' && !listed.has(domain)) throw new Error(`lost: ${domain}`)
      if (belief === 'absent' && listed.has(domain)) throw new Error(`ghost row: ${domain}`)
      this.#beliefs.set(domain, listed.has(domain) ? 'present' : 'absent')
    }
    for (const domain of this.#beliefs.keys()) {
      const expected = listed.has(domain) ? 200 : 404
      await eventually(async () => {
        const { status } = await this.#site.visit(domain)
        if (status !== expected) throw new Error(`${domain} answers ${status}, not ${expected}`)
      })
    }
  }
}

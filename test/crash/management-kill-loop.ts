import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Program } from '../helpers/program.ts'
import { seeded } from '../helpers/seeded.ts'
import type { GatewayReady } from '../helpers/site.ts'

const LONGEST_LIFE_MS = 300
/** How many of a kind a client keeps; above that it deletes. */
const KEPT = 8

const DENY = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] })

/** What can be created and deleted, the list's key, and a body that makes one. */
const KINDS = [
  {
    path: 'reserved_domains',
    collection: 'reserved_domains',
    body: (label: string) => ({ domain: `*.${label}.test` }),
  },
  { path: 'bot_users', collection: 'bot_users', body: (label: string) => ({ name: label }) },
  {
    path: 'credentials',
    collection: 'credentials',
    body: (label: string) => ({ description: label, acl: [`bind:*.${label}.test`] }),
  },
  {
    path: 'api_keys',
    collection: 'keys',
    body: (label: string) => ({ description: label }),
  },
  {
    path: 'endpoints',
    collection: 'endpoints',
    body: (label: string) => ({ url: `https://${label}.site.localhost`, traffic_policy: DENY }),
  },
] as const

type Kind = (typeof KINDS)[number]

/** One thing as it was told to a client, or will be once it answers. */
interface Item {
  readonly id: string
  readonly [field: string]: unknown
}

export interface ManagementKillLoopReport {
  readonly kills: number
  readonly created: number
  readonly deleted: number
  /** Requests that were under way when the process died: both outcomes are right. */
  readonly unanswered: number
}

/**
 * Kills the gateway at random moments while clients create and delete domains, bot users,
 * authtokens, API keys and cloud endpoints. After each restart: what was acknowledged is there, as it was told,
 * what was deleted is gone, and beyond that there is at most what was under way.
 */
export class ManagementKillLoop {
  readonly #folder: string
  readonly #random: () => number
  /** Acknowledged and not deleted since, by kind and id. */
  readonly #present = new Map<Kind, Map<string, Item>>()
  /** What was there before the first change: nobody deletes it. */
  readonly #spared = new Set<string>()
  /** An API key for each client: a single one may not make that many requests. */
  readonly #keys = new Map<Kind, string>()
  /** Deletes that were under way at the last kill. */
  readonly #doubtful = new Set<string>()
  /** Creates that were under way at the last kill, of all kinds. */
  #unansweredCreates = 0
  #gateway: Program
  #ready: GatewayReady
  #drawn = 0
  #created = 0
  #deleted = 0
  #unanswered = 0

  private constructor(
    folder: string,
    random: () => number,
    [gateway, ready]: readonly [Program, GatewayReady],
  ) {
    this.#folder = folder
    this.#random = random
    this.#gateway = gateway
    this.#ready = ready
  }

  static async run(options: {
    readonly folder: string
    readonly kills: number
    readonly seed: number
    readonly onKill?: (count: number) => void
  }): Promise<ManagementKillLoopReport> {
    const { folder, kills, seed, onKill } = options
    const loop = new ManagementKillLoop(folder, seeded(seed), await startGateway(folder))
    try {
      await loop.#settle()
      for (let count = 1; count <= kills; count += 1) {
        await loop.#live()
        ;[loop.#gateway, loop.#ready] = await startGateway(loop.#folder)
        await loop.#compare()
        onKill?.(count)
      }
      const [created, deleted, unanswered] = [loop.#created, loop.#deleted, loop.#unanswered]
      return { kills, created, deleted, unanswered }
    } finally {
      await loop.#gateway.end()
    }
  }

  async #settle(): Promise<void> {
    for (const kind of KINDS) {
      const answer = await this.#call('POST', '/api_keys', { description: kind.path })
      this.#keys.set(kind, ((await answer.json()) as { token: string }).token)
    }
    for (const kind of KINDS) {
      const listed = await this.#list(kind)
      this.#present.set(kind, listed)
      for (const id of listed.keys()) this.#spared.add(id)
    }
  }

  /** A client for each kind changes things until the process is killed under their hands. */
  async #live(): Promise<void> {
    let isAlive = true
    const clients = Promise.all(
      KINDS.map(async (kind) => {
        while (isAlive) await this.#change(kind)
      }),
    )
    // A finding is thrown below; until then it must not count as unhandled.
    clients.catch(() => {})
    await sleep(this.#random() * LONGEST_LIFE_MS)
    await this.#gateway.end('SIGKILL')
    isAlive = false
    await clients
  }

  async #change(kind: Kind): Promise<void> {
    const present = this.#present.get(kind) ?? new Map<string, Item>()
    const ids = [...present.keys()].filter((id) => !this.#spared.has(id))
    const doomed =
      ids.length > KEPT || (ids.length > 0 && this.#random() < 0.4)
        ? ids[Math.floor(this.#random() * ids.length)]
        : undefined
    try {
      if (doomed === undefined) await this.#create(kind, present)
      else await this.#delete(kind, present, doomed)
    } catch (error) {
      // The connection of a killed process; anything else is a finding.
      if (!(error instanceof TypeError)) throw error
      this.#unanswered += 1
      await sleep(5)
    }
  }

  async #create(kind: Kind, present: Map<string, Item>): Promise<void> {
    this.#drawn += 1
    this.#unansweredCreates += 1
    const body = kind.body(`n${this.#drawn}`)
    const answer = await this.#call('POST', `/${kind.path}`, body, this.#keys.get(kind))
    const item = (await answer.json()) as Item
    this.#unansweredCreates -= 1
    if (answer.status === 429) return void (await sleep(20))
    if (answer.status !== 201) throw new Error(`create answered ${JSON.stringify(item)}`)
    present.set(item.id, item)
    this.#created += 1
  }

  async #delete(kind: Kind, present: Map<string, Item>, id: string): Promise<void> {
    this.#doubtful.add(id)
    const key = this.#keys.get(kind)
    const { status } = await this.#call('DELETE', `/${kind.path}/${id}`, undefined, key)
    if (status === 429) return void (await sleep(20))
    if (status !== 204) throw new Error(`delete answered ${status}`)
    this.#doubtful.delete(id)
    present.delete(id)
    this.#deleted += 1
  }

  /** Holds what is there against what was acknowledged, and takes it for the truth from then on. */
  async #compare(): Promise<void> {
    const storage = await this.#call('GET', '/storage')
    const { healed, unconfirmed } = (await storage.json()) as Record<string, unknown[] | null>
    if (healed || unconfirmed?.length) throw new Error('a kill was taken for damage')
    let unknown = 0
    for (const kind of KINDS) {
      const listed = await this.#list(kind)
      for (const [id, told] of this.#present.get(kind) ?? []) {
        const found = listed.get(id)
        if (!found && !this.#doubtful.has(id)) throw new Error(`lost: ${id}`)
        if (found && fingerprint(found) !== fingerprint(told)) throw new Error(`changed: ${id}`)
      }
      unknown += [...listed.keys()].filter((id) => !this.#present.get(kind)?.has(id)).length
      this.#present.set(kind, listed)
    }
    if (unknown > this.#unansweredCreates) {
      throw new Error(`${unknown} ghosts, but ${this.#unansweredCreates} creates were under way`)
    }
    this.#doubtful.clear()
    this.#unansweredCreates = 0
  }

  async #list({ path, collection }: Kind): Promise<Map<string, Item>> {
    const answer = await this.#call('GET', `/${path}?limit=100`)
    const body = (await answer.json()) as Record<string, Item[] | null>
    if (body.next_page_uri !== null) throw new Error(`there are too many ${path}`)
    return new Map(body[collection]?.map((item) => [item.id, item]))
  }

  #call(method: string, path: string, body?: object, key = this.#ownerKey()): Promise<Response> {
    return fetch(`${this.#ready.management_api}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        'svc-version': '2',
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    })
  }

  #ownerKey(): string {
    return readFileSync(this.#ready.api_key_file, 'utf8').trim()
  }
}

async function startGateway(folder: string): Promise<readonly [Program, GatewayReady]> {
  const gateway = new Program({
    args: ['gateway', '--json'],
    cwd: folder,
    env: { GATEWAY_DATA_DIR: join(folder, 'gateway'), LOG_LEVEL: 'warn' },
  })
  return [gateway, await gateway.ready<GatewayReady>()]
}

/** An item without what its creation alone tells, what goes on by itself, and the ports of a life. */
function fingerprint({ token, uri, certificate_management_status, ...rest }: Item): string {
  // A bot user that was just made is answered without its quotas and their use.
  const { last_used_at, quotas, usage, ...item } = rest
  const { domain, url, public_url, hostport, port, ...lasting } = item
  return JSON.stringify(port === undefined ? item : lasting)
}

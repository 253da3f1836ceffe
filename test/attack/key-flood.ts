import { createServer, type Server } from 'node:http'
import type { Site } from '../helpers/site.ts'
import { type Visit, visitAll } from './visitors.ts'

const HOST = 'limited.site.localhost'
const CAPACITY = 5
/**
 * What a new client sends. One may be counted where a key of the attack was that had to share, so
 * that some of its first window is used; all five would be refused to one in a hundred.
 */
const VISITS = 2
/** Longer than the attack takes on a slow machine, so that nothing is free again in between. */
const RATE = '30m'
/** Keys of the attack that come again at the end, from several addresses. */
const AGAIN = 200
const AGAIN_FROM = 4

const POLICY = {
  on_http_request: [
    {
      actions: [
        {
          type: 'rate-limit',
          config: {
            name: 'by key',
            algorithm: 'sliding_window',
            capacity: CAPACITY,
            rate: RATE,
            bucket_key: ["req.headers['x-key']"],
          },
        },
      ],
    },
  ],
}

export interface KeyFlood {
  /** What `GATEWAY_RATE_LIMIT_KEYS` is. */
  readonly tableSize: number
  readonly attackers: number
  /** A multiple of 200. */
  readonly keys: number
  /** Clients that come meanwhile and after, each with an address and a key of its own. */
  readonly newcomers: number
}

/** A gateway, an agent, and a place for services that are there as long as they are. */
export interface AttackedSite {
  readonly site: Site
  serve(server: Server): Promise<number>
}

/** Addresses with ever new keys fill the table of a rate limit; what new clients get then. */
export async function floodWithKeys(attacked: AttackedSite, flood: KeyFlood) {
  const { site } = attacked
  const { tableSize, attackers, keys, newcomers } = flood
  const port = await attacked.serve(createServer((_request, response) => response.end('ok')))
  const created = await site.create(HOST, port, POLICY)
  if (created.status !== 200) throw new Error(`no tunnel: ${await created.text()}`)

  const target = { port: Number(new URL(site.ready.ingress_http).port), host: HOST }
  /** Of each key, from whichever address. */
  const admitted = new Map<string, number>()
  const visit = async (visits: readonly Visit[]) => {
    let refused = 0
    await visitAll(target, visits, ({ key }, status) => {
      if (status === 200) admitted.set(key, (admitted.get(key) ?? 0) + 1)
      else if (status === 429) refused += 1
      else throw new Error(`a visitor got ${status}`)
    })
    return refused
  }

  const all = Array.from({ length: keys }, (_, key) => ({
    from: `127.0.1.${1 + (key % attackers)}`,
    key: `flood-${key}`,
  }))
  await visit(all.slice(0, keys / 2))
  const [, earlyRefused] = await Promise.all([
    visit(all.slice(keys / 2)),
    visit(arrivals('127.0.4', newcomers / 2)),
  ])
  const refused = earlyRefused + (await visit(arrivals('127.0.5', newcomers / 2)))
  const limits = await rateLimits(site)

  // Keys of all kinds once more: with a bucket of their own, sharing one, and of new clients.
  const some = Array.from({ length: AGAIN }, (_, index) => `flood-${(index * keys) / AGAIN}`)
  await visit([...some, '127.0.4.1', '127.0.5.1', 'unseen'].flatMap(repeated))

  const asked = newcomers * VISITS
  const worst = Math.max(...admitted.values())
  return [
    {
      what: `${newcomers} new clients, ${VISITS} requests each`,
      measured: `${asked - refused} of ${asked} got 200`,
      bar: 'all',
      isMet: refused === 0,
    },
    {
      what: `each of ${admitted.size} keys`,
      measured: `${worst} admitted at most`,
      bar: `${CAPACITY}`,
      isMet: worst === CAPACITY,
    },
    {
      what: 'the table',
      measured: `${limits.keys} of ${tableSize} in use, ${limits.shared} decisions shared`,
      bar: 'some left',
      isMet: limits.keys < tableSize && limits.shared > 0,
    },
  ]
}

function arrivals(network: string, count: number): Visit[] {
  return Array.from({ length: count * VISITS }, (_, index) => {
    const from = `${network}.${1 + (index % count)}`
    return { from, key: from }
  })
}

/** As often as a key may come, from each of several addresses. */
function repeated(key: string): Visit[] {
  return Array.from({ length: AGAIN_FROM * CAPACITY }, (_, index) => ({
    from: `127.0.3.${1 + (index % AGAIN_FROM)}`,
    key,
  }))
}

async function rateLimits(site: Site): Promise<{ keys: number; shared: number }> {
  const answer = await site.manage('GET', '/endpoints')
  const { endpoints } = (await answer.json()) as {
    endpoints: { host: string; rate_limits: { keys: number; shared: number } }[]
  }
  const endpoint = endpoints.find(({ host }) => host === HOST)
  if (!endpoint) throw new Error('the endpoint is not listed')
  return endpoint.rate_limits
}

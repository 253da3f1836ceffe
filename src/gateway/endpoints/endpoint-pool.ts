import { hash } from 'node:crypto'
import type { EndpointProtocol } from '../records/endpoint-protocol.ts'
import type { Endpoint } from './endpoint.ts'

/** Every request checks all members. Larger sets are served as well by several addresses. */
export const MAX_POOL_MEMBERS = 100
/** Clients whose pool member is remembered; some hundred bytes each. */
const MAX_CLIENTS = 50_000

/** Whether an endpoint may share its address with other endpoints of its account. */
export function isPooled({ poolMember }: Pick<Endpoint, 'poolMember'>): boolean {
  return poolMember !== undefined
}

/**
 * Endpoints of one account that share an address. Each endpoint has its own policy and does not know the
 * other members.
 */
export class EndpointPool {
  readonly type = 'pool'
  readonly host: string
  readonly protocol: EndpointProtocol
  readonly ownerId: string | null
  readonly #members: Set<Endpoint>

  constructor(first: Endpoint) {
    this.host = first.host
    this.protocol = first.protocol
    this.ownerId = first.ownerId
    this.#members = new Set([first])
  }

  get size(): number {
    return this.#members.size
  }

  [Symbol.iterator](): Iterator<Endpoint> {
    return this.#members.values()
  }

  has(endpoint: Endpoint): boolean {
    return this.#members.has(endpoint)
  }

  add(endpoint: Endpoint): void {
    this.#members.add(endpoint)
  }

  /** Returns false if it was not present. */
  remove(endpoint: Endpoint): boolean {
    return this.#members.delete(endpoint)
  }

  /**
   * Returns the member with the fewest exchanges under way. Between equal members, the least recently used
   * member. The choice stays the same until an exchange begins.
   */
  leastBusy(except?: Endpoint): Endpoint | undefined {
    let chosen: Endpoint | undefined
    for (const member of this.#members) {
      if (member !== except && (!chosen || isFreer(member, chosen))) chosen = member
    }
    return chosen
  }
}

function isFreer({ traffic: a }: Endpoint, { traffic: b }: Endpoint): boolean {
  return a.active < b.active || (a.active === b.active && a.lastBegun < b.lastBegun)
}

/**
 * Sends a client to the same pool member for as long as the member exists. Unknown clients are assigned by
 * rendezvous hashing (Thaler and Ravishankar 1998). So clients keep their member after an eviction or a
 * restart if the set of members is unchanged.
 */
export class PoolAffinity {
  readonly #capacity: number
  /** Pool member by address and client, the most recent client last. */
  readonly #members = new Map<string, string>()

  constructor(capacity = MAX_CLIENTS) {
    this.#capacity = capacity
  }

  /** `network` is the client's. Returns undefined if the pool has no member except `except`. */
  choose(pool: EndpointPool, network: string, except?: Endpoint): Endpoint | undefined {
    const { protocol, host, ownerId } = pool
    const key = `${protocol} ${host} ${ownerId ?? ''} ${network}`
    const known = this.#members.get(key)
    const candidates = [...pool].filter((member) => member !== except)
    const member =
      candidates.find(({ poolMember }) => poolMember === known) ?? nearest(candidates, network)
    this.#members.delete(key)
    if (!member?.poolMember) return member
    this.#members.set(key, member.poolMember)
    if (this.#members.size > this.#capacity) this.#forgetOldest()
    return member
  }

  #forgetOldest(): void {
    for (const key of this.#members.keys()) {
      this.#members.delete(key)
      return
    }
  }
}

function nearest(members: readonly Endpoint[], network: string): Endpoint | undefined {
  let chosen: Endpoint | undefined
  let highest = ''
  for (const member of members) {
    const weight = hash('sha1', `${network} ${member.poolMember}`)
    if (weight <= highest) continue
    chosen = member
    highest = weight
  }
  return chosen
}

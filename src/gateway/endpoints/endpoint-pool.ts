import { hash } from 'node:crypto'
import type { EndpointProtocol } from '../records/endpoint-protocol.ts'
import type { Endpoint } from './endpoint.ts'

/** Each is looked at for each request: more than that are as well served by several addresses. */
export const MAX_POOL_MEMBERS = 100
/** Of how many clients it is known where they were; some hundred bytes each. */
const MAX_CLIENTS = 50_000

/** Whether an endpoint has agreed to share its address with others of its account. */
export function isPooled({ poolMember }: Pick<Endpoint, 'poolMember'>): boolean {
  return poolMember !== undefined
}

/**
 * The endpoints of one account that share an address. Each has a policy of its own, and none knows
 * of the others.
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

  /** False when it was not here. */
  remove(endpoint: Endpoint): boolean {
    return this.#members.delete(endpoint)
  }

  /**
   * The member with the fewest exchanges under way, of equal ones the one whose turn was longest ago:
   * the same for whoever asks until an exchange has begun.
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
 * Leads a client to the same member of a pool for as long as that is there. Who is not known goes
 * where a rendezvous hash says (Thaler and Ravishankar 1998): to forget a client, or to be started
 * anew, moves nobody while the members are the same.
 */
export class PoolAffinity {
  readonly #capacity: number
  /** By address and client, who came last at the end. */
  readonly #members = new Map<string, string>()

  constructor(capacity = MAX_CLIENTS) {
    this.#capacity = capacity
  }

  /** `network` is the client's; undefined when there is no member but `except`. */
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

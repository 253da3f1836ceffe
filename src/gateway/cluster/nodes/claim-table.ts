import { isInternal, wildcardsAbove } from '../../records/domain-name.ts'
import type { EndpointProtocol, Entrance } from '../../records/endpoint-protocol.ts'
import {
  type ClaimKey,
  type ClaimRow,
  keyText,
  PUBLIC_SCOPE,
  SHARED_SCOPE,
  scopeOf,
} from './claim.ts'
import { ClaimUsage } from './claim-usage.ts'
import type { NodeTable } from './node-table.ts'

/** More do not move at once; what is forgotten is not there until it has come. */
const MOST_MOVING = 10_000
/** Names that nobody has, whose last homes are known; some hundred bytes each. */
const MOST_LEFT = 10_000
/** How long holders have to claim what the database has forgotten. */
const UNKNOWN_MS = 60_000
/** For how long a name is its account's after its node has gone. */
const KEPT_MS = 3_600_000
/** Epochs count from 1: a claim of this one does not hold. */
const NO_EPOCH = 0

/** A name whose endpoint is at home at another node. */
export interface RemoteClaim {
  readonly type: 'remote'
  readonly nodeId: string
  readonly protocol: EndpointProtocol
  readonly host: string
  /** As its owner was told. */
  readonly url: string
  readonly ownerId: string | null
  /** TLS of its visitors ends at its home, because its policy says how. */
  readonly endsTls: boolean
}

export interface ClaimTableOptions {
  readonly nodeId: string
  readonly nodes: NodeTable
  /** Whether this node has a name, which the database may not have told yet. */
  readonly isHere: (key: ClaimKey) => boolean
}

/** Whose names are where, as far as this node has heard: what requests are routed by. Never waits. */
export class ClaimTable {
  readonly #options: ClaimTableOptions
  /** By scope, entrance and host; those of a pool stand side by side. */
  readonly #rows = new Map<string, readonly ClaimRow[]>()
  /** What authtokens have at other nodes. */
  readonly usage: ClaimUsage
  /** What was given up for another node that does not have it yet, by the same; oldest first. */
  readonly #moving = new Map<string, ClaimRow>()
  /** What the database knew once, and knows nothing of since it is an older copy. */
  readonly #unknown = new Set<ClaimRow>()
  #unknownUntil = 0
  /** Which node had a name that none has; oldest first. */
  readonly #left = new Map<string, string>()
  #size = 0

  constructor(options: ClaimTableOptions) {
    this.#options = options
    const { nodeId, isHere } = options
    this.usage = new ClaimUsage({ nodeId, isHere, isValid: (row) => this.#isValid(row) })
  }

  /** Names that some node has. */
  get size(): number {
    return this.#size
  }

  clear(): void {
    this.#rows.clear()
    this.#moving.clear()
    this.#left.clear()
    this.usage.clear()
    this.#unknown.clear()
    this.#size = 0
  }

  /**
   * Begins anew with all that the database has; `now` is monotonic. Devices are where they were even if it
   * is an older copy: what is missing in it does not hold, but visitors are led there for a minute, in which
   * its holder claims it again.
   */
  restart(rows: readonly ClaimRow[], now: number): void {
    const isElsewhere = ({ node, facts }: ClaimRow) =>
      node !== null && node !== this.#options.nodeId && facts.kind === 'agent'
    const before = this.#all().filter(isElsewhere)
    this.clear()
    this.apply(rows)
    const unknown = before
      .filter((row) => this.get(row) === undefined)
      .map((row) => ({ ...row, epoch: NO_EPOCH }))
    this.apply(unknown)
    for (const row of unknown) this.#unknown.add(row)
    this.#unknownUntil = now + UNKNOWN_MS
  }

  /** Forgets what nobody has claimed again in its time; `now` is monotonic. */
  expire(now: number): void {
    if (this.#unknown.size === 0 || now < this.#unknownUntil) return
    const left = [...this.#unknown].filter((row) =>
      this.#rows.get(placeOf(row.scope, row.entrance, row.host))?.includes(row),
    )
    this.#unknown.clear()
    this.apply(left.map((row) => ({ ...row, node: null })))
  }

  #all(): ClaimRow[] {
    return [...this.#rows.values()].flat()
  }

  apply(rows: readonly ClaimRow[]): void {
    for (const row of rows) {
      const at = placeOf(row.scope, row.entrance, row.host)
      const before = this.#rows.get(at) ?? []
      const others = before.filter(({ member }) => member !== row.member)
      this.#noteMove(at, row)
      this.#noteLeft(memberOf(before, row), row)
      this.usage.note(memberOf(before, row), row)
      const after = row.node === null ? others : [...others, row]
      this.#size += after.length - before.length
      if (after.length > 0) this.#rows.set(at, after)
      else this.#rows.delete(at)
    }
  }

  #noteMove(at: string, row: ClaimRow): void {
    this.#moving.delete(at)
    if (row.node !== null || row.facts.movesTo === undefined) return
    this.#moving.set(at, row)
    const [oldest] = this.#moving.size > MOST_MOVING ? this.#moving.keys() : []
    if (oldest !== undefined) this.#moving.delete(oldest)
  }

  #noteLeft(before: ClaimRow | undefined, row: ClaimRow): void {
    const key = keyText(row)
    const from = before?.node ?? this.#left.get(key)
    this.#left.delete(key)
    if (row.node !== null || !from) return
    this.#left.set(key, from)
    const [oldest] = this.#left.size > MOST_LEFT ? this.#left.keys() : []
    if (oldest !== undefined) this.#left.delete(oldest)
  }

  /** The other node that has a name, or had it last, whether it is there or not; as far as is known. */
  lastHome(key: ClaimKey): string | undefined {
    const rows = this.#rows.get(placeOf(key.scope, key.entrance, key.host)) ?? []
    const row = memberOf(rows, key)
    const nodeId = row?.node ?? this.#left.get(keyText(key))
    return nodeId === this.#options.nodeId ? undefined : nodeId
  }

  /** The row of exactly this key whose node has it still. */
  get(key: ClaimKey): ClaimRow | undefined {
    const members = this.#rows.get(placeOf(key.scope, key.entrance, key.host)) ?? []
    const row = memberOf(members, key)
    return row && this.#isValid(row) ? row : undefined
  }

  /**
   * Who serves visitors of a host at an entrance, by the exact name, else by the longest wildcard
   * above it. Undefined: this node, or nobody.
   */
  find(entrance: Entrance, host: string): RemoteClaim | undefined {
    const exact = this.#at(PUBLIC_SCOPE, entrance, host)
    if (exact) return this.#elsewhere(exact)
    const wildcard = this.#findWildcard(entrance, host)
    const left = this.#leftAt(PUBLIC_SCOPE, entrance, host)
    // The wildcard of one account does not answer for the name of another whose node is gone.
    const isForeign = left && wildcard?.[0]?.facts.ownerId !== left.ownerId
    return wildcard && !isForeign ? this.#elsewhere(wildcard) : left
  }

  /**
   * Whether another account has a public name at another node, or had it there when that node went, within
   * the hour and may have it back: of HTTP, HTTPS and TLS one account has all. `now` in milliseconds since
   * 1970.
   */
  isForeign(
    { scope, entrance, host }: ClaimKey,
    ownerId: string | null,
    now: number,
    mayReturn: (row: ClaimRow) => boolean,
  ): boolean {
    if (scope !== PUBLIC_SCOPE) return false
    const entrances = entrance === 'tcp' ? [entrance] : (['http', 'https'] as const)
    const rows = entrances.flatMap((each) => this.#rows.get(placeOf(scope, each, host)) ?? [])
    return rows.some((row) => {
      if (row.node === this.#options.nodeId || row.facts.ownerId === ownerId) return false
      const since = this.#options.nodes.find(row.node ?? '')?.since ?? 0
      return this.#isValid(row) || (now - since < KEPT_MS && mayReturn(row))
    })
  }

  #findWildcard(entrance: Entrance, host: string): readonly ClaimRow[] | undefined {
    for (const name of wildcardsAbove(host)) {
      const wildcard = this.#at(PUBLIC_SCOPE, entrance, name)
      if (wildcard) return wildcard
    }
    return undefined
  }

  /** The same for policies of an account: an internal name of its own, else one that is shared. */
  findInternal(entrance: Entrance, host: string, ownerId: string | null): RemoteClaim | undefined {
    const rows =
      this.#at(scopeOf(ownerId), entrance, host) ?? this.#at(SHARED_SCOPE, entrance, host)
    return rows ? this.#elsewhere(rows) : this.#leftAt(scopeOf(ownerId), entrance, host)
  }

  /** The claims of a node that hold. */
  *of(nodeId: string): Generator<ClaimRow> {
    for (const members of this.#rows.values()) {
      for (const row of members) {
        if (row.node === nodeId && this.#isValid(row)) yield row
      }
    }
  }

  /** The claims of all other nodes that hold. */
  *elsewhere(): Generator<ClaimRow> {
    for (const { id } of this.#options.nodes.all()) {
      if (id !== this.#options.nodeId) yield* this.of(id)
    }
  }

  /** Those of an address that hold; undefined when there are none. */
  #at(scope: string, entrance: Entrance, host: string): readonly ClaimRow[] | undefined {
    const members = this.#rows.get(placeOf(scope, entrance, host))
    if (!members) return undefined
    // The usual: each request comes by here.
    if (members.every((row) => this.#isValid(row))) return members
    const valid = members.filter((row) => this.#isValid(row))
    return valid.length > 0 ? valid : undefined
  }

  /**
   * A name that is on its way to this node, or has its claim here already: whoever comes before it is open
   * waits for that.
   */
  coming(entrance: Entrance, host: string, ownerId: string | null): RemoteClaim | undefined {
    const scopes = isInternal(host) ? [scopeOf(ownerId), SHARED_SCOPE] : [PUBLIC_SCOPE]
    const { nodeId } = this.#options
    for (const scope of scopes) {
      for (const name of [host, ...wildcardsAbove(host)]) {
        const row = this.#comingTo(placeOf(scope, entrance, name))
        if (row) return homeAt(row, nodeId)
      }
    }
    return undefined
  }

  #comingTo(at: string): ClaimRow | undefined {
    const { nodeId } = this.#options
    const moving = this.#moving.get(at)
    if (moving?.facts.movesTo === nodeId) return moving
    for (const row of this.#rows.get(at) ?? []) {
      if (row.node === nodeId && this.#isValid(row)) return row
    }
    return undefined
  }

  /**
   * Where it was at home when its node went, or was given up: its device is on its way to another node,
   * and visitors wait for that. Where it is known to which, there.
   */
  #leftAt(scope: string, entrance: Entrance, host: string): RemoteClaim | undefined {
    const at = placeOf(scope, entrance, host)
    const moving = this.#moving.get(at)
    const { movesTo } = moving?.facts ?? {}
    if (moving && movesTo)
      return movesTo === this.#options.nodeId ? undefined : homeAt(moving, movesTo)
    const left = this.#rows.get(at) ?? []
    return this.#elsewhere(left.filter(({ facts }) => facts.kind === 'agent'))
  }

  /** Of a pool with a member here, this node serves. */
  #elsewhere(rows: readonly ClaimRow[]): RemoteClaim | undefined {
    const { nodeId } = this.#options
    const [first] = rows
    if (!first?.node || rows.some(({ node }) => node === nodeId)) return undefined
    return homeAt(first, first.node)
  }

  #isValid({ node, epoch }: ClaimRow): boolean {
    return node !== null && this.#options.nodes.isValid(node, epoch)
  }
}

function homeAt({ host, facts }: ClaimRow, nodeId: string): RemoteClaim {
  const { protocol, url, ownerId, endsTls } = facts
  return { type: 'remote', nodeId, protocol, host, url, ownerId, endsTls }
}

function memberOf(rows: readonly ClaimRow[], key: ClaimKey): ClaimRow | undefined {
  return rows.find(({ member }) => member === key.member)
}

function placeOf(scope: string, entrance: Entrance, host: string): string {
  return keyText({ scope, entrance, host, member: '' })
}

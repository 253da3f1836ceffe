import { isInternal, wildcardsAbove } from '../../records/domain-name.ts'
import type { EndpointProtocol, IngressType } from '../../records/endpoint-protocol.ts'
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

/** Limit of moving names. A forgotten one has no node until its claim arrives. */
const MAX_MOVING = 10_000
/** Limit of known last nodes of free names; some hundred bytes each. */
const MAX_RELEASED = 10_000
/** Time in which holders reclaim names that the database has forgotten. */
const UNKNOWN_MS = 60_000
/** For how long a name is its account's after its node has gone. */
const KEPT_MS = 3_600_000
/** Epochs count from 1: a claim of this epoch is invalid. */
const NO_EPOCH = 0

/** A name whose endpoint is at another node. */
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

/** Names and their nodes, as far as this node knows. Requests are routed by it. Never waits. */
export class ClaimTable {
  readonly #options: ClaimTableOptions
  /** By scope, ingress type and host. Members of a pool share an entry. */
  readonly #rows = new Map<string, readonly ClaimRow[]>()
  /** Endpoints and sessions of each authtoken on other nodes. */
  readonly usage: ClaimUsage
  /**
   * Names that were released for another node which does not have them yet, by the same key, oldest first.
   */
  readonly #moving = new Map<string, ClaimRow>()
  /** Rows that an older copy of the database no longer has. */
  readonly #unknown = new Set<ClaimRow>()
  #unknownUntil = 0
  /** Last node of each free name, oldest first. */
  readonly #left = new Map<string, string>()
  #size = 0
  #areKnown = false

  constructor(options: ClaimTableOptions) {
    this.#options = options
    const { nodeId, isHere } = options
    this.usage = new ClaimUsage({ nodeId, isHere, isValid: (row) => this.#isValid(row) })
  }

  /** Names that some node has. */
  get size(): number {
    return this.#size
  }

  /** Whether the names of the other nodes were read, from PostgreSQL or from another node. */
  areKnown(): boolean {
    return this.#areKnown
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
   * Replaces all rows; `now` is monotonic. An older copy of the database may lack rows, but devices have not
   * moved. Missing rows are invalid, yet visitors are routed by them for a minute, in which their nodes
   * reclaim them.
   */
  restart(rows: readonly ClaimRow[], now: number): void {
    const isElsewhere = ({ node, facts }: ClaimRow) =>
      node !== null && node !== this.#options.nodeId && facts.kind === 'agent'
    const before = this.rows().filter(isElsewhere)
    this.clear()
    this.apply(rows)
    const unknown = before
      .filter((row) => this.get(row) === undefined)
      .map((row) => ({ ...row, epoch: NO_EPOCH }))
    this.apply(unknown)
    for (const row of unknown) this.#unknown.add(row)
    this.#unknownUntil = now + UNKNOWN_MS
  }

  /** Removes rows that were not reclaimed in time; `now` is monotonic. */
  expire(now: number): void {
    if (this.#unknown.size === 0 || now < this.#unknownUntil) return
    const left = [...this.#unknown].filter((row) =>
      this.#rows.get(placeOf(row.scope, row.entrance, row.host))?.includes(row),
    )
    this.#unknown.clear()
    this.apply(left.map((row) => ({ ...row, node: null })))
  }

  /** All rows, including claims that are no longer valid. */
  rows(): ClaimRow[] {
    return [...this.#rows.values()].flat()
  }

  apply(rows: readonly ClaimRow[]): void {
    this.#areKnown = true
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
    const [oldest] = this.#moving.size > MAX_MOVING ? this.#moving.keys() : []
    if (oldest !== undefined) this.#moving.delete(oldest)
  }

  #noteLeft(before: ClaimRow | undefined, row: ClaimRow): void {
    const key = keyText(row)
    const from = before?.node ?? this.#left.get(key)
    this.#left.delete(key)
    if (row.node !== null || !from) return
    this.#left.set(key, from)
    const [oldest] = this.#left.size > MAX_RELEASED ? this.#left.keys() : []
    if (oldest !== undefined) this.#left.delete(oldest)
  }

  /** The other node that has a name, or had it last, whether it is there or not; as far as is known. */
  lastHome(key: ClaimKey): string | undefined {
    const rows = this.#rows.get(placeOf(key.scope, key.entrance, key.host)) ?? []
    const row = memberOf(rows, key)
    const nodeId = row?.node ?? this.#left.get(keyText(key))
    return nodeId === this.#options.nodeId ? undefined : nodeId
  }

  /** The row with exactly this key, if its claim is valid. */
  get(key: ClaimKey): ClaimRow | undefined {
    const members = this.#rows.get(placeOf(key.scope, key.entrance, key.host)) ?? []
    const row = memberOf(members, key)
    return row && this.#isValid(row) ? row : undefined
  }

  /**
   * The node that serves a host at an ingress type: by exact name, else by the longest wildcard above it.
   * Undefined: this node, or none.
   */
  find(entrance: IngressType, host: string): RemoteClaim | undefined {
    const exact = this.#at(PUBLIC_SCOPE, entrance, host)
    if (exact) return this.#elsewhere(exact)
    const wildcard = this.#findWildcard(entrance, host)
    const left = this.#leftAt(PUBLIC_SCOPE, entrance, host)
    // A wildcard of one account does not serve the name of another account whose node is lost.
    const isForeign = left && wildcard?.[0]?.facts.ownerId !== left.ownerId
    return wildcard && !isForeign ? this.#elsewhere(wildcard) : left
  }

  /**
   * Whether another account has a public name at another node, or had it there within the hour before that
   * node was lost and may return. HTTP, HTTPS and TLS count together. `now` in milliseconds since 1970.
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

  #findWildcard(entrance: IngressType, host: string): readonly ClaimRow[] | undefined {
    for (const name of wildcardsAbove(host)) {
      const wildcard = this.#at(PUBLIC_SCOPE, entrance, name)
      if (wildcard) return wildcard
    }
    return undefined
  }

  /** The same for policies of an account: its own internal name, else a shared one. */
  findInternal(
    entrance: IngressType,
    host: string,
    ownerId: string | null,
  ): RemoteClaim | undefined {
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

  /** Valid rows of an address; undefined if there are none. */
  #at(scope: string, entrance: IngressType, host: string): readonly ClaimRow[] | undefined {
    const members = this.#rows.get(placeOf(scope, entrance, host))
    if (!members) return undefined
    // The usual: each request comes by here.
    if (members.every((row) => this.#isValid(row))) return members
    const valid = members.filter((row) => this.#isValid(row))
    return valid.length > 0 ? valid : undefined
  }

  /** A name that moves to this node, or is claimed here but not open yet: visitors wait for it. */
  coming(entrance: IngressType, host: string, ownerId: string | null): RemoteClaim | undefined {
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
   * The last node of a name, when that node is lost or released the name. Its device is about to connect to
   * another node, and visitors wait. If the next node is known, that node.
   */
  #leftAt(scope: string, entrance: IngressType, host: string): RemoteClaim | undefined {
    const at = placeOf(scope, entrance, host)
    const moving = this.#moving.get(at)
    const { movesTo } = moving?.facts ?? {}
    if (moving && movesTo)
      return movesTo === this.#options.nodeId ? undefined : homeAt(moving, movesTo)
    const left = this.#rows.get(at) ?? []
    return this.#elsewhere(left.filter(({ facts }) => facts.kind === 'agent'))
  }

  /** If a pool has a member here, this node serves it. */
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

function placeOf(scope: string, entrance: IngressType, host: string): string {
  return keyText({ scope, entrance, host, member: '' })
}

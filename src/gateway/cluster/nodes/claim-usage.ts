import type { EndpointAddress } from '../../records/endpoint-protocol.ts'
import { type ClaimKey, type ClaimRow, claimKey, keyText, SHARED_SCOPE } from './claim.ts'

export interface ClaimUsageOptions {
  readonly nodeId: string
  /** Whether the node of a claim has it still. */
  readonly isValid: (row: ClaimRow) => boolean
  /** Whether this node has a name, which the database may not have told yet. */
  readonly isHere: (key: ClaimKey) => boolean
}

/** A name with its owner. */
interface OwnedName extends EndpointAddress {
  readonly ownerId: string | null
  readonly poolMember?: string | undefined
}

/** Endpoints and sessions of authtokens at other nodes, as far as this node knows. */
export class ClaimUsage {
  readonly #options: ClaimUsageOptions
  /** Names of agents, by authtoken. */
  readonly #rows = new Map<string, Set<ClaimRow>>()

  constructor(options: ClaimUsageOptions) {
    this.#options = options
  }

  clear(): void {
    this.#rows.clear()
  }

  /** Called for each changed claim. */
  note(before: ClaimRow | undefined, row: ClaimRow): void {
    const of = before?.facts.credentialId
    if (before && of) {
      const rows = this.#rows.get(of)
      rows?.delete(before)
      if (rows?.size === 0) this.#rows.delete(of)
    }
    const { node, scope, facts } = row
    // A name that all accounts find has a second claim for that.
    const isCounted = node !== null && node !== this.#options.nodeId && scope !== SHARED_SCOPE
    if (!isCounted || !facts.credentialId) return
    const rows = this.#rows.get(facts.credentialId) ?? new Set()
    this.#rows.set(facts.credentialId, rows.add(row))
  }

  /** No authtoken has more endpoints at other nodes, nor sessions with endpoints. */
  mostOf(credentialId: string): number {
    return this.#rows.get(credentialId)?.size ?? 0
  }

  /**
   * Sessions of an authtoken with endpoints at other nodes. A session of the same device or client does not
   * count, because it is about to move here.
   */
  sessionsOf(
    credentialId: string,
    { clientId, deviceId }: { readonly clientId: string; readonly deviceId: string | undefined },
  ): number {
    const sessions = new Set<string | null>()
    let moving = 0
    for (const { facts } of this.#of(credentialId)) {
      const isOwn = deviceId !== undefined && deviceId === facts.deviceId
      if (isOwn || clientId === facts.clientId) moving = 1
      // Several connections of one process count as one.
      sessions.add(
        facts.instance === null ? facts.sessionId : `${facts.deviceId} ${facts.instance}`,
      )
    }
    return sessions.size - moving
  }

  /** Names of an authtoken at other nodes, except the name that is about to be claimed here. */
  endpointsOf(credentialId: string, { ownerId, poolMember, ...address }: OwnedName): number {
    const key = keyText(claimKey(address, ownerId, poolMember))
    let endpoints = 0
    for (const row of this.#of(credentialId)) if (keyText(row) !== key) endpoints += 1
    return endpoints
  }

  /** Excludes names that are here already, although the change has not arrived. */
  *#of(credentialId: string): Generator<ClaimRow> {
    for (const row of this.#rows.get(credentialId) ?? []) {
      if (this.#options.isValid(row) && !this.#options.isHere(row)) yield row
    }
  }
}

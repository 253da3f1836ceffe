import type { Logger } from '../../base/logger.ts'
import { KeyedLock } from '../../base/semaphore.ts'
import {
  claimClientId,
  HeldByLegError,
  isOtherLeg,
  type NameClaims,
  type OnlineName,
  UnconfirmedNameError,
  type UsageElsewhere,
  type WantedName,
} from '../access/name-claims.ts'
import { isSameDevice } from '../endpoints/disconnected-name.ts'
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts'
import type { NameState } from '../endpoints/host-table.ts'
import { isInternal } from '../records/domain-name.ts'
import type { OwnedAddress } from '../records/endpoint-protocol.ts'
import type { IdSource } from '../records/resource-id.ts'
import { ServiceError } from '../records/service-error.ts'
import type { MovedLimits } from './moved-limits.ts'
import { markOf } from './name-transfer.ts'
import {
  type Claim,
  ClaimHeldError,
  type ClaimHolder,
  type ClaimKey,
  claimKey,
  keyText,
  NoClaimsError,
  sharedKey,
} from './nodes/claim.ts'
import type { ClaimTable } from './nodes/claim-table.ts'
import type { Claims } from './nodes/claims.ts'
import { DatabaseError } from './postgres/database-error.ts'

export interface NodeNamesOptions {
  readonly claims: Pick<Claims, 'claim' | 'renew' | 'release' | 'heldBy'>
  /** Names of all nodes. */
  readonly table: Pick<ClaimTable, 'elsewhere' | 'usage'>
  readonly registry: EndpointRegistry
  /** A name is online here from now on. */
  readonly onOpened: (host: string) => void
  readonly ids: IdSource
  readonly limits: Pick<MovedLimits, 'importStates'>
  /** The other node that had a name last, as far as is known. */
  readonly lastHome: (key: ClaimKey) => string | undefined
  /** Whether another account has a name at another node, or had it there a moment ago. */
  readonly isForeign: (key: ClaimKey, ownerId: string | null) => boolean
  /** Whether devices may bring names here. */
  readonly mayOpen: () => boolean
  /** Whether another node is draining. */
  readonly isDraining: (nodeId: string) => boolean
  /** Whether a claim would reach PostgreSQL. */
  readonly canClaim: () => boolean
  /** Name of the other node that has a name, if this node has a link to it. */
  readonly reachedHolder: (key: ClaimKey) => string | undefined
  /** A name was refused because PostgreSQL is away. */
  readonly onUnconfirmed: () => void
  readonly log: Logger
}

/**
 * The names of this node's registry, each claimed among all nodes.
 *
 * INVARIANTS
 * - A name goes online here only while this node has its claim. Operations on one name run one after another.
 * - A claim is released when the registry has no endpoint and no disconnected name at its address: visitors
 *   may wait for a disconnected name here.
 */
export class NodeNames implements NameClaims {
  readonly #options: NodeNamesOptions
  readonly #lock = new KeyedLock()
  /** Claimed names whose counts are being fetched. */
  readonly #awaited = new Set<string>()

  constructor(options: NodeNamesOptions) {
    this.#options = options
    options.registry.onLeave = (left) => this.#settle(left)
  }

  async open<T>(wanted: WantedName, open: () => T | Promise<T>): Promise<T> {
    if (wanted.session && !this.#options.mayOpen()) {
      throw new ServiceError(
        803,
        'This gateway is draining. Connect to another gateway of the cluster.',
      )
    }
    const claims = this.#claimsOf(wanted)
    if (this.#options.isForeign(claims[0].key, wanted.ownerId)) {
      throw new ServiceError(
        334,
        `The name ${wanted.host} belongs to another account, which has it now or had it within the hour. Use another name.`,
      )
    }
    return this.run(claims[0], async () => {
      const taken: (readonly [own: Claim, before: Claim | undefined])[] = []
      try {
        for (const claim of claims) {
          const before = this.#options.claims.heldBy(claim.key)
          const from = await this.#claim(claim, before)
          taken.push([claim, before])
          if (from !== undefined && claim === claims[0]) await this.#takeLimits(claim, wanted, from)
        }
        const opened = await open()
        this.#options.onOpened(wanted.host)
        for (const claim of claims) if (!this.isNeeded(claim)) await this.#putBack(claim, undefined)
        return opened
      } catch (error) {
        for (const [own, before] of taken) await this.#putBack(own, before)
        throw error
      }
    })
  }

  /** Whether a name is claimed here, but its counts are not here yet, so that nothing may be counted. */
  isAwaited(key: ClaimKey): boolean {
    return this.#awaited.has(keyText(key))
  }

  /** Throws ServiceError 803 when the name went on to a third node meanwhile. */
  async #takeLimits(claim: Claim, { policy }: WantedName, from: string): Promise<void> {
    if (!policy) return
    const { limits, claims } = this.#options
    const key = keyText(claim.key)
    this.#awaited.add(key)
    try {
      await limits.importStates(claim, policy.states, from)
    } finally {
      this.#awaited.delete(key)
    }
    if (claims.heldBy(claim.key) === claim) return
    throw new ServiceError(803, 'Another gateway of the cluster now has the name. Try again there.')
  }

  /** In its turn among all that happens to that name here. */
  run<T>({ key }: Claim, work: () => Promise<T>): Promise<T> {
    return this.#lock.run(keyText(key), work)
  }

  /** Whether an endpoint of the registry is at home at this node. */
  isHome({ ownerId, poolMember, ...address }: OnlineName): boolean {
    return this.#options.claims.heldBy(claimKey(address, ownerId, poolMember)) !== undefined
  }

  /** Names that are online at the other nodes. */
  *elsewhere(): Generator<OwnedAddress> {
    for (const { host, facts } of this.#options.table.elsewhere()) yield { ...facts, host }
  }

  /** The same of devices alone: cloud endpoints are at home at any node. */
  *devicesElsewhere(): Generator<OwnedAddress> {
    for (const { host, facts } of this.#options.table.elsewhere()) {
      if (facts.credentialId !== null) yield { ...facts, host }
    }
  }

  get usage(): UsageElsewhere {
    return this.#options.table.usage
  }

  /** Whether the registry has the name of a claim, online or disconnected. */
  isNeeded({ key, facts: { protocol, ownerId } }: Claim): boolean {
    const address = { protocol, host: key.host }
    const { registry } = this.#options
    // The others of a pool serve meanwhile.
    if (key.member === '' && registry.disconnectedAt(address, ownerId)) return true
    return registry
      .holdersOf(address, ownerId)
      .some(({ poolMember = '' }) => poolMember === key.member)
  }

  #claimsOf(wanted: WantedName): [Claim, ...Claim[]] {
    const { session, ownerId, member, protocol, url, endsTls, isShared } = wanted
    const { credentialId = null, deviceId = null, instance = null } = session?.identity ?? {}
    const facts: Claim['facts'] = {
      endpointId: this.#options.ids.next('ep'),
      kind: session ? 'agent' : 'cloud',
      ...{ protocol, url, ownerId, endsTls, isShared, credentialId, deviceId, instance },
      sessionId: session?.id ?? null,
      clientId: session ? claimClientId(session) : null,
      generation: session?.startedAt ?? 0,
    }
    const key = claimKey(wanted, ownerId, member)
    const own = { key, facts }
    return isShared ? [own, { key: sharedKey(key), facts }] : [own]
  }

  /** Resolves with the other node that had the name last, where that is known. */
  async #claim(claim: Claim, before: Claim | undefined): Promise<string | undefined> {
    const { ownerId, kind } = claim.facts
    // Its device is back: PostgreSQL may be away.
    if (before && isOfSameDevice(before, claim) && this.#options.claims.renew(claim))
      return undefined
    this.#requireNoHolder(claim)
    const lastHome = before ? undefined : this.#options.lastHome(claim.key)
    const mayTake = ({ nodeId, facts }: ClaimHolder) =>
      facts.kind === kind &&
      facts.ownerId === ownerId &&
      (kind === 'agent' || this.#options.isDraining(nodeId))
    try {
      return (await this.#options.claims.claim(claim, mayTake)) ?? lastHome
    } catch (error) {
      if (error instanceof ClaimHeldError) {
        const { url, clientId, ownerId: holderId } = error.holder.facts
        const isLeg = holderId === ownerId && isOtherLeg(clientId, claim.facts.clientId)
        if (isLeg) throw new HeldByLegError(url)
        throw new ServiceError(334, `The endpoint ${url} is already online.`)
      }
      if (!(error instanceof NoClaimsError) && !(error instanceof DatabaseError)) throw error
      this.#options.onUnconfirmed()
      throw new UnconfirmedNameError(
        'The gateway does not reach PostgreSQL, which confirms names. It still serves the names that it has. Try again soon.',
      )
    }
  }

  /**
   * A node gives a name back to its device without PostgreSQL, so device-agent goes there at once. Other
   * agents stay, and wait as long as a restart of PostgreSQL takes.
   */
  #requireNoHolder({ key, facts }: Claim): void {
    const { canClaim, reachedHolder, onUnconfirmed } = this.#options
    if (facts.instance === null || canClaim()) return
    const holder = reachedHolder(key)
    if (holder === undefined) return
    onUnconfirmed()
    throw new UnconfirmedNameError(
      `The gateway ${holder} has the name, and PostgreSQL, which moves names, cannot be reached. Connect to that gateway.`,
    )
  }

  /** Restores the claim from before, or releases the new one. */
  async #putBack(own: Claim, before: Claim | undefined): Promise<void> {
    const { claims, log } = this.#options
    try {
      if (before && this.isNeeded(before)) {
        if (!claims.renew(before)) await claims.claim(before)
      } else await claims.release(own)
    } catch (err) {
      log.warn({ err, name: own.facts.url }, 'a name was not released')
    }
  }

  /** After earlier operations on the name: another endpoint may have claimed the address by then. */
  #settle(left: NameState): void {
    const { claims, log } = this.#options
    const { host, ownerId, protocol } = left
    const members =
      left.type === 'disconnected' || left.poolMember === undefined ? [''] : ['', left.poolMember]
    for (const member of members) {
      const key = claimKey({ protocol, host }, ownerId, member)
      for (const one of isInternal(host) ? [key, sharedKey(key)] : [key]) {
        const held = claims.heldBy(one)
        if (!held) continue
        const giveUp = async () => {
          // During this call, the endpoint is still registered. Afterwards, it may be disconnected or
          // replaced.
          await Promise.resolve()
          const now = claims.heldBy(one)
          if (!now || this.isNeeded(now)) return
          // Not awaited: later operations on the name are written after it.
          claims.release(now).catch((err) => log.debug({ err }, 'a name will be released later'))
        }
        void this.run({ ...held, key }, giveUp)
      }
    }
  }
}

/** Whether two claims of a name are of the same device, of one account, and lead visitors to it alike. */
function isOfSameDevice({ facts: one }: Claim, { facts: other }: Claim): boolean {
  const isAlike =
    one.kind === 'agent' &&
    other.kind === 'agent' &&
    one.ownerId === other.ownerId &&
    one.protocol === other.protocol
  return isAlike && isSameDevice(markOf(one), markOf(other))
}

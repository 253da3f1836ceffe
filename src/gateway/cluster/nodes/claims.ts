import type { Clock } from '../../../base/clock.ts'
import { AutoResetEvent } from '../../../base/deferred.ts'
import {
  type Claim,
  ClaimHeldError,
  type ClaimHolder,
  type ClaimKey,
  type ClaimRow,
  isSameProcess,
  keyText,
} from './claim.ts'
import type { ClaimOutcome, ClaimWriter } from './claim-writer.ts'
import type { LeaseState } from './lease-state.ts'
import type { NodeLease } from './node-lease.ts'

/** How long another node may take to give a name up. */
const TAKE_MS = 5_000
const RETRY_MS = 200
/** A node that is there has given a name up by then. */
const GIVE_MS = 1_000
/** Another process has the names, or this process has ended. */
const OVER: ReadonlySet<LeaseState> = new Set(['replaced', 'forgotten', 'left'])
/** Names of this node stay its own: the lease is held, or PostgreSQL is away. */
const RENEWABLE: ReadonlySet<LeaseState> = new Set(['held', 'overdue'])
/** Renewals that the database has not answered, for each name: its device would have to come back as often. */
const MAX_WRITTEN = 8
/** Epochs count from 1. */
const NO_EPOCH = 0

/** Answer to a request for a name; `unknown`: the holder may be another, or change. */
export type Given = 'given' | 'kept' | 'unknown'

/** A node wants a name that another has. */
export interface GiveRequest {
  /** Holder of the name. */
  readonly nodeId: string
  /** Node that wants the name, with its endpoint. */
  readonly byNode: string
  readonly wanted: Claim
  /** The endpoint that has the name, as the database shows it. */
  readonly heldBy: string
}

export interface ClaimsOptions {
  readonly lease: Pick<NodeLease, 'nodeId' | 'epoch' | 'state'>
  readonly writer: Pick<ClaimWriter, 'claim' | 'take' | 'release'>
  /** Asks a node for a name that it has; `unknown` where it does not answer. Never rejects. */
  readonly ask: (request: GiveRequest) => Promise<Given>
  /** Whether this node releases a name to another node. Returns when the name is no longer served here. */
  readonly give: (own: Claim, wanted: Claim, byNode: string) => Promise<boolean>
  /** Another node has the name, without a release by this node. */
  readonly onLost: (claim: Claim, holder: ClaimHolder) => void
  /** A name was renewed, and the database has to be told by `reclaim()`. */
  readonly onRenewed: () => void
  readonly clock: Clock
}

/** `unknown`: requests wait. `foreign`: another node may serve it. */
export type Ownership = 'owned' | 'unknown' | 'foreign'

interface Held {
  readonly claim: Claim
  /** Epoch of the claim. In another epoch, the claim is invalid. */
  epoch: number
  /** Set after a renewal: earlier claims, one of which the database still has. */
  written?: readonly Claim[] | undefined
  /** The claim was sent to the database, which may have it without an answer. */
  isTried?: boolean
}

/**
 * The names of this node.
 *
 * INVARIANTS
 * - A name belongs to this node from the answer to its claim, in that epoch, while the lease is held.
 * - It is no longer served when its release is sent: no other node can have it sooner.
 * - A renewal changes the endpoint of a name, and never its node: it needs no answer of the database.
 * - After a new epoch, each name is claimed again. Names that others have by then are lost.
 */
export class Claims {
  readonly #options: ClaimsOptions
  readonly #held = new Map<string, Held>()
  /** Endpoints with a pending claim. */
  readonly #claiming = new Set<string>()
  readonly #changed = new AutoResetEvent()

  constructor(options: ClaimsOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#held.size
  }

  /**
   * Claims a name; `mayTake` says whether its holder is to be asked for it. Resolves with the node that had
   * it until then, where that was seen. Throws a ClaimHeldError, a NoClaimsError or a DatabaseError.
   */
  async claim(
    claim: Claim,
    mayTake: (holder: ClaimHolder) => boolean = () => false,
  ): Promise<string | undefined> {
    const { ask, clock, lease } = this.#options
    const since = clock.monotonic()
    const until = since + TAKE_MS
    let before: string | undefined
    const asked = new Set<string>()
    const kept = new Set<string>()
    for (;;) {
      const isAsked = clock.monotonic() - since >= GIVE_MS
      const outcome = await this.#claimOnce(claim, isAsked ? 'take' : 'claim')
      if ('holder' in outcome) {
        const { holder } = outcome
        const { nodeId, facts } = holder
        const { endpointId: heldBy } = facts
        const isKept = !mayTake(holder) || kept.has(heldBy)
        if (isKept || clock.monotonic() >= until) throw new ClaimHeldError(holder)
        before = nodeId
        const request = { nodeId, byNode: lease.nodeId, wanted: claim, heldBy }
        if (!asked.has(heldBy)) {
          asked.add(heldBy)
          void ask(request).then((given) => {
            if (given === 'kept') kept.add(heldBy)
            // Asked again after a pause: it may not have the name yet, or does not answer.
            if (given === 'unknown') asked.delete(heldBy)
            else this.#changed.set()
          })
        }
        await this.#changed.wait(clock, RETRY_MS)
      } else if (outcome.epoch === lease.epoch) {
        this.#held.set(keyText(claim.key), { claim, epoch: outcome.epoch })
        return before
      }
    }
  }

  /**
   * Gives a name of this node to another endpoint, without the database. Returns false if the name may be
   * another node's by now.
   */
  renew(claim: Claim): boolean {
    const { lease, onRenewed } = this.#options
    const key = keyText(claim.key)
    const held = this.#held.get(key)
    if (held?.epoch !== lease.epoch || !RENEWABLE.has(lease.state)) return false
    const before = held.written === undefined || held.isTried ? [held.claim] : []
    const written = [...(held.written ?? []), ...before].slice(-MAX_WRITTEN)
    this.#held.set(key, { claim, epoch: held.epoch, written })
    onRenewed()
    return true
  }

  /** Releases a name; call it when the name is no longer served. Resolves when others can have it. */
  async release(claim: Claim, movesTo?: string): Promise<void> {
    const key = keyText(claim.key)
    const held = this.#held.get(key)
    // A later claim of the same name stays.
    if (held?.claim !== claim) return
    this.#held.delete(key)
    const { writer } = this.#options
    const claims = [...(held.written ?? []), claim]
    await Promise.all(claims.map((each) => writer.release(each, movesTo)))
  }

  /** This node's claim of a name. */
  heldBy(key: ClaimKey): Claim | undefined {
    return this.#held.get(keyText(key))?.claim
  }

  /** Whether the name is this node's, for certain, at this moment. */
  owns(key: ClaimKey): boolean {
    const { lease } = this.#options
    return this.#held.get(keyText(key))?.epoch === lease.epoch && lease.state === 'held'
  }

  /**
   * Whether this node serves visitors of a device's name. If the holder cannot be determined, it serves them,
   * because the device has no other link. But first it has to try to ask.
   */
  ownershipOfDevice(key: ClaimKey): Ownership {
    const { state, epoch } = this.#options.lease
    if (OVER.has(state)) return 'foreign'
    if (state === 'overdue' || state === 'unfit') return 'owned'
    const held = this.#held.get(keyText(key))
    return state === 'held' && (!held || held.epoch === epoch) ? 'owned' : 'unknown'
  }

  /** Like `ownershipOfDevice`, for a name without a device. One node counts its requests. */
  ownershipOfCounter(key: ClaimKey): Ownership {
    if (this.owns(key)) return 'owned'
    const { state } = this.#options.lease
    const isUnknown = this.#held.has(keyText(key)) && ['held', 'unsure', 'fenced'].includes(state)
    return isUnknown ? 'unknown' : 'foreign'
  }

  /** Another node asks for a name. */
  async asked({ byNode, wanted, heldBy }: GiveRequest): Promise<Given> {
    const { lease, writer } = this.#options
    if (byNode === lease.nodeId || this.#claiming.has(heldBy)) return 'unknown'
    const key = keyText(wanted.key)
    const held = this.#held.get(key)
    const { claim, written } = held ?? {}
    if (![claim, ...(written ?? [])].some((own) => own?.facts.endpointId === heldBy)) {
      // The database is being told of the renewal.
      if (written) return 'unknown'
      // It was given up as failed, and came to the database later than that.
      await writer.release({ ...wanted, facts: { ...wanted.facts, endpointId: heldBy } })
      return 'unknown'
    }
    if (!claim) return 'unknown'
    const isGiven = await this.#options.give(claim, wanted, byNode)
    if (isGiven) await this.release(claim, byNode)
    else if (this.#held.get(key) === held) return 'kept'
    return isGiven ? 'given' : 'unknown'
  }

  /** Another node has a name; where its device has gone there from here, it is this node's no more. */
  taken(key: ClaimKey, holder: ClaimHolder): void {
    const held = this.#held.get(keyText(key))
    if (!held || !isSameProcess(held.claim.facts, holder.facts)) return
    // The report may be older than this node's claim.
    if (holder.facts.generation <= held.claim.facts.generation) return
    this.#held.delete(keyText(key))
    this.#options.onLost(held.claim, holder)
  }

  /** Releases claims of this epoch that exist only in an older copy of the database. */
  disown(rows: readonly ClaimRow[]): void {
    const { lease, writer } = this.#options
    for (const { node, epoch, facts, ...key } of rows) {
      const isOfHere = node === lease.nodeId && epoch === lease.epoch
      if (!isOfHere || this.#claiming.has(facts.endpointId) || this.heldBy(key)) continue
      writer.release({ key, facts }).catch(() => {})
    }
  }

  /** Claims have changed: waiting claims try again. */
  onChange(): void {
    this.#changed.set()
  }

  /** All claims are uncertain: after a new epoch, or when the database lost changes. */
  doubt(): void {
    for (const held of this.#held.values()) held.epoch = NO_EPOCH
  }

  /** Names that have to be claimed again. */
  get doubted(): number {
    return Array.from(this.#held.values()).filter((held) => this.#isDoubted(held)).length
  }

  #isDoubted({ epoch, written }: Held): boolean {
    return epoch !== this.#options.lease.epoch || written !== undefined
  }

  /** After `doubt()` or `renew()`; resolves when each name is claimed again, or lost. Throws a DatabaseError. */
  async reclaim(): Promise<void> {
    const doubted = Array.from(this.#held).filter(([, held]) => this.#isDoubted(held))
    await Promise.all(doubted.map(([key, held]) => this.#reclaimOne(key, held)))
  }

  async #reclaimOne(key: string, held: Held): Promise<void> {
    const { writer } = this.#options
    held.isTried = true
    const outcome = await writer.claim(held.claim)
    const now = this.#held.get(key)
    if (now !== held) {
      // Released, renewed or claimed here meanwhile.
      if (!('epoch' in outcome)) return
      if (now?.written) now.written = [held.claim]
      if (!now && held.written) writer.release(held.claim).catch(() => {})
      return
    }
    if ('epoch' in outcome) {
      held.epoch = outcome.epoch
      held.written = undefined
    } else {
      this.#held.delete(key)
      this.#options.onLost(held.claim, outcome.holder)
    }
  }

  /** A failed claim may have been written: it is released, unless this node has the name anyway. */
  async #claimOnce(claim: Claim, how: 'claim' | 'take'): Promise<ClaimOutcome> {
    const { writer } = this.#options
    const { endpointId } = claim.facts
    this.#claiming.add(endpointId)
    try {
      return await writer[how](claim)
    } catch (error) {
      writer.release(claim).catch(() => {})
      throw error
    } finally {
      this.#claiming.delete(endpointId)
    }
  }
}

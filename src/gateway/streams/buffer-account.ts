import { REQUEST_DEFAULTS } from '../../settings/gateway-settings.ts'

/**
 * Parts of the budget for a device session and for an endpoint. The default is enough for all streams of
 * each, with a full window of the wire protocol: ending readers would only make room for the next ones.
 */
const DEVICE_PART = 2 / 3
const ENDPOINT_PART = 1 / 2
/** How far an account goes down when it was over its limit: so that this is done now and then. */
const SHED_TO = 7 / 8
/** A holder younger than this is spared while others can be ended. */
const YOUNG_MS = 2_000

/** A client's connection that holds bytes in transit. */
export interface BufferHolder {
  readonly heldBytes: number
  /** Bytes that have gone on, of the same exchange. */
  readonly movedBytes: number
  /** Releases its bytes, because the budget is used up. Makes no calls back. */
  onOverBudget(): void
}

/**
 * Received bytes that a client or device has not accepted yet. An account exists for an endpoint, for a
 * device session with all its endpoints, and for the whole gateway. Bytes are counted when they are written.
 * Above a limit, the holders with the fewest bytes moved for each byte held are ended.
 */
export class BufferAccount {
  readonly #limitBytes: number
  readonly #parent: BufferAccount | undefined
  /** Holders with bytes, of the whole tree. */
  readonly #claims: Set<BufferClaim>
  #bytes = 0

  constructor(limitBytes = REQUEST_DEFAULTS.bufferBytes, parent?: BufferAccount) {
    this.#limitBytes = limitBytes
    this.#parent = parent
    this.#claims = parent ? parent.#claims : new Set()
  }

  get bytes(): number {
    return this.#bytes
  }

  get limitBytes(): number {
    return this.#limitBytes
  }

  /**
   * The part of a device of this gateway: of one session. A device that has two at a time, while it is
   * taken over, has a part for each, and the limit of the gateway above them.
   */
  forDevice(): BufferAccount {
    return new BufferAccount(this.#root.#limitBytes * DEVICE_PART, this)
  }

  /** The part of an endpoint of this device, or of this gateway. */
  forEndpoint(): BufferAccount {
    return new BufferAccount(this.#root.#limitBytes * ENDPOINT_PART, this)
  }

  /** For `BufferClaim`. */
  enlist(claim: BufferClaim): void {
    this.#claims.add(claim)
  }

  /** For `BufferClaim`. */
  delist(claim: BufferClaim): void {
    this.#claims.delete(claim)
  }

  /** For `BufferClaim`: so many bytes more, or fewer. */
  add(bytes: number): void {
    this.#bytes += bytes
    this.#parent?.add(bytes)
  }

  /** Ends holders until no account from here up is above its limit; `now` is monotonic. */
  enforce(now: number): void {
    if (this.#bytes > this.#limitBytes) this.#shed(now)
    this.#parent?.enforce(now)
  }

  /** Whether bytes of this account also count on the other. */
  isPartOf(other: BufferAccount): boolean {
    return this === other || this.#parent?.isPartOf(other) === true
  }

  #shed(now: number): void {
    const claims = [...this.#claims].filter((claim) => claim.account.isPartOf(this))
    // Sockets take bytes without a word.
    for (const claim of claims) claim.recount(now)
    if (this.#bytes > this.#limitBytes) {
      const byWorth = claims
        .filter(({ isEmpty }) => !isEmpty)
        .map((claim) => ({ claim, isYoung: claim.since > now - YOUNG_MS, worth: claim.worth }))
        .sort((a, b) => Number(a.isYoung) - Number(b.isYoung) || a.worth - b.worth)
      for (const { claim } of byWorth) {
        if (this.#bytes <= this.#limitBytes * SHED_TO) break
        claim.end()
      }
    }
  }

  get #root(): BufferAccount {
    return this.#parent ? this.#parent.#root : this
  }
}

/** The bytes of one holder on an account. */
export class BufferClaim {
  readonly #holder: BufferHolder
  #account: BufferAccount
  #bytes = 0
  #since = 0
  #isClosed = false

  constructor(holder: BufferHolder, account: BufferAccount) {
    this.#holder = holder
    this.#account = account
  }

  get account(): BufferAccount {
    return this.#account
  }

  get isEmpty(): boolean {
    return this.#bytes === 0
  }

  /** Since when it holds something without a break, monotonic. */
  get since(): number {
    return this.#since
  }

  /** Bytes moved for each byte held. */
  get worth(): number {
    return this.#holder.movedBytes / this.#bytes
  }

  /** Counts the holder's current bytes, and enforces the limits. */
  update(now: number): void {
    if (this.recount(now) > 0) this.#account.enforce(now)
  }

  /** Counts the holder's current bytes. Returns the increase. */
  recount(now: number): number {
    const held = this.#isClosed ? 0 : this.#holder.heldBytes
    const change = held - this.#bytes
    if (change === 0) return 0
    if (this.#bytes === 0) {
      this.#since = now
      this.#account.enlist(this)
    } else if (held === 0) {
      this.#account.delist(this)
    }
    this.#bytes = held
    this.#account.add(change)
    return change
  }

  /** Moves its bytes to another account. */
  moveTo(account: BufferAccount, now: number): void {
    const before = this.#account
    this.#account = account
    if (this.#bytes === 0) return
    before.add(-this.#bytes)
    before.delist(this)
    account.add(this.#bytes)
    account.enlist(this)
    account.enforce(now)
  }

  /** Ends the holder. */
  end(): void {
    this.close()
    this.#holder.onOverBudget()
  }

  /** Ends the count. */
  close(): void {
    this.#isClosed = true
    this.recount(0)
  }
}

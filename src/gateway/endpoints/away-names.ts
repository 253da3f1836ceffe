import type { AwayName } from './away-name.ts'

/** The names that are away, of all accounts; the account that has most of them loses its oldest. */
export class AwayNames {
  readonly #capacity: number
  /** Oldest first; only accounts that have some. */
  readonly #byOwner = new Map<string | null, Set<AwayName>>()
  /** The same by device: thousands of devices of one account come back at once. */
  readonly #byDevice = new Map<string, Set<AwayName>>()
  #size = 0

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  get size(): number {
    return this.#size
  }

  has(name: AwayName): boolean {
    return this.#byOwner.get(name.ownerId)?.has(name) === true
  }

  *all(ownerId?: string | null): Generator<AwayName> {
    if (ownerId !== undefined) yield* this.#byOwner.get(ownerId) ?? []
    else for (const names of this.#byOwner.values()) yield* names
  }

  /** Those whose device says that it is this one; undefined: those whose device does not say. */
  ofDevice(ownerId: string | null, deviceId: string | undefined): Iterable<AwayName> {
    return this.#byDevice.get(deviceKey({ ownerId, deviceId })) ?? []
  }

  /** Takes a name in; answers those that have to be given up, because of their age or number. */
  add(name: AwayName, now: number): AwayName[] {
    const own = this.#byOwner.get(name.ownerId) ?? new Set()
    this.#byOwner.set(name.ownerId, own.add(name))
    const key = deviceKey(name)
    this.#byDevice.set(key, (this.#byDevice.get(key) ?? new Set()).add(name))
    this.#size += 1
    const surplus: AwayName[] = []
    for (const old of own) {
      if (now < old.forgottenAt) break
      surplus.push(old)
    }
    const [oldest] = this.#size - surplus.length > this.#capacity ? this.#largest() : []
    if (oldest) surplus.push(oldest)
    return surplus
  }

  /** False when it was not here. */
  remove(name: AwayName): boolean {
    const own = this.#byOwner.get(name.ownerId)
    if (!own?.delete(name)) return false
    this.#size -= 1
    if (own.size === 0) this.#byOwner.delete(name.ownerId)
    const key = deviceKey(name)
    const ofDevice = this.#byDevice.get(key)
    ofDevice?.delete(name)
    if (ofDevice?.size === 0) this.#byDevice.delete(key)
    return true
  }

  #largest(): Iterable<AwayName> {
    let largest = new Set<AwayName>()
    for (const names of this.#byOwner.values()) if (names.size > largest.size) largest = names
    return largest
  }
}

/** The id of an account has no space. */
function deviceKey({ ownerId, deviceId }: Pick<AwayName, 'ownerId' | 'deviceId'>): string {
  return `${ownerId ?? ''} ${deviceId ?? ''}`
}

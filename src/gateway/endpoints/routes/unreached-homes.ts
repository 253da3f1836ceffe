import { AwayName, type HeldRequest } from '../away-name.ts'
import { HeldRequests } from '../held-requests.ts'
import type { RemoteHome } from './remote-home.ts'

/** How long nobody waits again for a home that was waited for in vain, unless something changes. */
const REST_MS = 5_000
const CAPACITY = 10_000

/**
 * Homes at other nodes that cannot be reached, or have said that they are none: who wants to go there
 * waits, as for a device that is away, until its node can be reached, the name has another home, or
 * the time is up.
 */
export class UnreachedHomes {
  readonly #holdMs: number
  readonly #held = new HeldRequests()
  /** Oldest first. */
  readonly #names = new Map<string, { readonly home: RemoteHome; readonly away: AwayName }>()
  readonly #aways = new Set<AwayName>()

  constructor(holdMs: number) {
    this.#holdMs = holdMs
  }

  get size(): number {
    return this.#names.size
  }

  /** Requests that wait. */
  get waiting(): number {
    return this.#held.size
  }

  has(name: AwayName): boolean {
    return this.#aways.has(name)
  }

  /** The name to wait for, in place of its home; `now` is monotonic. */
  hold(home: RemoteHome, now: number): AwayName {
    const key = keyOf(home)
    const known = this.#names.get(key)
    if (known && known.home.nodeId === home.nodeId && now < known.away.forgottenAt)
      return known.away
    if (known) this.#forget(key)
    const [oldest] = this.#names.size >= CAPACITY ? this.#names.keys() : []
    if (oldest !== undefined) this.#forget(oldest)
    const until = now + this.#holdMs
    const { protocol, host, url, ownerId } = home
    const facts = { protocol, host, url, ownerId, isShared: false, credentialId: '' }
    const away = new AwayName(facts, until, until + REST_MS)
    this.#names.set(key, { home, away })
    this.#aways.add(away)
    return away
  }

  /** False when the time is up, or there is no place. */
  wait(name: AwayName, request: HeldRequest, now: number): boolean {
    return name.isHeld(now) && this.#held.add(name, request)
  }

  cancel(name: AwayName, request: HeldRequest): void {
    this.#held.remove(name, request)
  }

  /** Lets all go that may have somewhere to go now. */
  release(isChanged: (home: RemoteHome) => boolean): void {
    for (const [key, { home }] of [...this.#names]) if (isChanged(home)) this.#forget(key)
  }

  #forget(key: string): void {
    const known = this.#names.get(key)
    if (!known) return
    this.#names.delete(key)
    this.#aways.delete(known.away)
    this.#held.release(known.away)
  }
}

function keyOf({ protocol, host, ownerId }: RemoteHome): string {
  return `${protocol} ${host} ${ownerId ?? ''}`
}

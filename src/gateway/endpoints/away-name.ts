import type { EndpointAddress, EndpointProtocol } from '../records/endpoint-protocol.ts'

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

/**
 * Of a name whose device has not got it at present.
 *
 * | state       | its device                                                    | visitors        |
 * |-------------|---------------------------------------------------------------|-----------------|
 * | `held`      | disconnected a moment ago                                     | wait            |
 * | `returning` | is connected, and has not bound all of its names again        | wait            |
 * | `away`      | disconnected longer ago than the hold, or binds nothing more  | get 503 at once |
 *
 * A name that its device has given up is in none of them: nobody has it.
 */
type AwayState = 'held' | 'returning' | 'away'

/**
 * `hold`: the hold begins now. `return`: the device has connected. `lose`: it has disconnected before it
 * had all names. `expire`: the hold is over, or the device has bound nothing for long.
 */
type AwayEvent = 'hold' | 'return' | 'lose' | 'expire'

const NEXT: Record<AwayState, Partial<Record<AwayEvent, AwayState>>> = {
  held: { return: 'returning', expire: 'away' },
  returning: { hold: 'held', lose: 'held', expire: 'away' },
  away: { hold: 'held', return: 'returning' },
}

/** The state after an event; an event that means nothing in a state changes nothing. */
function nextAwayState(state: AwayState, event: AwayEvent): AwayState {
  return NEXT[state][event] ?? state
}

/**
 * Which device of an account it is. What a device says of itself, others could say, too: it is known by
 * its authtoken, or by the process that runs on while the authtoken is replaced.
 */
export interface DeviceMark {
  /** What the endpoints were bound with. */
  readonly credentialId: string
  /** Of a device that says what it is. */
  readonly deviceId?: string | undefined
  /** Of its process, where that has a mark of its own. */
  readonly instance?: string | undefined
}

/** Whether two marks of one account are of one device. */
export function isSameDevice(one: DeviceMark, other: DeviceMark): boolean {
  if (one.deviceId !== other.deviceId) return false
  if (one.credentialId === other.credentialId) return true
  return one.deviceId !== undefined && one.instance !== undefined && one.instance === other.instance
}

/** What stays of an endpoint when its device is away. */
export interface NameFacts extends EndpointAddress, DeviceMark {
  readonly ownerId: string | null
  readonly url: string
  /** Whether policies of other accounts find it. */
  readonly isShared: boolean
  /** The gateway has chosen it, for this endpoint: it is given to it again. */
  readonly drawn?: { readonly endpointId: string; readonly forwardsTo: string } | undefined
  /** Others may bring it back, too. */
  readonly isPooled?: boolean | undefined
}

/** How much waits, of a name, of a client, of the gateway. */
export class HeldLoad {
  requests = 0
  bytes = 0
}

/** A request that waits for a device to come back. */
export interface HeldRequest {
  /** Whose share of the places it takes: the IPv4 address, or the /64 of an IPv6 one. */
  readonly network: string
  /** What it may keep in memory. */
  readonly bytes: number
  /** The name is online, or forgotten: whoever looks it up again finds what is so now. */
  onNameChange(): void
}

/** A name whose device was here a moment ago, and did not say that it gives it up. */
export class AwayName implements NameFacts {
  readonly type = 'away'
  readonly host: string
  readonly ownerId: string | null
  readonly protocol: EndpointProtocol
  readonly url: string
  readonly isShared: boolean
  readonly credentialId: string
  readonly deviceId: string | undefined
  readonly instance: string | undefined
  readonly drawn: NameFacts['drawn']
  readonly isPooled: boolean
  #state: AwayState = 'held'
  #heldUntil: number
  /** Of its device, while that is back and may bind the name. */
  #return: DeviceReturn | undefined
  /** Whether requests wait for that. */
  #waits = false
  /** From then on nobody knows that it was here; monotonic. */
  readonly forgottenAt: number
  readonly waiting = new Set<HeldRequest>()
  readonly load = new HeldLoad()

  constructor(facts: NameFacts, heldUntil: number, forgottenAt: number) {
    this.host = facts.host
    this.ownerId = facts.ownerId
    this.protocol = facts.protocol
    this.url = facts.url
    this.isShared = facts.isShared
    this.credentialId = facts.credentialId
    this.deviceId = facts.deviceId
    this.instance = facts.instance
    this.drawn = facts.drawn
    this.isPooled = facts.isPooled === true
    this.#heldUntil = heldUntil
    this.forgottenAt = forgottenAt
  }

  /** How long requests may wait for it, as far as is known now; monotonic. */
  get heldUntil(): number {
    const until = this.#waits ? this.#return?.until : undefined
    return Math.max(this.#heldUntil, until ?? Number.NEGATIVE_INFINITY)
  }

  /** `now` is monotonic. */
  stateAt(now: number): AwayState {
    if (now >= this.heldUntil) this.#move('expire')
    // Given up for away, its device has gone on after all.
    else if (this.#state === 'away') this.#move('return')
    return this.#state
  }

  /** Whether requests may wait for it. */
  isHeld(now: number): boolean {
    return this.stateAt(now) !== 'away'
  }

  /** The hold lasts until then. */
  hold(until: number): void {
    this.#heldUntil = until
    this.#move('hold')
  }

  /** Its device is connected, and goes through its names; requests wait if they do so at all. */
  startReturn(device: DeviceReturn, waits: boolean): void {
    this.#return?.names.delete(this)
    this.#return = device
    this.#waits = waits
    device.names.add(this)
    if (waits) this.#move('return')
  }

  /** The return it takes part in, if any. */
  get returning(): DeviceReturn | undefined {
    return this.#return
  }

  /** Its device has gone before it had all names; the hold lasts until then. */
  loseReturn(heldUntil: number): void {
    this.#return?.names.delete(this)
    this.#return = undefined
    this.#heldUntil = heldUntil
    this.#move('lose')
  }

  #move(event: AwayEvent): void {
    this.#state = nextAwayState(this.#state, event)
  }
}

/** Told of names that visitors wait for, the longest wait first. */
export type AwaitedListener = (hosts: readonly string[]) => void

/**
 * A device that is connected again and binds its names, one after the other: those that are still to come
 * wait for it as long as it goes on.
 */
export class DeviceReturn {
  /** Those of its names that are away. */
  readonly names = new Set<AwayName>()
  /** Monotonic: the device counts as done then, unless it goes on. */
  until = Number.NEGATIVE_INFINITY
  /** Connections of the device that take part. */
  sessions = 0
  readonly #listeners = new Set<AwaitedListener>()
  readonly #latest: number

  /** `latest` is monotonic: it is not waited for longer, however it goes on. */
  constructor(latest: number) {
    this.#latest = latest
  }

  goOn(until: number): void {
    this.until = Math.max(this.until, Math.min(until, this.#latest))
  }

  /** A connection of the device wants to know which names visitors wait for. */
  listen(listener: AwaitedListener): void {
    this.#listeners.add(listener)
  }

  unlisten(listener: AwaitedListener): void {
    this.#listeners.delete(listener)
  }

  /** Visitors wait for these names. Only the newest connection is told: older ones may be dead. */
  tellAwaited(hosts: readonly string[]): void {
    const newest = [...this.#listeners].at(-1)
    if (hosts.length > 0) newest?.(hosts)
  }
}

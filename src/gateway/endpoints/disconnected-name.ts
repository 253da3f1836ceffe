import type { EndpointAddress, EndpointProtocol } from '../records/endpoint-protocol.ts'

/** Disconnected names of all accounts. When full, the account with the most names loses its oldest. */
export class DisconnectedNames {
  readonly #capacity: number
  /** Oldest first. Accounts without disconnected names have no entry. */
  readonly #byOwner = new Map<string | null, Set<DisconnectedName>>()
  /** The same names by device, because thousands of devices of an account may come back at once. */
  readonly #byDevice = new Map<string, Set<DisconnectedName>>()
  #size = 0

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  get size(): number {
    return this.#size
  }

  has(name: DisconnectedName): boolean {
    return this.#byOwner.get(name.ownerId)?.has(name) === true
  }

  *all(ownerId?: string | null): Generator<DisconnectedName> {
    if (ownerId !== undefined) yield* this.#byOwner.get(ownerId) ?? []
    else for (const names of this.#byOwner.values()) yield* names
  }

  /** Names of the device with this id. Undefined: names of devices without an id. */
  ofDevice(ownerId: string | null, deviceId: string | undefined): Iterable<DisconnectedName> {
    return this.#byDevice.get(deviceKey({ ownerId, deviceId })) ?? []
  }

  /** Adds a name. Returns the names to forget, because of their age or number. */
  add(name: DisconnectedName, now: number): DisconnectedName[] {
    const own = this.#byOwner.get(name.ownerId) ?? new Set()
    this.#byOwner.set(name.ownerId, own.add(name))
    const key = deviceKey(name)
    this.#byDevice.set(key, (this.#byDevice.get(key) ?? new Set()).add(name))
    this.#size += 1
    const surplus: DisconnectedName[] = []
    for (const old of own) {
      if (now < old.forgottenAt) break
      surplus.push(old)
    }
    const [oldest] = this.#size - surplus.length > this.#capacity ? this.#largest() : []
    if (oldest) surplus.push(oldest)
    return surplus
  }

  /** Returns false if it was not present. */
  remove(name: DisconnectedName): boolean {
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

  #largest(): Iterable<DisconnectedName> {
    let largest = new Set<DisconnectedName>()
    for (const names of this.#byOwner.values()) if (names.size > largest.size) largest = names
    return largest
  }
}

/** The space separates the parts: account ids contain no space. */
function deviceKey({ ownerId, deviceId }: Pick<DisconnectedName, 'ownerId' | 'deviceId'>): string {
  return `${ownerId ?? ''} ${deviceId ?? ''}`
}

/**
 * State of a name whose device does not serve it now.
 *
 * | state       | device                                                   | visitors        |
 * |-------------|----------------------------------------------------------|-----------------|
 * | `held`      | disconnected a moment ago                                | wait            |
 * | `returning` | is connected, but has not bound all of its names again   | wait            |
 * | `away`      | disconnected longer than the hold, or binds nothing more | get 503 at once |
 *
 * A name that its device has released has no state: it belongs to no account.
 */
type HoldState = 'held' | 'returning' | 'away'

/**
 * `hold`: the hold begins now. `return`: the device has connected. `lose`: the device disconnected before it
 * had bound all its names. `expire`: the hold is over, or the device has bound nothing for too long.
 */
type HoldEvent = 'hold' | 'return' | 'lose' | 'expire'

const NEXT: Record<HoldState, Partial<Record<HoldEvent, HoldState>>> = {
  held: { return: 'returning', expire: 'away' },
  returning: { hold: 'held', lose: 'held', expire: 'away' },
  away: { hold: 'held', return: 'returning' },
}

/** Returns the state after an event. An event without a transition changes nothing. */
function nextHoldState(state: HoldState, event: HoldEvent): HoldState {
  return NEXT[state][event] ?? state
}

/**
 * Identifies a device of an account. The device id alone is no proof, because another device could send it.
 * The authtoken must match too, or the process, which keeps running while its authtoken is replaced.
 */
export interface DeviceMark {
  /** Authtoken that the endpoints were bound with. */
  readonly credentialId: string
  /** Undefined if the device sends no id. */
  readonly deviceId?: string | undefined
  /** Identifies the agent process. Undefined if the agent sends no such mark. */
  readonly instance?: string | undefined
}

/** Whether two marks of the same account identify the same device. */
export function isSameDevice(one: DeviceMark, other: DeviceMark): boolean {
  if (one.deviceId !== other.deviceId) return false
  if (one.credentialId === other.credentialId) return true
  return one.deviceId !== undefined && one.instance !== undefined && one.instance === other.instance
}

/** Facts about an endpoint that are kept while its device is disconnected. */
export interface NameFacts extends EndpointAddress, DeviceMark {
  readonly ownerId: string | null
  readonly url: string
  /** Whether policies of other accounts can reach it. */
  readonly isShared: boolean
  /** Set if the gateway chose the address for this endpoint: the endpoint gets it again. */
  readonly drawn?: { readonly endpointId: string; readonly forwardsTo: string } | undefined
  /** Whether other endpoints may bring the name back too. */
  readonly isPooled?: boolean | undefined
}

/** Waiting requests and their bytes, counted per name, per client or for the gateway. */
export class HeldLoad {
  requests = 0
  bytes = 0
}

/** A request that waits for a device to come back. */
export interface HeldRequest {
  /** Client network that the place is counted for: an IPv4 address, or the /64 of an IPv6 address. */
  readonly network: string
  /** Memory that the request may use, in bytes. */
  readonly bytes: number
  /** Called when the name is online or forgotten. The request then looks up the name again. */
  onNameChange(): void
}

/** A name whose device disconnected without releasing it. */
export class DisconnectedName implements NameFacts {
  readonly type = 'disconnected'
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
  #state: HoldState = 'held'
  #heldUntil: number
  /** Set while the device is back and may still bind the name. */
  #return: DeviceReturn | undefined
  /** Whether requests wait for the returning device. */
  #waits = false
  /** The name is forgotten at this time; monotonic. */
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

  /** Requests may wait until this time, as far as is known now; monotonic. */
  get heldUntil(): number {
    const until = this.#waits ? this.#return?.until : undefined
    return Math.max(this.#heldUntil, until ?? Number.NEGATIVE_INFINITY)
  }

  /** `now` is monotonic. */
  stateAt(now: number): HoldState {
    if (now >= this.heldUntil) this.#move('expire')
    // The hold had expired, but the device continued to bind names.
    else if (this.#state === 'away') this.#move('return')
    return this.#state
  }

  /** Whether requests may wait for the name. */
  isHeld(now: number): boolean {
    return this.stateAt(now) !== 'away'
  }

  /** Holds the name until this time. */
  hold(until: number): void {
    this.#heldUntil = until
    this.#move('hold')
  }

  /** The device is connected again and binds its names. `waits`: whether requests wait for it. */
  startReturn(device: DeviceReturn, waits: boolean): void {
    this.#return?.names.delete(this)
    this.#return = device
    this.#waits = waits
    device.names.add(this)
    if (waits) this.#move('return')
  }

  /** The return of the device, if it is under way. */
  get returning(): DeviceReturn | undefined {
    return this.#return
  }

  /** The device disconnected before it had bound all names. The name is held until `heldUntil`. */
  loseReturn(heldUntil: number): void {
    this.#return?.names.delete(this)
    this.#return = undefined
    this.#heldUntil = heldUntil
    this.#move('lose')
  }

  #move(event: HoldEvent): void {
    this.#state = nextHoldState(this.#state, event)
  }
}

/** Receives the names that visitors wait for, the longest wait first. */
export type AwaitedListener = (hosts: readonly string[]) => void

/**
 * A device that is connected again and binds its names one by one. Names not bound yet wait for as long as
 * the device makes progress.
 */
export class DeviceReturn {
  /** Names of the device that are still disconnected. */
  readonly names = new Set<DisconnectedName>()
  /** Monotonic. The device counts as done at this time unless it makes progress. */
  until = Number.NEGATIVE_INFINITY
  /** Number of the device's connections that take part. */
  sessions = 0
  readonly #listeners = new Set<AwaitedListener>()
  readonly #latest: number

  /** `latest` is monotonic: waiting ends then, even if the device still makes progress. */
  constructor(latest: number) {
    this.#latest = latest
  }

  goOn(until: number): void {
    this.until = Math.max(this.until, Math.min(until, this.#latest))
  }

  /** Reports the names that visitors wait for to a connection of the device. */
  listen(listener: AwaitedListener): void {
    this.#listeners.add(listener)
  }

  unlisten(listener: AwaitedListener): void {
    this.#listeners.delete(listener)
  }

  /**
   * Reports names that visitors wait for. Only the newest connection is notified: older connections may be
   * dead.
   */
  tellAwaited(hosts: readonly string[]): void {
    const newest = [...this.#listeners].at(-1)
    if (hosts.length > 0) newest?.(hosts)
  }
}

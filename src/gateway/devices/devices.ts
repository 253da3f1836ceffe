import type { Clock } from '../../base/clock.ts'
import { TokenBuckets } from '../../base/limiter.ts'
import { networkOf } from '../../base/net/network.ts'
import type { ConnectedAgent, SessionEnd } from '../endpoints/endpoint.ts'
import type { Device, DeviceFacts, GoneReason } from '../records/device-store.ts'
import type { IdSource } from '../records/resource-id.ts'
import type { PageRequest } from '../records/resource-table.ts'
import {
  DeviceJournal,
  type DeviceJournalOptions,
  factsOf,
  identityKey,
  keyOf,
  rowFor,
  urlsOf,
} from './device-journal.ts'
import {
  duplicateEvent,
  givenOf,
  presenceEvent,
  type RefusedSignIn,
  refusedEvent,
} from './device-reports.ts'
import { TrafficHistory, type TrafficSeries } from './traffic-history.ts'

/** The gateways of a site; each tells of the devices that are connected to it. */
interface SiteNodes {
  /** This gateway. */
  readonly self: string
  /** Whether others tell of devices, too: a device has in its facts which one does. */
  readonly isShared: boolean
  isThere(node: string): boolean
  /** Whether this one tells of devices whose gateway is gone. */
  isOnDuty(): boolean
}

/** Where one gateway tells of all devices. */
const ONE_GATEWAY: SiteNodes = {
  self: '',
  isShared: false,
  isThere: () => true,
  isOnDuty: () => false,
}

/** Devices whose gateway is gone: most are back at another one soon. */
class Orphans {
  readonly #nodes: SiteNodes
  readonly #returnMs: number
  /** By id; since when it is known, monotonic. */
  #since = new Map<string, number>()

  constructor(nodes: SiteNodes, returnMs: number) {
    this.#nodes = nodes
    this.#returnMs = returnMs
  }

  /** Whether the gateway is gone that tells of the device. */
  has({ facts: { node } }: Device): boolean {
    return node !== undefined && node !== this.#nodes.self && !this.#nodes.isThere(node)
  }

  /**
   * Those that have had the time to come back, of all that are told to be online, who are asked for by the
   * gateway on duty alone: with thousands that is megabytes. `now` is monotonic.
   */
  due(online: () => readonly Device[], now: number): Device[] {
    const before = this.#since
    this.#since = new Map()
    if (!this.#nodes.isShared || !this.#nodes.isOnDuty()) return []
    const due: Device[] = []
    for (const device of online()) {
      if (!this.has(device)) continue
      const since = before.get(device.id) ?? now
      this.#since.set(device.id, since)
      if (now - since >= this.#returnMs) due.push(device)
    }
    return due
  }
}

/** Of one device, authtoken or address. */
const ONE_AN_HOUR = { capacity: 1, refillPerS: 1 / 3_600, maxKeys: 10_000 }
/** Of all together, since strangers can be refused, too … */
const REFUSALS = { capacity: 30, refillPerS: 1 / 10, maxKeys: 1 }
/** … and of one address, so that a single stranger does not use it up. */
const REFUSALS_OF_ADDRESS = { capacity: 10, refillPerS: 1 / 60, maxKeys: 1_000 }

/** Tells of who wanted to sign in and was refused, as seldom as people want to hear of it. */
class RefusedSignIns {
  readonly #journal: DeviceJournal
  readonly #clock: Clock
  readonly #seldom: TokenBuckets
  readonly #all: TokenBuckets
  readonly #ofAddress: TokenBuckets

  constructor(journal: DeviceJournal, clock: Clock) {
    this.#journal = journal
    this.#clock = clock
    this.#seldom = new TokenBuckets({ ...ONE_AN_HOUR, clock })
    this.#all = new TokenBuckets({ ...REFUSALS, clock })
    this.#ofAddress = new TokenBuckets({ ...REFUSALS_OF_ADDRESS, clock })
  }

  /** Whether another process with the identity of a device is to be told of again. */
  isNewDuplicate(identityKey: string): boolean {
    return this.#seldom.take(`duplicate ${identityKey}`) === 0
  }

  tell(signIn: RefusedSignIn): void {
    const { ownerId, deviceId, ip } = signIn
    if (this.#seldom.take(`refused ${deviceId ?? ip}`) > 0) return
    if (this.#ofAddress.take(networkOf(ip)) > 0 || this.#all.take('all') > 0) return
    const device =
      deviceId === undefined ? undefined : this.#journal.findByDevice(ownerId, deviceId)
    this.#journal.tell(refusedEvent(signIn, device, this.#clock.now()))
  }
}

/** A device whose connection broke is online for so long: most are back within a second. */
const AWAY_MS = 5_000
/** After a start, devices that were online may take so long to come back. */
const RETURN_MS = 30_000
const LOOK_MS = 10_000
/** What a device says of itself is written no more often. */
const FACTS_STEP_MS = 60_000
/** When the gateway is killed, it is known to this much when devices were last online. */
const WATCH_STEP_MS = 300_000
/** Of one device: so many times it is told at once that it went, then once a minute. */
const FLAPS = { capacity: 5, refillPerS: 1 / 60, maxKeys: 10_000 }

/** `away`: not connected, and expected back any moment. */
export type DeviceState = 'online' | 'away' | 'offline' | 'never'

export interface DevicesOptions extends DeviceJournalOptions {
  readonly ids: IdSource
  /** The gateways of the site; without them there is one. */
  readonly nodes?: SiteNodes
}

/** A device that is connected, or was a moment ago. */
interface Presence {
  readonly key: string
  device: Device
  readonly sessions: Set<ConnectedAgent>
  /** Of its last session, in the order in which the gateways of a site had them; as `DeviceFacts` has it. */
  cameAt: number
  /** Ends the wait for its return. */
  leaving: AbortController | undefined
  /** Monotonic; when its facts were last written. */
  notedAt: number
}

/**
 * Which devices there are, which are online, and why the others are not.
 *
 * INVARIANTS
 * - A device is told to have come once, and then to have gone once, in turns, over restarts: what was
 *   told last is its row.
 * - It is online from its first session until it is known to have gone: a connection that breaks and
 *   comes back within `AWAY_MS` is no news.
 * - The row and the event of it are one transaction. Nothing here writes by itself: `DeviceJournal`
 *   writes for all devices together, five times a second at most.
 */
export class Devices {
  readonly #options: DevicesOptions
  readonly #nodes: SiteNodes
  readonly #journal: DeviceJournal
  readonly #present = new Map<string, Presence>()
  readonly #flaps: TokenBuckets
  readonly #refused: RefusedSignIns
  readonly #history: TrafficHistory
  readonly #stopping = new AbortController()
  /** What is kept, as it was read when it had that version. */
  #read: { readonly version: number; readonly devices: readonly Device[] } | undefined
  #hasReturned = false
  /** Devices of gateways that are gone. */
  readonly #orphans: Orphans
  #watchedAt = Number.NEGATIVE_INFINITY

  constructor(options: DevicesOptions) {
    const { clock } = options
    this.#options = options
    this.#nodes = options.nodes ?? ONE_GATEWAY
    this.#orphans = new Orphans(this.#nodes, RETURN_MS)
    this.#journal = new DeviceJournal(options)
    this.#flaps = new TokenBuckets({ ...FLAPS, clock })
    this.#refused = new RefusedSignIns(this.#journal, clock)
    this.#history = new TrafficHistory({ devices: () => this.#connected(), clock })
  }

  start(): void {
    this.#inBackground(this.#look())
    this.#inBackground(this.#awaitReturn())
    this.#history.start()
  }

  /** Leaves the rows to another process, as true as they can be. */
  async release(): Promise<void> {
    this.#noteWatched()
    await this.#journal.release()
  }

  reclaim(): void {
    this.#journal.reclaim()
  }

  async stop(): Promise<void> {
    if (this.#stopping.signal.aborted) return
    this.#stopping.abort()
    this.#history.stop()
    for (const { leaving } of this.#present.values()) leaving?.abort()
    this.#noteWatched()
    await this.#journal.stop()
  }

  /** A session has authenticated. */
  came(agent: ConnectedAgent): void {
    const { ids, clock } = this.#options
    const { identity } = agent
    const key = identityKey(identity)
    let presence = this.#present.get(key)
    if (!presence) {
      const device = rowFor(identity, { rows: this.#journal, ids, now: clock.now() })
      const notedAt = Number.NEGATIVE_INFINITY
      presence = { key, device, sessions: new Set(), cameAt: 0, leaving: undefined, notedAt }
      this.#present.set(key, presence)
    }
    presence.sessions.add(agent)
    presence.leaving?.abort()
    presence.leaving = undefined
    this.#appear(presence, agent)
  }

  /** It is here, and at no other gateway any more. */
  #appear(presence: Presence, agent: ConnectedAgent): void {
    const { clock } = this.#options
    const now = clock.now()
    const { device } = presence
    const row = this.#rowOf(presence)
    if (row.isOnline && !this.#nodes.isShared) return
    // Clocks may differ: it came here later than to where it was.
    presence.cameAt = Math.max(now, (row.facts.cameAt ?? 0) + 1)
    const { credentialId, deviceId, duplicate } = device
    const before = { ...row, credentialId, deviceId, duplicate }
    if (row.isOnline) {
      // Written in any case: that it is said to be here may be older than that it was elsewhere.
      const urls = this.#isOurs(row) ? device.facts.endpoints : []
      presence.device = { ...before, facts: this.#factsOf(presence, agent, urls) }
      this.#journal.write(presence.device)
      return
    }
    presence.device = {
      ...before,
      isOnline: true,
      since: now,
      seenAt: now,
      goneReason: null,
      facts: this.#factsOf(presence, agent, device.facts.endpoints),
    }
    this.#journal.write(presence.device, presenceEvent('device.online', presence.device, now))
  }

  /** What was told of it last; in a site others tell of it, too. */
  #rowOf({ device }: Presence): Device {
    if (!this.#nodes.isShared) return device
    const { id, ownerId, deviceId } = device
    const byId = this.#journal.get(id)
    if (byId || deviceId === null) return byId ?? device
    return this.#journal.findByDevice(ownerId, deviceId) ?? device
  }

  /** A session has ended; `urls` are those that it had. */
  went(agent: ConnectedAgent, why: SessionEnd, urls: readonly string[]): void {
    const presence = this.#present.get(identityKey(agent.identity))
    if (!presence?.sessions.delete(agent) || presence.sessions.size > 0) return
    if (why === 'gateway-left' || this.#stopping.signal.aborted) {
      // The next process tells whether it is back.
      this.#noteWatched()
      this.#present.delete(presence.key)
      return
    }
    const known = urls.length > 0 ? urls : presence.device.facts.endpoints
    presence.device = { ...presence.device, facts: this.#factsOf(presence, agent, known) }
    void this.#leave(presence, why === 'superseded' ? 'disconnected' : why)
  }

  /** Another process with the identity of a connected device was refused. */
  refusedDuplicate(agent: ConnectedAgent, ip: string): void {
    const presence = this.#present.get(identityKey(agent.identity))
    if (!presence) return
    const now = this.#options.clock.now()
    presence.device = { ...presence.device, duplicate: { seenAt: now, ip } }
    if (!this.#refused.isNewDuplicate(presence.key)) return
    this.#journal.write(presence.device, duplicateEvent(presence.device, ip, now))
  }

  /** Somebody was refused who wanted to sign in. */
  refused(signIn: RefusedSignIn): void {
    this.#refused.tell(signIn)
  }

  /** With what is not written yet. */
  get(id: string): Device | undefined {
    return this.#journal.get(id)
  }

  findByDevice(ownerId: string | null, deviceId: string): Device | undefined {
    return this.#journal.findByDevice(ownerId, deviceId)
  }

  /** The one that is known by this authtoken alone. */
  findByCredential(credentialId: string): Device | undefined {
    return this.#journal.findByCredential(credentialId)
  }

  /** Newest first. */
  page(request: PageRequest): Device[] {
    const { deviceStore } = this.#options
    return deviceStore.page(request).map((device) => this.#journal.latest(device))
  }

  /** All of them, newest first. */
  all(): Device[] {
    const { deviceStore } = this.#options
    if (this.#read?.version !== deviceStore.version) {
      const { version } = deviceStore
      this.#read = { version, devices: deviceStore.page({ limit: Number.MAX_SAFE_INTEGER }) }
    }
    return this.#read.devices.map((device) => this.#journal.latest(device))
  }

  /** What went through an endpoint of a device in the last hour; undefined when nothing did. */
  historyOf(device: Device, url: string): TrafficSeries | undefined {
    return this.#history.of(keyOf(device), url)
  }

  /** The sessions that a device has now. */
  sessionsOf(device: Device): readonly ConnectedAgent[] {
    return [...(this.#present.get(keyOf(device))?.sessions ?? [])]
  }

  stateOf(device: Device): DeviceState {
    if (device.since === null) return 'never'
    if (!device.isOnline) return 'offline'
    if (!this.#isOurs(device)) return 'online'
    const { sessions } = this.#present.get(keyOf(device)) ?? {}
    return sessions && sessions.size > 0 ? 'online' : 'away'
  }

  /**
   * Makes a device, changes it, or takes what somebody has changed of it. `check` is asked in the
   * transaction that keeps it: what it throws refuses that.
   */
  async save(device: Device, check?: () => void): Promise<void> {
    const presence = this.#present.get(keyOf(device))
    if (presence?.device.id !== device.id) {
      await this.#journal.save(device, check)
      return
    }
    const given = givenOf(device)
    await this.#journal.save({ ...presence.device, ...given }, check)
    presence.device = { ...presence.device, ...given }
  }

  /**
   * Only one that is neither online nor away: it would be back with the next that it does. `check` is
   * asked in the transaction that deletes it.
   */
  async delete({ id }: Device, check?: () => void): Promise<void> {
    await this.#journal.delete(id, check)
  }

  *#connected(): Generator<readonly [string, Iterable<ConnectedAgent>]> {
    for (const { key, sessions } of this.#present.values()) yield [key, sessions]
  }

  /** Waits for the device to come back, if it may, and tells that it went. */
  async #leave(presence: Presence, reason: GoneReason): Promise<void> {
    const { clock } = this.#options
    const leaving = new AbortController()
    presence.leaving = leaving
    const went = { ...presence.device, isOnline: false, since: clock.now(), seenAt: clock.now() }
    try {
      // Who has not answered for long has had its time; who may not come back, or shall not, will not.
      const mayReturn = reason === 'disconnected' || reason === 'stopped' || reason === 'duplicate'
      if (mayReturn) await clock.sleep(AWAY_MS, leaving.signal)
      while (mayReturn) {
        const waitMs = this.#flaps.take(presence.key)
        if (waitMs === 0) break
        await clock.sleep(waitMs, leaving.signal)
      }
    } catch {
      return
    }
    this.#present.delete(presence.key)
    const { duplicate } = presence.device
    const device: Device = { ...went, ...givenOf(presence.device), duplicate, goneReason: reason }
    this.#journal.write(device, presenceEvent('device.offline', device, clock.now()))
  }

  /** Those that were online when the last process ended, and that have not come back. */
  async #awaitReturn(): Promise<void> {
    const { deviceStore, clock } = this.#options
    const expected = deviceStore.online().filter((device) => this.#isOurs(device))
    const seenAt = deviceStore.watchedAt
    try {
      if (expected.length > 0) await clock.sleep(RETURN_MS, this.#stopping.signal)
    } catch {
      return
    }
    this.#hasReturned = true
    for (const before of expected) {
      const device = this.get(before.id)
      if (device && this.#isOurs(device)) this.#tellLost(device, seenAt)
    }
  }

  /** Nobody knows when it went. */
  #tellLost(device: Device, seenAt: number | null = null): void {
    if (!device.isOnline || this.#present.has(keyOf(device))) return
    const at = Math.max(seenAt ?? 0, device.seenAt ?? 0)
    const gone = {
      isOnline: false,
      since: at,
      seenAt: at,
      goneReason: 'gateway-restarted',
    } as const
    const now = { ...device, ...gone }
    this.#journal.write(now, presenceEvent('device.offline', now, this.#options.clock.now()))
  }

  /** Whether this gateway is the one that tells of it. */
  #isOurs({ facts }: Device): boolean {
    return facts.node === undefined || facts.node === this.#nodes.self
  }

  #factsOf({ cameAt }: Presence, agent: ConnectedAgent, urls: readonly string[]): DeviceFacts {
    const { isShared, self } = this.#nodes
    return { ...factsOf(agent, urls), ...(isShared && { node: self, cameAt }) }
  }

  /** Writes what devices say of themselves where it changed, all of them together. */
  async #look(): Promise<void> {
    const { clock, log } = this.#options
    const { signal } = this.#stopping
    for (;;) {
      try {
        await clock.sleep(LOOK_MS, signal)
      } catch {
        return
      }
      try {
        this.#noteChanges(clock.monotonic())
        const left = this.#orphans.due(() => this.#options.deviceStore.online(), clock.monotonic())
        for (const device of left) this.#tellLost(device)
      } catch (error) {
        // The storage says of itself what is wrong with it.
        log.warn({ err: error }, 'device facts could not be read')
      }
    }
  }

  #noteChanges(now: number): void {
    for (const presence of this.#present.values()) {
      const [agent] = presence.sessions
      if (!agent) continue
      const row = this.#rowOf(presence)
      presence.device = { ...presence.device, id: row.id }
      // The gateway that it had moved to told that it went, or is gone.
      if (!row.isOnline || this.#orphans.has(row)) this.#appear(presence, agent)
      else if (this.#isOurs(row) && now - presence.notedAt >= FACTS_STEP_MS)
        this.#noteFacts(presence, agent, now)
    }
    if (now - this.#watchedAt >= WATCH_STEP_MS) this.#noteWatched()
  }

  /** No device is lost by it, and no gateway may end by it. */
  #inBackground(work: Promise<void>): void {
    work.catch((err) => this.#options.log.warn({ err }, 'device states could not be updated'))
  }

  #noteFacts(presence: Presence, agent: ConnectedAgent, now: number): void {
    const facts = this.#factsOf(presence, agent, urlsOf(presence.sessions))
    const { device } = presence
    const written = this.#options.deviceStore.get(device.id)
    const isSame =
      JSON.stringify([facts, device.duplicate, agent.identity.credentialId]) ===
      JSON.stringify([written?.facts, written?.duplicate, written?.credentialId])
    if (isSame) return
    presence.notedAt = now
    // People may have changed it at another gateway.
    const given = givenOf(this.#journal.get(device.id) ?? device)
    presence.device = { ...device, ...given, facts, credentialId: agent.identity.credentialId }
    this.#journal.write(presence.device)
  }

  /** What the last process has noted stays true until its devices are back. */
  #noteWatched(): void {
    if (!this.#hasReturned || this.#present.size === 0) return
    const { clock } = this.#options
    this.#watchedAt = clock.monotonic()
    this.#journal.noteWatched(clock.now())
  }
}

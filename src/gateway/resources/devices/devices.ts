import type { Clock } from '../../../base/clock.ts'
import { TokenBuckets } from '../../../base/limiter.ts'
import { networkOf } from '../../../base/net/network.ts'
import type { ConnectedAgent, GoneReason, SessionEnd } from '../../endpoints/endpoint.ts'
import type { IdSource } from '../../records/resource-id.ts'
import type { PageRequest } from '../../records/resource-table.ts'
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
import type { Device, DeviceFacts } from './device-store.ts'
import { TrafficHistory, type TrafficSeries } from './traffic-history.ts'

/** Gateways of the cluster. Each reports the devices that are connected to it. */
interface SiteNodes {
  /** This gateway. */
  readonly self: string
  /** Whether other gateways report devices too. The facts of a device then name its gateway. */
  readonly isShared: boolean
  isThere(node: string): boolean
  /** Whether this gateway reports devices of lost gateways. */
  isOnDuty(): boolean
}

/** For a single gateway, which reports all devices. */
const ONE_GATEWAY: SiteNodes = {
  self: '',
  isShared: false,
  isThere: () => true,
  isOnDuty: () => false,
}

/** Devices of lost gateways. Most soon connect to another gateway. */
class Orphans {
  readonly #nodes: SiteNodes
  readonly #returnMs: number
  /** Time at which the gateway of a device was first seen as lost, by device id; monotonic. */
  #since = new Map<string, number>()

  constructor(nodes: SiteNodes, returnMs: number) {
    this.#nodes = nodes
    this.#returnMs = returnMs
  }

  /** Whether the gateway that reports the device is lost. */
  has({ facts: { node } }: Device): boolean {
    return node !== undefined && node !== this.#nodes.self && !this.#nodes.isThere(node)
  }

  /**
   * Returns devices of lost gateways that had enough time to come back. `now` is monotonic. Only the gateway
   * on duty calls `online`, because thousands of devices are megabytes.
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

const HOUR_MS = 3_600_000
/** Per device, or per address. */
const ONE_AN_HOUR = { capacity: 1, refillPerS: 1_000 / HOUR_MS, maxKeys: 10_000 }
/** For all refusals, because unknown clients can cause them too … */
const REFUSALS = { capacity: 30, refillPerS: 1 / 10, maxKeys: 1 }
/** … and per address, so that one unknown client does not use up the limit. */
const REFUSALS_OF_ADDRESS = { capacity: 10, refillPerS: 1 / 60, maxKeys: 1_000 }

/** Reports refused authentications, at a rate that is useful for people. */
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

  /** Writes a device with a new duplicate, and reports it, both once an hour. */
  tellDuplicate(device: Device, ip: string): void {
    if (this.#seldom.tryCount(`duplicate ${keyOf(device)}`) > 0) return
    const event = duplicateEvent(device, ip, this.#clock.now())
    this.#journal.write(device)
    if (!this.#journal.wasTold(event, HOUR_MS)) this.#journal.tell(event)
  }

  tell(signIn: RefusedSignIn): void {
    const { ownerId, deviceId, ip } = signIn
    // A device id is a claim: another account cannot use up the reports about it.
    if (this.#seldom.tryCount(`refused ${ownerId ?? ''} ${deviceId ?? ip}`) > 0) return
    if (this.#ofAddress.tryCount(networkOf(ip)) > 0 || this.#all.tryCount('all') > 0) return
    const event = refusedEvent(signIn, this.#claimed(signIn), this.#clock.now())
    // This process may have started in the last hour.
    if (!this.#journal.wasTold(event, HOUR_MS)) this.#journal.tell(event)
  }

  /**
   * The device that a client claims to be. With an unknown authtoken, the account is unknown too: only the
   * gateway's owner sees the event, and sees all accounts.
   */
  #claimed({ ownerId, deviceId }: RefusedSignIn): Device | undefined {
    if (deviceId === undefined) return undefined
    const own = this.#journal.findByDevice(ownerId, deviceId)
    return own ?? (ownerId === null ? this.#journal.findInAnyAccount(deviceId) : undefined)
  }
}

/** After its connection breaks, a device stays online for this long: most are back within a second. */
const AWAY_MS = 5_000
/** After a start, devices that were online have this long to come back. */
const RETURN_MS = 30_000
/** Interval for checking the facts of devices and lost gateways, in milliseconds. */
const POLL_MS = 10_000
/** Minimum time between two writes of a device's facts. */
const FACTS_STEP_MS = 60_000
/** Accuracy of the time when devices were last online, if the gateway is killed. */
const WATCH_STEP_MS = 300_000
/** Per device: the first offline events are written at once, later ones once per minute. */
const FLAPS = { capacity: 5, refillPerS: 1 / 60, maxKeys: 10_000 }

/** `away`: not connected, but expected back at any moment. */
export type DeviceState = 'online' | 'away' | 'offline' | 'never'

export interface DevicesOptions extends DeviceJournalOptions {
  readonly ids: IdSource
  /** Gateways of the cluster. Unset: a single gateway. */
  readonly nodes?: SiteNodes
}

/** A device that is connected, or was a moment ago. */
interface Presence {
  readonly key: string
  device: Device
  readonly sessions: Set<ConnectedAgent>
  /** Time of its last session, ordered among the gateways of a cluster; see `DeviceFacts`. */
  cameAt: number
  /** Ends the wait for its return. */
  leaving: AbortController | undefined
  /** Time when its facts were last written; monotonic. */
  notedAt: number
}

/**
 * All devices, which of them are online, and why the others are not.
 *
 * INVARIANTS
 * - Events of a device alternate between online and offline, also across restarts. Its row contains the last
 *   reported state.
 * - A device is online from its first session until it is known to be gone. A connection that breaks and
 *   comes back within `AWAY_MS` causes no event.
 * - A row and its event are one transaction. All writes go through `DeviceJournal`, which writes for all
 *   devices together, at most five times a second.
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
  /** Stored devices, as read at that version. */
  #read: { readonly version: number; readonly devices: readonly Device[] } | undefined
  #hasReturned = false
  /** Devices of lost gateways. */
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
    this.#inBackground(this.#writeForever())
    this.#inBackground(this.#awaitReturn())
    this.#history.start()
  }

  /** Saves the latest rows and leaves them to another process. */
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

  /** The device is at this gateway and no longer at another. */
  #appear(presence: Presence, agent: ConnectedAgent): void {
    const { clock } = this.#options
    const now = clock.now()
    const { device } = presence
    const row = this.#rowOf(presence)
    if (row.isOnline && !this.#nodes.isShared) return
    // Clocks may differ. This value makes sure that it came here later than to its previous gateway.
    presence.cameAt = Math.max(now, (row.facts.cameAt ?? 0) + 1)
    const { credentialId, deviceId, duplicate } = device
    const before = { ...row, credentialId, deviceId, duplicate }
    if (row.isOnline) {
      // Always written, because the row may be older than a row of another gateway.
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

  /** The row as last written. In a cluster, other gateways write it too. */
  #rowOf({ device }: Presence): Device {
    if (!this.#nodes.isShared) return device
    const { id, ownerId, deviceId } = device
    const byId = this.#journal.get(id)
    if (byId || deviceId === null) return byId ?? device
    return this.#journal.findByDevice(ownerId, deviceId) ?? device
  }

  /** A session has ended. `urls`: the URLs that it had. */
  went(agent: ConnectedAgent, why: SessionEnd, urls: readonly string[]): void {
    const presence = this.#present.get(identityKey(agent.identity))
    if (!presence?.sessions.delete(agent) || presence.sessions.size > 0) return
    if (why === 'gateway-left' || this.#stopping.signal.aborted) {
      // The next process reports whether it is back.
      this.#noteWatched()
      this.#present.delete(presence.key)
      return
    }
    const known = urls.length > 0 ? urls : presence.device.facts.endpoints
    presence.device = { ...presence.device, facts: this.#factsOf(presence, agent, known) }
    void this.#markDisconnected(presence, why === 'superseded' ? 'disconnected' : why)
  }

  /** A process with the identity of a connected device was refused. */
  refusedDuplicate(agent: ConnectedAgent, ip: string): void {
    const presence = this.#present.get(identityKey(agent.identity))
    if (!presence) return
    const now = this.#options.clock.now()
    presence.device = { ...presence.device, duplicate: { seenAt: now, ip } }
    this.#refused.tellDuplicate(presence.device, ip)
  }

  /** A client was refused at authentication. */
  refused(signIn: RefusedSignIn): void {
    this.#refused.tell(signIn)
  }

  /** Includes unsaved changes. */
  get(id: string): Device | undefined {
    return this.#journal.get(id)
  }

  findByDevice(ownerId: string | null, deviceId: string): Device | undefined {
    return this.#journal.findByDevice(ownerId, deviceId)
  }

  /** The device that is known only by this authtoken. */
  findByCredential(credentialId: string): Device | undefined {
    return this.#journal.findByCredential(credentialId)
  }

  /** Newest first. */
  page(request: PageRequest): Device[] {
    const { deviceStore } = this.#options
    return deviceStore.page(request).map((device) => this.#journal.latest(device))
  }

  /** All devices, newest first. */
  all(): Device[] {
    const { deviceStore } = this.#options
    if (this.#read?.version !== deviceStore.version) {
      const { version } = deviceStore
      this.#read = { version, devices: deviceStore.page({ limit: Number.MAX_SAFE_INTEGER }) }
    }
    return this.#read.devices.map((device) => this.#journal.latest(device))
  }

  /** Traffic of an endpoint of a device in the last hour; undefined if there was no traffic. */
  historyOf(device: Device, url: string): TrafficSeries | undefined {
    return this.#history.of(keyOf(device), url)
  }

  /** Current sessions of a device. */
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
   * Creates or changes a device, or applies a change of its fields. `check` runs in the transaction and may
   * throw to refuse the change.
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

  /** Adds a device as a part of an open change. Returns false if the account has too many. */
  addWithin(device: Device): boolean {
    return this.#journal.addWithin(device)
  }

  /**
   * Deletes a device that is neither online nor `away`: otherwise its next event would restore it. `check`
   * runs in the transaction.
   */
  async delete({ id }: Device, check?: () => void): Promise<void> {
    await this.#journal.delete(id, check)
  }

  *#connected(): Generator<readonly [string, Iterable<ConnectedAgent>]> {
    for (const { key, sessions } of this.#present.values()) yield [key, sessions]
  }

  /** Waits for the return of the device if it may come back, then reports it as offline. */
  async #markDisconnected(presence: Presence, reason: GoneReason): Promise<void> {
    const { clock } = this.#options
    const leaving = new AbortController()
    presence.leaving = leaving
    const went = { ...presence.device, isOnline: false, since: clock.now(), seenAt: clock.now() }
    try {
      // A silent agent has already had its time. After a revocation or a stop by command, it does not return.
      const mayReturn = reason === 'disconnected' || reason === 'stopped' || reason === 'duplicate'
      if (mayReturn) await clock.sleep(AWAY_MS, leaving.signal)
      while (mayReturn) {
        const waitMs = this.#flaps.tryCount(presence.key)
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

  /** Reports devices that were online when the last process ended, and that have not come back. */
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

  /** Reports a device as offline whose time of disconnection is not known. */
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

  /** Whether this gateway reports the device. */
  #isOurs({ facts }: Device): boolean {
    return facts.node === undefined || facts.node === this.#nodes.self
  }

  #factsOf({ cameAt }: Presence, agent: ConnectedAgent, urls: readonly string[]): DeviceFacts {
    const { isShared, self } = this.#nodes
    return { ...factsOf(agent, urls), ...(isShared && { node: self, cameAt }) }
  }

  /** Writes changed facts of devices, for all devices together. */
  async #writeForever(): Promise<void> {
    const { clock, log } = this.#options
    const { signal } = this.#stopping
    for (;;) {
      try {
        await clock.sleep(POLL_MS, signal)
      } catch {
        return
      }
      try {
        this.#noteChanges(clock.monotonic())
        const left = this.#orphans.due(() => this.#options.deviceStore.online(), clock.monotonic())
        for (const device of left) this.#tellLost(device)
      } catch (error) {
        // The storage logs its own errors.
        log.warn({ err: error }, 'device states could not be checked, will retry')
      }
    }
  }

  #noteChanges(now: number): void {
    for (const presence of this.#present.values()) {
      const [agent] = presence.sessions
      if (!agent) continue
      const row = this.#rowOf(presence)
      presence.device = { ...presence.device, id: row.id }
      // The gateway that it had moved to has reported it as offline, or is lost.
      if (!row.isOnline || this.#orphans.has(row)) this.#appear(presence, agent)
      else if (this.#isOurs(row) && now - presence.notedAt >= FACTS_STEP_MS)
        this.#noteFacts(presence, agent, now)
    }
    if (now - this.#watchedAt >= WATCH_STEP_MS) this.#noteWatched()
  }

  /** An error loses no device, so it must not end the gateway. */
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

  /** The note of the last process stays valid until its devices are back. */
  #noteWatched(): void {
    if (!this.#hasReturned || this.#present.size === 0) return
    const { clock } = this.#options
    this.#watchedAt = clock.monotonic()
    this.#journal.noteWatched(clock.now())
  }
}

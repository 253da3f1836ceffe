import { networkOf } from '../../base/limit/network.ts'
import { TokenBuckets } from '../../base/limit/token-buckets.ts'
import type { ConnectedAgent, SessionEnd } from '../endpoints/connected-agent.ts'
import {
  type Device,
  type DeviceFacts,
  type GoneReason,
  MOST_URLS,
} from '../records/device-store.ts'
import type { IdSource } from '../records/resource-id.ts'
import type { PageRequest } from '../records/resource-table.ts'
import { DeviceJournal, type DeviceJournalOptions } from './device-journal.ts'
import {
  duplicateEvent,
  presenceEvent,
  type RefusedSignIn,
  refusedEvent,
} from './device-reports.ts'
import { identityKey, rowFor } from './device-rows.ts'
import { TrafficHistory, type TrafficSeries } from './traffic-history.ts'

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
/** Of one device, authtoken or address. */
const ONE_AN_HOUR = { capacity: 1, refillPerS: 1 / 3_600, maxKeys: 10_000 }
/** Of all together, since strangers can be refused, too … */
const REFUSALS = { capacity: 30, refillPerS: 1 / 10, maxKeys: 1 }
/** … and of one address, so that a single stranger does not use it up. */
const REFUSALS_OF_ADDRESS = { capacity: 10, refillPerS: 1 / 60, maxKeys: 1_000 }

/** `away`: not connected, and expected back any moment. */
export type DeviceState = 'online' | 'away' | 'offline' | 'never'

export interface DevicesOptions extends DeviceJournalOptions {
  readonly ids: IdSource
}

/** A device that is connected, or was a moment ago. */
interface Presence {
  readonly key: string
  device: Device
  readonly sessions: Set<ConnectedAgent>
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
  readonly #journal: DeviceJournal
  readonly #present = new Map<string, Presence>()
  readonly #flaps: TokenBuckets
  readonly #seldom: TokenBuckets
  readonly #refusals: TokenBuckets
  readonly #refusalsOf: TokenBuckets
  readonly #history: TrafficHistory
  readonly #stopping = new AbortController()
  /** What is kept, as it was read when it had that version. */
  #read: { readonly version: number; readonly devices: readonly Device[] } | undefined
  #hasReturned = false
  #watchedAt = Number.NEGATIVE_INFINITY

  constructor(options: DevicesOptions) {
    const { clock } = options
    this.#options = options
    this.#journal = new DeviceJournal(options)
    this.#flaps = new TokenBuckets({ ...FLAPS, clock })
    this.#seldom = new TokenBuckets({ ...ONE_AN_HOUR, clock })
    this.#history = new TrafficHistory({ devices: () => this.#connected(), clock })
    this.#refusals = new TokenBuckets({ ...REFUSALS, clock })
    this.#refusalsOf = new TokenBuckets({ ...REFUSALS_OF_ADDRESS, clock })
  }

  start(): void {
    this.#inBackground(this.#look())
    this.#inBackground(this.#awaitReturn())
    this.#history.start()
  }

  /** Leaves the rows to another process, as true as they can be. */
  release(): void {
    this.#noteWatched()
    this.#journal.release()
  }

  reclaim(): void {
    this.#journal.reclaim()
  }

  stop(): void {
    if (this.#stopping.signal.aborted) return
    this.#stopping.abort()
    this.#history.stop()
    for (const { leaving } of this.#present.values()) leaving?.abort()
    this.#noteWatched()
    this.#journal.stop()
  }

  /** A session has authenticated. */
  came(agent: ConnectedAgent): void {
    const { ids, clock } = this.#options
    const { identity } = agent
    const key = identityKey(identity)
    const now = clock.now()
    let presence = this.#present.get(key)
    if (!presence) {
      const device = rowFor(identity, { rows: this.#journal, ids, now })
      const notedAt = Number.NEGATIVE_INFINITY
      presence = { key, device, sessions: new Set(), leaving: undefined, notedAt }
      this.#present.set(key, presence)
    }
    presence.sessions.add(agent)
    presence.leaving?.abort()
    presence.leaving = undefined
    if (presence.device.isOnline) return
    presence.device = {
      ...presence.device,
      isOnline: true,
      since: now,
      seenAt: now,
      goneReason: null,
      facts: factsOf(agent, presence.device.facts.endpoints),
    }
    this.#journal.write(presence.device, presenceEvent('device.online', presence.device, now))
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
    presence.device = { ...presence.device, facts: factsOf(agent, known) }
    void this.#leave(presence, why === 'superseded' ? 'disconnected' : why)
  }

  /** Another process with the identity of a connected device was refused. */
  refusedDuplicate(agent: ConnectedAgent, ip: string): void {
    const presence = this.#present.get(identityKey(agent.identity))
    if (!presence) return
    const now = this.#options.clock.now()
    presence.device = { ...presence.device, duplicate: { seenAt: now, ip } }
    if (this.#seldom.take(`duplicate ${presence.key}`) > 0) return
    this.#journal.write(presence.device, duplicateEvent(presence.device, ip, now))
  }

  /** Somebody was refused who wanted to sign in. */
  refused(signIn: RefusedSignIn): void {
    const { ownerId, deviceId, ip } = signIn
    if (this.#seldom.take(`refused ${deviceId ?? ip}`) > 0) return
    if (this.#refusalsOf.take(networkOf(ip)) > 0 || this.#refusals.take('all') > 0) return
    const device =
      deviceId === undefined ? undefined : this.#journal.findByDevice(ownerId, deviceId)
    this.#journal.tell(refusedEvent(signIn, device, this.#options.clock.now()))
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
    return this.#history.of(identityKey(keyed(device)), url)
  }

  /** The sessions that a device has now. */
  sessionsOf(device: Device): readonly ConnectedAgent[] {
    return [...(this.#present.get(identityKey(keyed(device)))?.sessions ?? [])]
  }

  stateOf(device: Device): DeviceState {
    if (device.since === null) return 'never'
    if (!device.isOnline) return 'offline'
    const { sessions } = this.#present.get(identityKey(keyed(device))) ?? {}
    return sessions && sessions.size > 0 ? 'online' : 'away'
  }

  /** Makes a device, changes it, or takes what somebody has changed of it. */
  save(device: Device): void {
    const presence = this.#present.get(identityKey(keyed(device)))
    const { name, tags, metadata, isProvisioned } = device
    if (presence?.device.id !== device.id) {
      this.#journal.save(device)
      return
    }
    const changed = { ...presence.device, name, tags, metadata, isProvisioned }
    this.#journal.save(changed)
    presence.device = changed
  }

  /** Only one that is neither online nor away: it would be back with the next that it does. */
  delete({ id }: Device): void {
    this.#journal.delete(id)
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
    const { name, tags, metadata, isProvisioned, duplicate } = presence.device
    const changed = { name, tags, metadata, isProvisioned, duplicate }
    const device: Device = { ...went, ...changed, goneReason: reason }
    this.#present.delete(presence.key)
    this.#journal.write(device, presenceEvent('device.offline', device, clock.now()))
  }

  /** Those that were online when the last process ended, and that have not come back. */
  async #awaitReturn(): Promise<void> {
    const { deviceStore, clock } = this.#options
    const expected = deviceStore.online()
    const seenAt = deviceStore.watchedAt
    try {
      if (expected.length > 0) await clock.sleep(RETURN_MS, this.#stopping.signal)
    } catch {
      return
    }
    this.#hasReturned = true
    for (const before of expected) {
      const device = this.get(before.id)
      if (!device?.isOnline || this.#present.has(identityKey(keyed(device)))) continue
      const at = Math.max(seenAt ?? 0, device.seenAt ?? 0)
      const gone = {
        isOnline: false,
        since: at,
        seenAt: at,
        goneReason: 'gateway-restarted',
      } as const
      const now = { ...device, ...gone }
      this.#journal.write(now, presenceEvent('device.offline', now, clock.now()))
    }
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
      } catch (error) {
        // The storage says of itself what is wrong with it.
        log.warn({ err: error }, 'what devices say of themselves is not read')
      }
    }
  }

  #noteChanges(now: number): void {
    for (const presence of this.#present.values()) {
      if (now - presence.notedAt < FACTS_STEP_MS) continue
      this.#noteFacts(presence, now)
    }
    if (now - this.#watchedAt >= WATCH_STEP_MS) this.#noteWatched()
  }

  /** No device is lost by it, and no gateway may end by it. */
  #inBackground(work: Promise<void>): void {
    work.catch((err) => this.#options.log.warn({ err }, 'devices are not looked after'))
  }

  #noteFacts(presence: Presence, now: number): void {
    const [agent] = presence.sessions
    if (!agent) return
    const facts = factsOf(agent, urlsOf(presence.sessions))
    const { device } = presence
    const written = this.#options.deviceStore.get(device.id)
    const isSame =
      JSON.stringify([facts, device.duplicate, agent.identity.credentialId]) ===
      JSON.stringify([written?.facts, written?.duplicate, written?.credentialId])
    if (isSame) return
    presence.notedAt = now
    presence.device = { ...device, facts, credentialId: agent.identity.credentialId }
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

/** A row has a credential in any case when it has no id of its own. */
function keyed({ ownerId, deviceId, credentialId }: Device) {
  return { ownerId, deviceId, credentialId: credentialId ?? '' }
}

function urlsOf(sessions: Iterable<ConnectedAgent>): string[] {
  return [...sessions].flatMap((agent) => agent.endpoints().map(({ url }) => url))
}

function factsOf({ identity }: ConnectedAgent, urls: readonly string[]): DeviceFacts {
  const { remoteAddress, hostname, agentVersion, os, arch } = identity
  const ip = remoteAddress.replace(/:\d+$/, '').replace(/^\[|\]$/g, '')
  const endpoints = [...new Set(urls)].sort().slice(0, MOST_URLS)
  return { ip, hostname, agentVersion, os, arch, endpoints }
}

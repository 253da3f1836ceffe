import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import type { Database } from '../../../store/database.ts'
import type { AgentIdentity, ConnectedAgent } from '../../endpoints/endpoint.ts'
import type { BotUserStore } from '../../records/bot-user-store.ts'
import type { EventStore, NewEvent } from '../../records/event-store.ts'
import type { IdSource } from '../../records/resource-id.ts'
import { givenOf, inTurns, type News } from './device-reports.ts'
import { type Device, type DeviceFacts, type DeviceStore, MAX_URLS } from './device-store.ts'

/** Maximum number of devices per account. */
export const MAX_DEVICES = 10_000

const NO_FACTS: DeviceFacts = {
  ip: '',
  hostname: '',
  agentVersion: '',
  os: '',
  arch: '',
  endpoints: [],
}

/** Returns a device that was never connected. */
export function newDevice(
  made: Pick<Device, 'id' | 'ownerId' | 'credentialId' | 'createdAt'> & Partial<Device>,
): Device {
  return {
    deviceId: null,
    name: '',
    metadata: '',
    tags: [],
    isProvisioned: false,
    isOnline: false,
    since: null,
    seenAt: null,
    goneReason: null,
    facts: NO_FACTS,
    duplicate: null,
    ...made,
  }
}

/** Identifies a device: by its own id within its account, else by its authtoken. */
export function identityKey({
  ownerId,
  deviceId,
  credentialId,
}: Pick<AgentIdentity, 'ownerId' | 'credentialId'> & {
  readonly deviceId?: string | null | undefined
}): string {
  return typeof deviceId === 'string'
    ? `device ${ownerId ?? ''} ${deviceId}`
    : `authtoken ${credentialId}`
}

/** Lookup of rows, including unsaved changes. */
interface DeviceRows {
  findByDevice(ownerId: string | null, deviceId: string): Device | undefined
  findByCredential(credentialId: string): Device | undefined
}

/**
 * Returns the row of a connecting device: its own row, else an unused row made for its authtoken, else a new
 * row.
 */
export function rowFor(
  identity: AgentIdentity,
  { rows, ids, now }: { rows: DeviceRows; ids: IdSource; now: number },
): Device {
  const { ownerId, credentialId, deviceId = null } = identity
  const own = deviceId === null ? undefined : rows.findByDevice(ownerId, deviceId)
  if (own) return { ...own, credentialId }
  const made = rows.findByCredential(credentialId)
  const isTaken = deviceId !== null && (made?.isOnline || !made?.isProvisioned)
  if (made && !isTaken) return { ...made, deviceId }
  return newDevice({ id: ids.next('dv'), ownerId, credentialId, deviceId, createdAt: now })
}

export function urlsOf(sessions: Iterable<ConnectedAgent>): string[] {
  return [...sessions].flatMap((agent) => agent.endpoints().map(({ url }) => url))
}

export function factsOf({ identity }: ConnectedAgent, urls: readonly string[]): DeviceFacts {
  const { remoteAddress, hostname, agentVersion, os, arch } = identity
  const ip = remoteAddress.replace(/:\d+$/, '').replace(/^\[|\]$/g, '')
  const endpoints = [...new Set(urls)].sort().slice(0, MAX_URLS)
  return { ip, hostname, agentVersion, os, arch, endpoints }
}

/** A row without a device id always has a credential. */
export function keyOf({ ownerId, deviceId, credentialId }: Device): string {
  return identityKey({ ownerId, deviceId, credentialId: credentialId ?? '' })
}

/** Minimum time between two writes, which contain the changes of all devices. */
const WRITE_STEP_MS = 200
/** Delay between two attempts while the storage cannot be written. */
const RETRY_MS = 10_000
/** Maximum number of events kept while the storage cannot be written. The oldest events are dropped. */
const MAX_WAITING = 10_000
/** Number of events after which a backup is due: the second copy of the database lacks newer events. */
const BACKUP_EVERY = 200

export interface DeviceJournalOptions {
  readonly database: Pick<Database, 'change'>
  readonly deviceStore: DeviceStore
  readonly botUsers: Pick<BotUserStore, 'get'>
  readonly events: EventStore
  readonly clock: Clock
  readonly log: Logger
}

/** Collects changes and events of devices, and writes them in one transaction for all devices. */
export class DeviceJournal implements DeviceRows {
  readonly #options: DeviceJournalOptions
  /** Unsaved rows, by id and by identity. */
  readonly #rows = new Map<string, Device>()
  readonly #byIdentity = new Map<string, Device>()
  #news: News[] = []
  readonly #stopping = new AbortController()
  #isWriting = false
  #flushing: Promise<boolean> = Promise.resolve(true)
  #isReleased = false
  #writtenAt = Number.NEGATIVE_INFINITY
  #eventsSinceBackup = 0
  #watchedAt: number | undefined

  constructor(options: DeviceJournalOptions) {
    this.#options = options
  }

  get(id: string): Device | undefined {
    return this.#rows.get(id) ?? this.#options.deviceStore.get(id)
  }

  findByDevice(ownerId: string | null, deviceId: string): Device | undefined {
    const key = identityKey({ ownerId, deviceId, credentialId: '' })
    const written = () => this.#options.deviceStore.findByDevice(ownerId, deviceId)
    return this.#byIdentity.get(key) ?? this.#latest(written())
  }

  /** The device that calls itself so, if only one account has such a device. */
  findInAnyAccount(deviceId: string): Device | undefined {
    return this.#latest(this.#options.deviceStore.findInAnyAccount(deviceId))
  }

  findByCredential(credentialId: string): Device | undefined {
    const key = identityKey({ ownerId: null, credentialId })
    const written = this.#latest(this.#options.deviceStore.findByCredential(credentialId))
    // A device with this authtoken may have got its own identity meanwhile.
    return this.#byIdentity.get(key) ?? (written?.deviceId === null ? written : undefined)
  }

  /** Returns the device with its unsaved changes. */
  latest(device: Device): Device {
    return this.#rows.get(device.id) ?? device
  }

  /** `event`: the device came online or went offline. */
  write(device: Device, event?: NewEvent): void {
    this.#note(device)
    if (event) this.#news.push({ event, presenceOf: device.id })
    this.#writeSoon()
  }

  #note(device: Device): void {
    this.#rows.set(device.id, device)
    const credentialId = device.credentialId ?? ''
    this.#byIdentity.set(identityKey({ ...device, credentialId }), device)
  }

  /** Whether such an event about the same device was written in the last `withinMs`, also by another gateway. */
  wasTold(event: NewEvent, withinMs: number): boolean {
    return this.#options.events.hasSame(event, withinMs)
  }

  /** Adds another event of a device. */
  tell(event: NewEvent): void {
    this.#news.push({ event })
    this.#writeSoon()
  }

  noteWatched(at: number): void {
    this.#watchedAt = at
    this.#writeSoon()
  }

  /**
   * Saves a device; on stable storage when it resolves. `check` runs in the same transaction and may throw to
   * refuse the change. Rejects like `Database.change`; then the device is unchanged.
   */
  async save(device: Device, check: () => void = () => {}): Promise<void> {
    // Writes pending events first, so that a row is never ahead of its events.
    const isAllWritten = await this.flush()
    const keep = () => {
      check()
      const written = this.#options.deviceStore.get(device.id)
      // Another gateway may know better whether and where it is online.
      this.#keep(written ? { ...written, ...givenOf(device) } : device)
    }
    await this.#options.database.change(keep, { concludes: device.id })
    const waiting = this.#rows.get(device.id)
    // Keeps changes that came meanwhile and are still to be written.
    if (waiting) this.#note({ ...waiting, ...givenOf(device) })
    else if (!isAllWritten) this.#note(device)
  }

  /** Adds a device as a part of an open change. Returns false if the account has too many. */
  addWithin(device: Device): boolean {
    this.#keep(device)
    return this.#options.deviceStore.get(device.id) !== undefined
  }

  /** Deletes a device; on stable storage when it resolves. `check` and rejections as in `save`. */
  async delete(id: string, check: () => void = () => {}): Promise<void> {
    await this.flush()
    const { database, deviceStore } = this.#options
    const remove = () => {
      check()
      deviceStore.delete(id)
    }
    await database.change(remove, { concludes: id, mayUseReserve: true })
    // Changes of other devices may still wait for the storage.
    this.#rows.delete(id)
    for (const [key, device] of this.#byIdentity) if (device.id === id) this.#byIdentity.delete(key)
  }

  /**
   * Writes pending changes if the storage allows it. Runs one at a time. Resolves with false if the storage
   * failed.
   */
  flush(): Promise<boolean> {
    this.#flushing = this.#flushing.then(() => this.#flushOnce())
    return this.#flushing
  }

  async #flushOnce(): Promise<boolean> {
    const { database, clock, log } = this.#options
    const rows = new Map(this.#rows)
    const news = this.#news.slice(-MAX_WAITING)
    const watchedAt = this.#watchedAt
    this.#news = [...news]
    const hasNothing = rows.size === 0 && news.length === 0 && watchedAt === undefined
    if (hasNothing || this.#isReleased) return true
    const withoutBackup = this.#eventsSinceBackup + news.length < BACKUP_EVERY
    try {
      if (rows.size > 0 || news.length > 0) {
        await database.change(() => this.#keepAll(rows.values(), news), { withoutBackup })
        this.#forget(rows, news.length)
      }
      this.#noteWatched(watchedAt)
    } catch (error) {
      log.warn({ err: error }, 'device events not saved, will retry')
      return false
    } finally {
      this.#writtenAt = clock.monotonic()
    }
    this.#eventsSinceBackup = withoutBackup ? this.#eventsSinceBackup + news.length : 0
    return true
  }

  #keepAll(wanted: Iterable<Device>, news: readonly News[]): void {
    const { deviceStore: store, clock, events: log } = this.#options
    const { rows, events } = inTurns(wanted, news, { store, at: clock.now() })
    for (const device of rows) this.#keep(device)
    for (const event of events) log.append(event)
  }

  #noteWatched(at: number | undefined): void {
    if (at === undefined) return
    this.#options.deviceStore.noteWatched(at)
    if (this.#watchedAt === at) this.#watchedAt = undefined
  }

  /** Another process takes over the database. */
  async release(): Promise<void> {
    await this.flush()
    this.#isReleased = true
  }

  reclaim(): void {
    this.#isReleased = false
    this.#writeSoon()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.flush()
  }

  #writeSoon(): void {
    if (this.#isWriting || this.#stopping.signal.aborted) return
    this.#isWriting = true
    void this.#writeAll()
  }

  async #writeAll(): Promise<void> {
    const { clock } = this.#options
    let waitMs = Math.max(0, this.#writtenAt + WRITE_STEP_MS - clock.monotonic())
    try {
      do {
        await clock.sleep(waitMs, this.#stopping.signal)
        waitMs = RETRY_MS
      } while (!(await this.flush()))
    } catch {
      return
    } finally {
      this.#isWriting = false
    }
  }

  /** Removes written changes. Changes that came meanwhile wait for the next write. */
  #forget(rows: ReadonlyMap<string, Device>, news: number): void {
    for (const [id, device] of rows) if (this.#rows.get(id) === device) this.#rows.delete(id)
    const written = new Set(rows.values())
    for (const [key, device] of this.#byIdentity) {
      if (written.has(device)) this.#byIdentity.delete(key)
    }
    this.#news.splice(0, news)
  }

  #latest(device: Device | undefined): Device | undefined {
    return device && this.latest(device)
  }

  /**
   * Writes a device. If there are too many, a row that was not provisioned is deleted; otherwise the device
   * is not stored.
   */
  #keep(device: Device): void {
    const { deviceStore: store, botUsers } = this.#options
    const { ownerId } = device
    if (ownerId !== null && !botUsers.get(ownerId)) return
    if (store.get(device.id)) {
      store.replace(device)
      return
    }
    while (store.count(ownerId) >= MAX_DEVICES) {
      const surplus = store.surplus(ownerId)
      if (surplus === undefined) return
      store.delete(surplus)
    }
    store.insert(device)
  }
}

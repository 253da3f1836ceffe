import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { Database } from '../../store/database.ts'
import type { AgentIdentity, ConnectedAgent } from '../endpoints/endpoint.ts'
import type { BotUserStore } from '../records/bot-user-store.ts'
import {
  type Device,
  type DeviceFacts,
  type DeviceStore,
  MOST_URLS,
} from '../records/device-store.ts'
import type { EventStore, NewEvent } from '../records/event-store.ts'
import type { IdSource } from '../records/resource-id.ts'
import { givenOf, inTurns, type News } from './device-reports.ts'

/** Devices of one account. */
export const MOST_DEVICES = 10_000

const NO_FACTS: DeviceFacts = {
  ip: '',
  hostname: '',
  agentVersion: '',
  os: '',
  arch: '',
  endpoints: [],
}

/** A device that nobody has seen yet. */
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

/** What tells a device from all others: its own id within its account, else its authtoken. */
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

/** Where rows are found, with what is not written yet. */
interface DeviceRows {
  findByDevice(ownerId: string | null, deviceId: string): Device | undefined
  findByCredential(credentialId: string): Device | undefined
}

/**
 * The row of who connects: its own, else one that was made for its authtoken and that nobody has
 * taken, else a new one.
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
  const endpoints = [...new Set(urls)].sort().slice(0, MOST_URLS)
  return { ip, hostname, agentVersion, os, arch, endpoints }
}

/** A row has a credential in any case when it has no id of its own. */
export function keyOf({ ownerId, deviceId, credentialId }: Device): string {
  return identityKey({ ownerId, deviceId, credentialId: credentialId ?? '' })
}

/** Changes of all devices are written together, no more often than this. */
const WRITE_STEP_MS = 200
/** While the storage takes nothing. */
const RETRY_MS = 10_000
/** Events that wait for a storage that takes nothing; the oldest are given up. */
const MOST_WAITING = 10_000
/** The second copy of the database has the newest events only as far back as its newest backup. */
const BACKUP_EVERY = 200

export interface DeviceJournalOptions {
  readonly database: Pick<Database, 'change'>
  readonly deviceStore: DeviceStore
  readonly botUsers: Pick<BotUserStore, 'get'>
  readonly events: EventStore
  readonly clock: Clock
  readonly log: Logger
}

/** What has happened to devices, gathered and written in one transaction for all of them. */
export class DeviceJournal implements DeviceRows {
  readonly #options: DeviceJournalOptions
  /** What is to be written, by id and by who it is. */
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

  findByCredential(credentialId: string): Device | undefined {
    const key = identityKey({ ownerId: null, credentialId })
    const written = this.#latest(this.#options.deviceStore.findByCredential(credentialId))
    // One that was made for the authtoken may have got its own identity meanwhile.
    return this.#byIdentity.get(key) ?? (written?.deviceId === null ? written : undefined)
  }

  /** With what is to be written of it. */
  latest(device: Device): Device {
    return this.#rows.get(device.id) ?? device
  }

  /** `event` says that it came, or went. */
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

  /** Something else of a device. */
  tell(event: NewEvent): void {
    this.#news.push({ event })
    this.#writeSoon()
  }

  noteWatched(at: number): void {
    this.#watchedAt = at
    this.#writeSoon()
  }

  /**
   * On stable storage when it resolves. `check` is asked in the same transaction: what it throws refuses
   * the change. Rejects as `Database.change` does; then nothing is changed.
   */
  async save(device: Device, check: () => void = () => {}): Promise<void> {
    // A row never says what was not told.
    const isAllWritten = await this.flush()
    const keep = () => {
      check()
      const written = this.#options.deviceStore.get(device.id)
      // Whether it is online, and where, another gateway may know better.
      this.#keep(written ? { ...written, ...givenOf(device) } : device)
    }
    await this.#options.database.change(keep, { concludes: device.id })
    const waiting = this.#rows.get(device.id)
    // What has happened to it meanwhile is still to be told.
    if (waiting) this.#note({ ...waiting, ...givenOf(device) })
    else if (!isAllWritten) this.#note(device)
  }

  /** On stable storage when it resolves. `check` and rejections are those of `save`. */
  async delete(id: string, check: () => void = () => {}): Promise<void> {
    await this.flush()
    const { database, deviceStore } = this.#options
    const remove = () => {
      check()
      deviceStore.delete(id)
    }
    await database.change(remove, { concludes: id, mayUseReserve: true })
    // What has happened to others may still wait for the storage.
    this.#rows.delete(id)
    for (const [key, device] of this.#byIdentity) if (device.id === id) this.#byIdentity.delete(key)
  }

  /** Writes what there is, as far as the storage takes it; once at a time. */
  flush(): Promise<boolean> {
    this.#flushing = this.#flushing.then(() => this.#flushOnce())
    return this.#flushing
  }

  async #flushOnce(): Promise<boolean> {
    const { database, clock, log } = this.#options
    const rows = new Map(this.#rows)
    const news = this.#news.slice(-MOST_WAITING)
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
      log.warn({ err: error }, 'device events not written yet')
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

  /** Another process has the database. */
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

  /** What was written; what has come meanwhile waits for the next time. */
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

  /** A row that nobody has made makes room for another when there are too many; if none can, it is not kept. */
  #keep(device: Device): void {
    const { deviceStore: store, botUsers } = this.#options
    const { ownerId } = device
    if (ownerId !== null && !botUsers.get(ownerId)) return
    if (store.get(device.id)) {
      store.replace(device)
      return
    }
    while (store.count(ownerId) >= MOST_DEVICES) {
      const surplus = store.surplus(ownerId)
      if (surplus === undefined) return
      store.delete(surplus)
    }
    store.insert(device)
  }
}

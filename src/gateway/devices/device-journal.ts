import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { Database } from '../../store/database.ts'
import type { BotUserStore } from '../records/bot-user-store.ts'
import type { Device, DeviceStore } from '../records/device-store.ts'
import type { EventStore, NewEvent } from '../records/event-store.ts'
import { type DeviceRows, identityKey, MOST_DEVICES } from './device-rows.ts'

/** Changes of all devices are written together, no more often than this. */
const WRITE_STEP_MS = 200
/** While the storage takes nothing. */
const RETRY_MS = 10_000
/** Events that wait for a storage that takes nothing; the oldest are given up. */
const MOST_WAITING = 10_000
/** The second copy of the database has the newest events only as far back as its newest backup. */
const BACKUP_EVERY = 200

export interface DeviceJournalOptions {
  readonly database: Pick<Database, 'write'>
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
  #events: NewEvent[] = []
  readonly #stopping = new AbortController()
  #isWriting = false
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

  write(device: Device, event?: NewEvent): void {
    this.#note(device)
    if (event) this.#events.push(event)
    this.#writeSoon()
  }

  #note(device: Device): void {
    this.#rows.set(device.id, device)
    const credentialId = device.credentialId ?? ''
    this.#byIdentity.set(identityKey({ ...device, credentialId }), device)
  }

  tell(event: NewEvent): void {
    this.#events.push(event)
    this.#writeSoon()
  }

  noteWatched(at: number): void {
    this.#watchedAt = at
    this.#writeSoon()
  }

  /** On stable storage when this returns. Throws as `Database.write` does; then nothing is changed. */
  save(device: Device): void {
    // A row never says what was not told.
    const isAllWritten = this.flush()
    this.#options.database.write(() => this.#keep(device))
    if (!isAllWritten) this.#note(device)
  }

  /** On stable storage when this returns. Throws as `Database.write` does. */
  delete(id: string): void {
    this.flush()
    this.#options.deviceStore.delete(id)
    // What has happened to others may still wait for the storage.
    this.#rows.delete(id)
    for (const [key, device] of this.#byIdentity) if (device.id === id) this.#byIdentity.delete(key)
  }

  /** Writes what there is, as far as the storage takes it. */
  flush(): boolean {
    const { database, deviceStore, events, clock, log } = this.#options
    const news = this.#events.slice(-MOST_WAITING)
    this.#events = news
    const hasNothing = this.#rows.size === 0 && news.length === 0 && this.#watchedAt === undefined
    if (hasNothing || this.#isReleased) return true
    const withoutBackup = this.#eventsSinceBackup + news.length < BACKUP_EVERY
    try {
      database.write(
        () => {
          for (const device of this.#rows.values()) this.#keep(device)
          for (const event of news) events.append(event)
          if (this.#watchedAt !== undefined) deviceStore.noteWatched(this.#watchedAt)
        },
        { withoutBackup },
      )
    } catch (error) {
      log.warn({ err: error }, 'what happened to devices is not written yet')
      return false
    } finally {
      this.#writtenAt = clock.monotonic()
    }
    this.#eventsSinceBackup = withoutBackup ? this.#eventsSinceBackup + news.length : 0
    this.#forget()
    return true
  }

  /** Another process has the database. */
  release(): void {
    this.flush()
    this.#isReleased = true
  }

  reclaim(): void {
    this.#isReleased = false
    this.#writeSoon()
  }

  stop(): void {
    this.#stopping.abort()
    this.flush()
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
      } while (!this.flush())
    } catch {
      return
    } finally {
      this.#isWriting = false
    }
  }

  #forget(): void {
    this.#rows.clear()
    this.#byIdentity.clear()
    this.#events = []
    this.#watchedAt = undefined
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

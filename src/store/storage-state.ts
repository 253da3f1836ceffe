import { AppError } from '../base/app-error.ts'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { SqliteError } from './sqlite.ts'

/** `full` and `unwritable` pass; `damaged` needs a new start, which heals. */
export type StorageFault = 'full' | 'unwritable' | 'damaged'

const RECHECK_MS = 10_000

interface StorageStateOptions {
  readonly log: Logger
  readonly clock: Clock
  /** Asked again and again while there is a fault: true when it is over. Never throws. */
  readonly isOver: (fault: StorageFault) => boolean
}

/** Whether the storage takes changes: a fault stays until a recheck finds that it is over. */
export class StorageState {
  readonly #log: Logger
  readonly #clock: Clock
  readonly #isOver: (fault: StorageFault) => boolean
  readonly #stopped = new AbortController()
  #fault: StorageFault | undefined

  constructor({ log, clock, isOver }: StorageStateOptions) {
    this.#log = log
    this.#clock = clock
    this.#isOver = isOver
  }

  get fault(): StorageFault | undefined {
    return this.#fault
  }

  fail(fault: StorageFault, error?: unknown): void {
    if (this.#fault === fault) return
    const isWatched = this.#fault !== undefined
    this.#fault = fault
    this.#log.error({ fault, err: error }, 'the storage rejects changes')
    if (!isWatched) void this.#watch()
  }

  stop(): void {
    this.#stopped.abort()
  }

  async #watch(): Promise<void> {
    do {
      try {
        await this.#clock.sleep(RECHECK_MS, this.#stopped.signal)
      } catch {
        return
      }
    } while (this.#fault && !this.#isOver(this.#fault))
    this.#fault = undefined
    this.#log.info('the storage works again')
  }
}

/** SQLite's result codes, or the beginnings of them, by what they mean for the storage. */
const FAULTS: Readonly<Record<StorageFault, readonly string[]>> = {
  // No room for the index of the log, which is a file, too.
  full: ['SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE'],
  damaged: ['SQLITE_CORRUPT', 'SQLITE_NOTADB', 'SQLITE_IOERR_READ', 'SQLITE_IOERR_SHORT_READ'],
  unwritable: ['SQLITE_READONLY', 'SQLITE_CANTOPEN', 'SQLITE_PERM', 'SQLITE_IOERR'],
}
/** The same, said by the file system. */
const SYSTEM_FAULTS: ReadonlyMap<unknown, StorageFault> = new Map([
  ['ENOSPC', 'full'],
  ['EDQUOT', 'full'],
  ['EROFS', 'unwritable'],
  ['EACCES', 'unwritable'],
  ['EPERM', 'unwritable'],
  ['EIO', 'unwritable'],
])
const HELD = ['SQLITE_BUSY', 'SQLITE_LOCKED']

const DETAILS: Readonly<Record<StorageFault, string>> = {
  full: 'The disk is full. Free disk space, then try again.',
  damaged: 'The database is damaged. The next start restores a backup.',
  unwritable: 'The disk is not writable. Online tunnels stay online, changes are refused.',
}

/** What an error says about the storage; undefined when it is about something else. */
export function faultOf(error: unknown): StorageFault | undefined {
  if (hasCode(error, FAULTS.full)) return 'full'
  if (hasCode(error, FAULTS.damaged)) return 'damaged'
  if (hasCode(error, FAULTS.unwritable)) return 'unwritable'
  return error instanceof Error && 'code' in error ? SYSTEM_FAULTS.get(error.code) : undefined
}

/** True when another connection holds the lock. */
export function isHeld(error: unknown): boolean {
  return hasCode(error, HELD)
}

/** What people are told about a fault, one sentence. */
export function describeFault(fault: StorageFault): string {
  return DETAILS[fault]
}

/** What a change is refused with: AppError `storage-full` or `storage-unavailable`. */
export function refusalOf(fault: StorageFault, cause?: unknown): AppError {
  const code = fault === 'full' ? 'storage-full' : 'storage-unavailable'
  return new AppError(code, describeFault(fault), { cause })
}

/**
 * An error of the storage as people are told it. Any other error, such as a broken constraint,
 * comes back as it is: its owner knows what it means.
 */
export function toStorageError(error: unknown): unknown {
  if (isHeld(error)) {
    const detail = 'Another program is using the database.'
    return new AppError('storage-unavailable', detail, { cause: error, retryAfterS: 5 })
  }
  const fault = faultOf(error)
  return fault ? refusalOf(fault, error) : error
}

function hasCode(error: unknown, families: readonly string[]): boolean {
  if (!(error instanceof SqliteError)) return false
  return families.some((family) => error.code === family || error.code.startsWith(`${family}_`))
}

import { AppError } from '../base/app-error.ts'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { SqliteError } from './sqlite.ts'

/** `full` and `unwritable` are temporary. `damaged` needs a restart, which recovers. */
export type StorageFault = 'full' | 'unwritable' | 'damaged'

/** A fault that changes may meet soon. No change was refused yet. */
export interface StorageRisk {
  /** The risk in the first sentence, then what to do. */
  readonly text: string
  /** The risk without the folder, for a headline. */
  readonly short: string
  /** Whether a usual change no longer has room. */
  readonly isProblem: boolean
}

/** Interval of checks whether a fault is over. */
const RECHECK_MS = 10_000

interface StorageStateOptions {
  readonly folder: string
  readonly log: Logger
  readonly clock: Clock
  /** Called repeatedly while there is a fault. Returns true when it is over. Never throws. */
  readonly isOver: (fault: StorageFault) => boolean
}

/** Whether the storage accepts changes. A fault stays until a check finds that it is over. */
export class StorageState {
  readonly #folder: string
  readonly #log: Logger
  readonly #clock: Clock
  readonly #isOver: (fault: StorageFault) => boolean
  readonly #stopped = new AbortController()
  #fault: StorageFault | undefined
  #isWatched = false

  constructor({ folder, log, clock, isOver }: StorageStateOptions) {
    this.#folder = folder
    this.#log = log
    this.#clock = clock
    this.#isOver = isOver
  }

  get fault(): StorageFault | undefined {
    return this.#fault
  }

  /** The fault and what to do. */
  get problem(): string | undefined {
    return this.#fault && describeFault(this.#fault, this.#folder)
  }

  fail(fault: StorageFault, error?: unknown): void {
    if (this.#fault === fault) return
    this.#fault = fault
    this.#log.error({ fault, err: error }, `the storage rejects changes: ${this.problem}`)
    if (!this.#isWatched) void this.#watch()
  }

  /** Ends the fault if it is over. */
  recheck(): void {
    if (!this.#fault || !this.#isOver(this.#fault)) return
    this.#fault = undefined
    this.#log.info('the storage works again')
  }

  stop(): void {
    this.#stopped.abort()
  }

  async #watch(): Promise<void> {
    this.#isWatched = true
    while (this.#fault) {
      try {
        await this.#clock.sleep(RECHECK_MS, this.#stopped.signal)
      } catch {
        return
      }
      this.recheck()
    }
    this.#isWatched = false
  }
}

/** SQLite's result codes, or their prefixes, by storage fault. */
const FAULTS: Readonly<Record<StorageFault, readonly string[]>> = {
  // No room for the index of the WAL, which is a file too.
  full: ['SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE'],
  damaged: ['SQLITE_CORRUPT', 'SQLITE_NOTADB', 'SQLITE_IOERR_READ', 'SQLITE_IOERR_SHORT_READ'],
  unwritable: ['SQLITE_READONLY', 'SQLITE_CANTOPEN', 'SQLITE_PERM', 'SQLITE_IOERR'],
}
/** The corresponding codes of the file system. */
const SYSTEM_FAULTS: ReadonlyMap<unknown, StorageFault> = new Map([
  ['ENOSPC', 'full'],
  ['EDQUOT', 'full'],
  ['EROFS', 'unwritable'],
  ['EACCES', 'unwritable'],
  ['EPERM', 'unwritable'],
  ['EIO', 'unwritable'],
])
const HELD = ['SQLITE_BUSY', 'SQLITE_LOCKED']

/** `of`: the folder of the storage, such as ` of /data`, or empty. */
const DETAILS: Readonly<Record<StorageFault, (of: string) => string>> = {
  full: (of) =>
    `The disk${of} is full. Free disk space there. Changes are refused until then. Removing tunnels usually works, and online tunnels stay online. No restart is needed.`,
  damaged: (of) => `The database${of} is damaged. Restart to restore a backup.`,
  unwritable: (of) =>
    `The disk${of} is not writable. Check the kernel log for the cause, then remount it for writing. Changes are refused until then, and online tunnels stay online.`,
}

/** Returns the storage fault that an error indicates, undefined for other errors. */
export function faultOf(error: unknown): StorageFault | undefined {
  if (hasCode(error, FAULTS.full)) return 'full'
  if (hasCode(error, FAULTS.damaged)) return 'damaged'
  if (hasCode(error, FAULTS.unwritable)) return 'unwritable'
  return error instanceof Error && 'code' in error ? SYSTEM_FAULTS.get(error.code) : undefined
}

/** Whether another connection holds the lock. */
export function isHeld(error: unknown): boolean {
  return hasCode(error, HELD)
}

/** Describes a fault for people: the fault in the first sentence, then what to do. */
export function describeFault(fault: StorageFault, folder?: string): string {
  return DETAILS[fault](folder === undefined ? '' : ` of ${folder}`)
}

/** Texts of the risks. */
const RISKS = {
  full: {
    short: 'the disk is full',
    isProblem: true,
    text: (folder: string) =>
      `The disk of ${folder} is full. Free disk space there. Changes of tunnels and tokens may be refused. Removing tunnels usually works, and online tunnels stay online.`,
  },
  low: {
    short: 'the disk is almost full',
    isProblem: false,
    text: (folder: string) =>
      `The disk of ${folder} is almost full. Free disk space there. A full disk refuses changes of tunnels and tokens, and online tunnels stay online.`,
  },
  unwritable: {
    short: 'the data directory is not writable',
    isProblem: false,
    text: (folder: string) =>
      `The data directory ${folder} is not writable. Check the kernel log for the cause, then make it writable. Changes still work, and may be refused later.`,
  },
} as const

export function riskOf(risk: keyof typeof RISKS, folder: string): StorageRisk {
  const { short, isProblem, text } = RISKS[risk]
  return { short, isProblem, text: text(folder) }
}

/** Returns the error for refused changes: AppError `storage-full` or `storage-unavailable`. */
export function refusalOf(fault: StorageFault, cause?: unknown, folder?: string): AppError {
  const code = fault === 'full' ? 'storage-full' : 'storage-unavailable'
  return new AppError(code, describeFault(fault, folder), { cause })
}

/**
 * Converts a storage error to an AppError. Returns other errors unchanged, such as a broken constraint,
 * because the caller knows their meaning.
 */
export function toStorageError(error: unknown, folder?: string): unknown {
  if (isHeld(error)) {
    const detail = 'Another program is using the database.'
    return new AppError('storage-unavailable', detail, { cause: error, retryAfterS: 5 })
  }
  const fault = faultOf(error)
  return fault ? refusalOf(fault, error, folder) : error
}

function hasCode(error: unknown, families: readonly string[]): boolean {
  if (!(error instanceof SqliteError)) return false
  return families.some((family) => error.code === family || error.code.startsWith(`${family}_`))
}

import {
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { basename, join, sep } from 'node:path'
import { makeFolder, syncFolder, writeFileDurably } from '../../base/file.ts'
import { readUpdateState, type StateOf, type UpdateState } from './trial-state.ts'

/** Home of updates of an installed service; the launcher of the package looks there. */
const UPDATE_HOME = '/opt/device-agent'
/** The program of the package. */
const PACKAGE_PROGRAM = '/usr/lib/device-agent'

/**
 * Versions beside that of the package, which is never changed:
 *
 *     versions/1.2.0/    a complete program
 *     current            link to the running version; without it, that of the package runs
 *     previous           target of `current` before the trial
 *     state.json         UpdateState; readable for all, written by root
 *     verdict.json       next content of state.json in case of a rollback
 *
 * A rollback needs no space: all files exist, and are only renamed.
 */
export class UpdateHome {
  readonly path: string
  readonly #packageProgram: string
  readonly #statePath: string
  readonly #verdictPath: string

  constructor(path: string = UPDATE_HOME, packageProgram: string = PACKAGE_PROGRAM) {
    this.path = path
    this.#packageProgram = packageProgram
    this.#statePath = join(path, 'state.json')
    this.#verdictPath = join(path, 'verdict.json')
  }

  get versions(): string {
    return join(this.path, 'versions')
  }

  /** For root alone: the archive that is checked, and locks. */
  get incoming(): string {
    return join(this.path, '.incoming')
  }

  state(): UpdateState | undefined {
    return readUpdateState(this.#statePath)
  }

  /** On disk when it returns. */
  write(state: UpdateState): void {
    makeFolder(this.path, 0o755)
    writeFileDurably(this.#statePath, JSON.stringify(state), 0o644)
  }

  /** Stores the state for a rollback. */
  writeVerdict(state: StateOf<'rolled-back'>): void {
    writeFileDurably(this.#verdictPath, JSON.stringify(state), 0o644)
  }

  /** Makes the verdict the state. Without a verdict, the fallback is written. */
  takeVerdict(fallback: StateOf<'rolled-back'>): void {
    if (existsSync(this.#verdictPath)) {
      renameSync(this.#verdictPath, this.#statePath)
      syncFolder(this.path)
    } else {
      this.write(fallback)
    }
  }

  /** Folder of the version that `current` names; null for the package's. */
  currentFolder(): string | null {
    try {
      return readlinkSync(join(this.path, 'current'))
    } catch {
      return null
    }
  }

  keepPrevious(folder: string | null): void {
    rmSync(join(this.path, 'previous'), { force: true })
    if (folder !== null) symlinkSync(folder, join(this.path, 'previous'))
  }

  switchTo(folder: string): void {
    const next = join(this.path, 'next')
    rmSync(next, { force: true })
    symlinkSync(folder, next)
    renameSync(next, join(this.path, 'current'))
    syncFolder(this.path)
  }

  /** Once or after a cut at any point of it. */
  switchBack(folder: string | null): void {
    const previous = join(this.path, 'previous')
    if (folder === null) {
      rmSync(join(this.path, 'current'), { force: true })
    } else if (lstatSync(previous, { throwIfNoEntry: false })) {
      renameSync(previous, join(this.path, 'current'))
    } else if (this.currentFolder() !== folder) {
      this.switchTo(folder)
    }
    syncFolder(this.path)
  }

  /** Removes all versions except these folders. */
  removeOthers(kept: readonly (string | null)[]): void {
    const names = new Set(kept.filter((folder) => folder !== null).map((it) => basename(it)))
    for (const name of readdirSync(this.versions)) {
      if (!names.has(name)) rmSync(join(this.versions, name), { recursive: true, force: true })
    }
  }

  /** Removes partly unpacked versions. */
  removeUnfinished(): void {
    if (!existsSync(this.versions)) return
    for (const name of readdirSync(this.versions)) {
      if (name.startsWith('.')) rmSync(join(this.versions, name), { recursive: true, force: true })
    }
  }

  /** Whether the current trial is of this program. */
  isTrialOf(programRoot: string): boolean {
    const state = this.state()
    return state?.state === 'trying' && isBelow(programRoot, join(this.path, state.toFolder))
  }

  /** Whether updates apply to this program: that of the package, and those in this home. */
  serves(programRoot: string): boolean {
    return programRoot === this.#packageProgram || isBelow(programRoot, this.path)
  }

  /** Ensures that the state that was read survives a power cut. */
  sync(): void {
    syncFolder(this.path)
  }
}

function isBelow(path: string, folder: string): boolean {
  try {
    return realpathSync(path).startsWith(realpathSync(folder) + sep)
  } catch {
    return false
  }
}

/** Which boot of the machine this is. */
export function bootId(): string {
  return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
}

/** Milliseconds since the machine was started, the same for all its processes; no correction moves it. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1_000_000n)
}

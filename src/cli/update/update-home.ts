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

/** Where an installed service has them; the launcher of the package looks there. */
const UPDATE_HOME = '/opt/device-agent'
/** The program of the package. */
const PACKAGE_PROGRAM = '/usr/lib/device-agent'

/**
 * Versions beside the one that the package has installed, which nothing here touches:
 *
 *     versions/1.2.0/    a program that runs by itself
 *     current            link to the one that runs; without it, that is the package's
 *     previous           what `current` was before the trial
 *     state.json         UpdateState; all may read it, only root writes
 *     verdict.json       what state.json becomes when the trial is undone
 *
 * What undoes a trial takes no space: everything was prepared, and is only renamed.
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

  /** What is to be said when the trial is undone. */
  writeVerdict(state: StateOf<'rolled-back'>): void {
    writeFileDurably(this.#verdictPath, JSON.stringify(state), 0o644)
  }

  /** Makes the verdict the state; where there is none, it is written. */
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

  /** Removes versions that are none of these folders. */
  removeOthers(kept: readonly (string | null)[]): void {
    const names = new Set(kept.filter((folder) => folder !== null).map((it) => basename(it)))
    for (const name of readdirSync(this.versions)) {
      if (!names.has(name)) rmSync(join(this.versions, name), { recursive: true, force: true })
    }
  }

  /** Removes what was not unpacked to its end. */
  removeUnfinished(): void {
    if (!existsSync(this.versions)) return
    for (const name of readdirSync(this.versions)) {
      if (name.startsWith('.')) rmSync(join(this.versions, name), { recursive: true, force: true })
    }
  }

  /** True for a program whose trial this is. */
  isTrialOf(programRoot: string): boolean {
    const state = this.state()
    return state?.state === 'trying' && isBelow(programRoot, join(this.path, state.toFolder))
  }

  /** True for programs that updates are for: that of the package, and those that are put here. */
  serves(programRoot: string): boolean {
    return programRoot === this.#packageProgram || isBelow(programRoot, this.path)
  }

  /** Makes sure that what was read is not forgotten in a power cut. */
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

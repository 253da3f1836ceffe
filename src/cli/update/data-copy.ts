import {
  chmodSync,
  chownSync,
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import process from 'node:process'
import { makeFile, syncFolder } from '../../base/file.ts'

/**
 * A copy of the agent's data from before a trial. It lies beside the data directory, so a rollback is a
 * rename: it needs no space and no copying.
 */
export class DataCopy {
  readonly #data: string
  readonly #copy: string
  /** While it is written, and until it has taken the place of the data. */
  readonly #unfinished: string
  /** Data of a rolled-back version. The next trial removes it. */
  readonly #left: string

  constructor(dataDir: string) {
    this.#data = realPlace(dataDir)
    this.#copy = `${this.#data}.before-update`
    this.#unfinished = `${this.#copy}.tmp`
    this.#left = `${this.#data}.of-trial`
  }

  /** True when a cut has left the data themselves in the place of the copy. */
  get isHalfMade(): boolean {
    return existsSync(this.#unfinished) && existsSync(this.#copy)
  }

  /** Makes the copy while nothing writes to the data. Throws errors of the system; call `discard` then. */
  make(): void {
    this.discard()
    rmSync(this.#left, { recursive: true, force: true })
    if (!existsSync(this.#data)) return
    if (isMountPoint(this.#data)) {
      throw new Error(
        `${this.#data} is a separate file system, which cannot be replaced atomically`,
      )
    }
    requireRootsOwn(dirname(this.#data))
    copyFolder(this.#data, this.#unfinished)
    // The trial runs on the copy: where such a rename is refused, putting back would be too.
    renameSync(this.#data, this.#copy)
    renameSync(this.#unfinished, this.#data)
    syncFolder(dirname(this.#data))
  }

  /** Puts it back, once or after a cut at any point of it. */
  restore(): void {
    if (!existsSync(this.#copy)) return
    if (existsSync(this.#data)) {
      rmSync(this.#left, { recursive: true, force: true })
      renameSync(this.#data, this.#left)
    }
    renameSync(this.#copy, this.#data)
    syncFolder(dirname(this.#data))
  }

  /** The data are in their place then, and there is no copy. */
  discard(): void {
    if (this.isHalfMade) this.restore()
    for (const path of [this.#copy, this.#unfinished]) {
      rmSync(path, { recursive: true, force: true })
    }
  }
}

/**
 * systemd keeps the data of a dynamic user behind a link, and the link stays where it is. After a cut
 * there may be nothing where it leads to.
 */
function realPlace(path: string): string {
  try {
    return realpathSync(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') return path
  }
  const place = join(realPlace(dirname(path)), basename(path))
  const isLink = lstatSync(place, { throwIfNoEntry: false })?.isSymbolicLink() ?? false
  return isLink ? realPlace(resolve(dirname(place), readlinkSync(place))) : place
}

/** A user with write access could replace the data or the copy. */
function requireRootsOwn(folder: string): void {
  if (process.geteuid?.() !== 0) return
  const { uid, mode } = statSync(folder)
  if (uid !== 0 || (mode & 0o022) !== 0) {
    throw new Error(`users other than root can write to ${folder}`)
  }
}

function isMountPoint(path: string): boolean {
  const places = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    // The fifth field; a space in it is written as its octal number.
    .map((line) => line.split(' ')[4]?.replaceAll('\\040', ' '))
  return places.includes(path)
}

/**
 * Copies files and folders with owner and mode, each synced to disk. Sockets are not copied: the listener
 * creates them.
 */
function copyFolder(from: string, to: string): void {
  mkdirSync(to, { mode: 0o700 })
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)]
    if (entry.isDirectory()) copyFolder(source, target)
    else if (entry.isFile()) copyFile(source, target)
    else if (entry.isSymbolicLink()) symlinkSync(readlinkSync(source), target)
  }
  takeOver(from, to)
  syncFolder(to)
}

function copyFile(from: string, to: string): void {
  // A lock file is empty. Opening and closing it would release the lock; see `makeFile`.
  if (lstatSync(from).size === 0) makeFile(to)
  else copyFileSync(from, to)
  takeOver(from, to)
  const file = openSync(to, 'r')
  try {
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
}

function takeOver(from: string, to: string): void {
  const { uid, gid, mode } = lstatSync(from)
  chownSync(to, uid, gid)
  chmodSync(to, mode & 0o7777)
}

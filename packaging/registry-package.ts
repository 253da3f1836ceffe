import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { CACHE, readLock, run } from './project.ts'

/** A package of the registry, pinned to its bytes. */
export interface PinnedPackage {
  readonly name: string
  readonly version: string
  /** `sha512-…`, as lock files have it. */
  readonly integrity: string
}

/** What package-lock.json pins, whether it is installed for this machine or not. */
export function lockedPackage(path: string): PinnedPackage {
  const entry = readLock()[`node_modules/${path}`]
  if (!entry?.integrity) throw new Error(`package-lock.json pins no bytes of ${path}`)
  return { name: entry.name ?? path, version: entry.version, integrity: entry.integrity }
}

/** Unpacks the package into a folder; throws when the registry gives other bytes than were pinned. */
export function unpack(pinned: PinnedPackage, folder: string): void {
  const tarball = fetchTarball(pinned)
  mkdirSync(folder, { recursive: true })
  run('tar', ['-xzf', tarball, '-C', folder, '--strip-components=1', '--no-same-owner'])
}

function fetchTarball({ name, version, integrity }: PinnedPackage): string {
  const path = join(CACHE, `${name.replaceAll('/', '+')}-${version}.tgz`)
  if (existsSync(path) && integrityOf(path) === integrity) return path
  mkdirSync(CACHE, { recursive: true })
  const [packed] = JSON.parse(
    run('npm', ['pack', `${name}@${version}`, '--json', '--pack-destination', CACHE], {
      cwd: CACHE,
    }),
  ) as [{ filename: string }]
  const got = join(CACHE, packed.filename.replace('@', '').replaceAll('/', '-'))
  const found = integrityOf(got)
  if (found !== integrity) {
    throw new Error(`${name}@${version} is not what was pinned: ${found} instead of ${integrity}`)
  }
  renameSync(got, path)
  return path
}

function integrityOf(path: string): string {
  return `sha512-${createHash('sha512').update(readFileSync(path)).digest('base64')}`
}

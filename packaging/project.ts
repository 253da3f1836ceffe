import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'

export const ROOT = join(import.meta.dirname, '..')
/** What was fetched for packages, so that another build needs no network. */
export const CACHE = join(ROOT, 'node_modules/.cache/packages')

export interface Manifest {
  readonly name: string
  readonly version: string
  readonly description: string
  readonly license: string
  readonly engines: Readonly<Record<string, string>>
  readonly scripts: Readonly<Record<string, string>>
  readonly dependencies: Readonly<Record<string, string>>
  readonly optionalDependencies: Readonly<Record<string, string>>
}

/** What package-lock.json says of one installed package. */
export interface LockEntry {
  readonly version: string
  readonly integrity?: string
  readonly license?: string
  readonly name?: string
  readonly dev?: boolean
  readonly optional?: boolean
  readonly dependencies?: Readonly<Record<string, string>>
  readonly optionalDependencies?: Readonly<Record<string, string>>
}

export function readManifest(): Manifest {
  return readJson(join(ROOT, 'package.json')) as Manifest
}

/** By path, such as `node_modules/zod`. */
export function readLock(): Readonly<Record<string, LockEntry>> {
  const { packages } = readJson(join(ROOT, 'package-lock.json')) as {
    packages: Record<string, LockEntry>
  }
  return packages
}

/**
 * Seconds since the epoch that all files of a package carry: SOURCE_DATE_EPOCH, else the time of the
 * commit, so that builds of one commit on one machine can be compared.
 */
export function sourceDate(): number {
  const given = process.env.SOURCE_DATE_EPOCH
  if (given !== undefined && !/^\d+$/.test(given)) {
    throw new Error('SOURCE_DATE_EPOCH must be whole seconds since 1970')
  }
  return Number(given ?? run('git', ['-C', ROOT, 'log', '-1', '--format=%ct']).trim())
}

/** Runs a tool and answers its stdout; what it says on stderr is shown when it fails. */
export function run(
  tool: string,
  args: readonly string[],
  options: { readonly cwd?: string; readonly env?: Readonly<Record<string, string>> } = {},
): string {
  const env = { ...process.env, LC_ALL: 'C.UTF-8', TZ: 'UTC', ...options.env }
  return execFileSync(tool, args, {
    encoding: 'utf8',
    maxBuffer: 64 * 1_048_576,
    stdio: ['ignore', 'pipe', 'pipe'],
    ...options,
    env,
  })
}

export function readJson(path: string): unknown {
  return JSON.parse(readFileSync(path, 'utf8'))
}

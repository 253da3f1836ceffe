import { statSync } from 'node:fs'

const MOST_VERIFIED_BYTES = 1024 * 1024

/** True for more than can be held against the rows without holding everything else up. */
export function isLarge(path: string): boolean {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat !== undefined && stat.size > MOST_VERIFIED_BYTES
}

/** The file at `path` as it was last written. */
export function versionOf(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat && `${markOf(path)}:${stat.mtimeMs}`
}

/** Which file lies at `path`; undefined when there is none. */
export function markOf(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat && `${stat.dev}:${stat.ino}`
}

import { chmodSync, lutimesSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** Writes a file and the folders above it. */
export function put(path: string, content: string | Buffer, mode = 0o644): void {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, content)
  chmodSync(path, mode)
}

/** Files of a folder, relative to it, sorted by their bytes. */
export function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .sort()
}

export function sizeOf(folder: string): number {
  return filesIn(folder).reduce((sum, file) => sum + statSync(join(folder, file)).size, 0)
}

/**
 * Gives everything below a folder one time and, but for the modes that are named, the rights that
 * files of a system have: whoever builds, with whatever umask, gets the same.
 */
export function settle(
  folder: string,
  date: number,
  modes: Readonly<Record<string, number>> = {},
): void {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true })
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name)
    if (entry.isSymbolicLink()) continue
    const isProgram = entry.isFile() && (statSync(path).mode & 0o100) !== 0
    const mode = modes[path.slice(folder.length + 1)]
    chmodSync(path, mode ?? (entry.isDirectory() || isProgram ? 0o755 : 0o644))
  }
  chmodSync(folder, 0o755)
  for (const entry of entries) lutimesSync(join(entry.parentPath, entry.name), date, date)
  lutimesSync(folder, date, date)
}

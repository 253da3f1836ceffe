import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** The version of the installed package. */
export function readVersion(): string {
  const path = join(import.meta.dirname, '../../package.json')
  return JSON.parse(readFileSync(path, 'utf8')).version
}

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { packageRoot } from '../base/file.ts'

/** The version of the installed package. */
export function readVersion(): string {
  const path = join(packageRoot(), 'package.json')
  return JSON.parse(readFileSync(path, 'utf8')).version
}

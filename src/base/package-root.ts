import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** The folder of this package: the sources and the bundle lie at different depths below it. */
export function packageRoot(): string {
  let folder = import.meta.dirname
  while (!existsSync(join(folder, 'package.json'))) folder = dirname(folder)
  return folder
}

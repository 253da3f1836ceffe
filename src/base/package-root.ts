import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { StartError } from './app-error.ts'

/**
 * The folder of this package: the sources and the bundle lie at different depths below it. Throws a
 * StartError where somebody has copied a part of it.
 */
export function packageRoot(from: string = import.meta.dirname): string {
  for (let folder = from; ; folder = dirname(folder)) {
    if (existsSync(join(folder, 'package.json'))) return folder
    if (folder === dirname(folder)) {
      throw new StartError(
        'The installation is incomplete: package.json is missing. Install device-agent again.',
      )
    }
  }
}

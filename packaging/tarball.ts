import { copyFileSync, cpSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { put, settle } from './file-tree.ts'
import { copyPages } from './program-folder.ts'
import { ROOT, run } from './project.ts'

/** Started from any folder, also through a link: the program lies beside it. */
const LAUNCHER = `#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
exec "$here/../lib/bin/node" --disable-proto=delete "$here/../lib/dist/main.js" "$@"
`

export interface TarballOptions {
  /** The program folder and where the documents of the package are. */
  readonly program: string
  readonly documents: Readonly<Record<string, string>>
  readonly name: string
  readonly work: string
  readonly output: string
  readonly date: number
}

/** A `.tar.gz` with one folder that runs where it is unpacked; answers its path. */
export function makeTarball({
  program,
  documents,
  name,
  work,
  output,
  date,
}: TarballOptions): string {
  const folder = join(work, name)
  mkdirSync(folder)
  cpSync(program, join(folder, 'lib'), { recursive: true })
  put(join(folder, 'bin/device-agent'), LAUNCHER, 0o755)
  copyFileSync(join(ROOT, 'LICENSE'), join(folder, 'LICENSE'))
  for (const [file, text] of Object.entries(documents)) put(join(folder, file), text)
  copyPages(folder)
  settle(folder, date)
  const path = join(output, `${name}.tar.gz`)
  run('sh', [
    '-c',
    'tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner -C "$1" -cf - "$2" | gzip -9n >"$3"',
    'sh',
    work,
    name,
    path,
  ])
  return path
}

/**
 * Checks the tools that `npm run package` needs, before anything is installed or compiled. Takes its options. Uses
 * only modules of Node, because the dependencies may be missing. `main.ts` imports it, too: scripts can start there.
 */
import { accessSync, constants } from 'node:fs'
import { delimiter, resolve } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'

/** Triplets of `target.ts`. */
const TRIPLETS = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' }
const PROGRAM_KINDS = ['deb', 'tar', 'image']

/** Debian packages of the tools, by tool. */
function neededTools({ help, from, repository, only, arch = Object.keys(TRIPLETS) }) {
  if (help) return new Map()
  const kinds = from === undefined ? (only ?? [...PROGRAM_KINDS, 'npm']) : []
  const has = (...some) => some.some((kind) => kinds.includes(kind))
  const triplets = arch.flatMap((it) => TRIPLETS[it] ?? [])
  return new Map([
    ...(process.env.SOURCE_DATE_EPOCH === undefined ? [['git', 'git']] : []),
    ...(has(...PROGRAM_KINDS)
      ? [['tar', 'tar'], ...triplets.map((it) => [`${it}-strip`, binutilsOf(it)])]
      : []),
    ...(has('tar') ? [['gzip', 'gzip']] : []),
    ...(has('deb', 'image') || repository ? [['dpkg-deb', 'dpkg']] : []),
    ...(has('image') ? [['/usr/lib/apt/apt-helper', 'apt']] : []),
    ...(repository ? [['gpg', 'gnupg']] : []),
  ])
}

const binutilsOf = (triplet) => `binutils-${triplet.replace('_', '-')}`

function isThere(tool) {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(resolve(folder, tool), constants.X_OK)
      return true
    } catch {
      return false
    }
  })
}

const list = { type: 'string', multiple: true }
const text = { type: 'string' }
const { values } = parseArgs({
  options: {
    ...{ arch: list, only: list, from: text, repository: text },
    help: { type: 'boolean', short: 'h' },
  },
  // The program itself reports other options.
  strict: false,
})
const missing = [...neededTools(values)].filter(([tool]) => !isThere(tool))
if (missing.length > 0) {
  const tools = missing.map(([tool]) => tool).join(', ')
  const packages = missing.map(([, name]) => name).join(' ')
  process.stderr.write(
    `Tools for these packages are missing: ${tools}. Install them first: sudo apt-get install ${packages}\n`,
  )
  process.exit(1)
}

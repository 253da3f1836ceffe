import { mkdirSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { componentsOf, noticesText, refuseForeignTerms } from './components.ts'
import { makeDeb } from './deb.ts'
import { makeNpmPackage } from './npm-package.ts'
import { makeProgramFolder, withWorkFolder } from './program-folder.ts'
import { readManifest, sourceDate } from './project.ts'
import { sbomText } from './sbom.ts'
import { makeTarball } from './tarball.ts'
import { TARGETS, type Target } from './target.ts'
import { usageFiles } from './usage-files.ts'

const HELP = `npm run package [-- OPTIONS]: packages for all machines, in one run

  --output FOLDER   where they go (packages)
  --arch x64|arm64  for one machine alone; may be repeated
  --only KIND       deb, tar or npm alone; may be repeated

SOURCE_DATE_EPOCH is the time of all files; unset: that of the commit.
`

interface Order {
  readonly kinds: ReadonlySet<string>
  readonly output: string
  readonly date: number
  readonly usage: Readonly<Record<string, string>>
}

/** The packages for one machine, from one program folder; answers their paths. */
function makeFor(target: Target, { kinds, output, date, usage }: Order): string[] {
  if (!kinds.has('deb') && !kinds.has('tar')) return []
  return withWorkFolder((work) => {
    const manifest = readManifest()
    const folder = makeProgramFolder(join(work, 'program'), join(work, 'unpacked'), target)
    const components = componentsOf(folder)
    refuseForeignTerms(components)
    const documents = {
      'sbom.cdx.json': sbomText(manifest, components, date),
      'NOTICES.txt': noticesText(components),
    }
    const shared = { program: folder.path, documents, work, output, date }
    const name = `${manifest.name}-${manifest.version}-linux-${target.arch}`
    return [
      ...(kinds.has('deb') ? [makeDeb({ ...shared, manifest, target, usage })] : []),
      ...(kinds.has('tar') ? [makeTarball({ ...shared, name })] : []),
    ]
  })
}

const { values } = parseArgs({
  options: {
    output: { type: 'string', default: 'packages' },
    arch: { type: 'string', multiple: true },
    only: { type: 'string', multiple: true },
    help: { type: 'boolean', short: 'h' },
  },
})
if (values.help) {
  process.stdout.write(HELP)
} else {
  const output = resolve(values.output)
  const kinds = new Set(values.only ?? ['deb', 'tar', 'npm'])
  const order = { kinds, output, date: sourceDate(), usage: await usageFiles() }
  mkdirSync(output, { recursive: true })
  const targets = TARGETS.filter(({ arch }) => values.arch?.includes(arch) ?? true)
  const made = targets.flatMap((target) => makeFor(target, order))
  if (kinds.has('npm')) made.push(withWorkFolder((work) => makeNpmPackage({ ...order, work })))
  for (const path of made) {
    process.stdout.write(`${(statSync(path).size / 1e6).toFixed(1).padStart(6)} MB  ${path}\n`)
  }
}

import type { KeyObject } from 'node:crypto'
import { mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { checkedKeys } from './apt/archive-key.ts'
import { checkedUrl, publish } from './apt/repository.ts'
import {
  componentsOf,
  noticesText,
  refuseForeignDependencies,
  refuseForeignTerms,
} from './components.ts'
import { makeDeb } from './deb.ts'
import { type MachineImage, makeMachineImage, writeImageArchive } from './image/image.ts'
import { makeNpmPackage } from './npm-package.ts'
import { makeProgramFolder, withWorkFolder } from './program-folder.ts'
import { readManifest, sourceDate } from './project.ts'
import { sbomText } from './sbom.ts'
import { publicKeyOf, readSigningKey, signArchive } from './signing.ts'
import { makeTarball } from './tarball.ts'
import { TARGETS, type Target } from './target.ts'
import { usageFiles } from './usage-files.ts'

const HELP = `npm run package [-- OPTIONS]: build packages for all architectures

  --output FOLDER   output folder (packages)
  --arch x64|arm64  only this architecture; may be repeated
  --only KIND       only deb, tar, npm or image; may be repeated
  --sign KEYFILE    Ed25519 key in PEM (openssl genpkey -algorithm ed25519): signs the archives for
                    device-agent update; the built packages accept updates signed with this key
  --repository FOLDER  adds the Debian packages to an apt repository, with install.sh
  --archive-key FINGERPRINT  key of gpg that signs the repository; a second one is the next key,
                    which devices get to know before it signs
  --url URL         address of the repository for devices
  --from FOLDER     builds nothing: the Debian packages of this folder go into the repository

The image is an OCI layout for all architectures (skopeo copy --all oci-archive:FILE docker://NAME). With
--arch it is for one machine, and docker load and podman load can read it.
SOURCE_DATE_EPOCH is the time of all files; default: time of the commit.
`

interface Order {
  readonly kinds: ReadonlySet<string>
  readonly output: string
  readonly date: number
  readonly key: KeyObject | undefined
  readonly usage: Readonly<Record<string, string>>
}

const KINDS = ['deb', 'tar', 'npm', 'image'] as const
/** Kinds that are made from a program folder for one machine. */
const hasProgram = (kinds: ReadonlySet<string>) =>
  kinds.has('deb') || kinds.has('tar') || kinds.has('image')

interface Made {
  readonly paths: readonly string[]
  readonly image: MachineImage | undefined
}

/** The packages for one machine, from one program folder. */
function makeFor(target: Target, { kinds, output, date, usage, key }: Order): Promise<Made> {
  return withWorkFolder(async (work) => {
    const manifest = readManifest()
    const folder = makeProgramFolder(join(work, 'program'), join(work, 'unpacked'), target)
    if (key) writeFileSync(join(folder.path, 'update-keys.pem'), publicKeyOf(key))
    const components = componentsOf(folder)
    refuseForeignTerms(components)
    const documents = {
      'sbom.cdx.json': sbomText(manifest, components, date),
      'NOTICES.txt': noticesText(components),
    }
    const shared = { program: folder.path, documents, work, output, date }
    const { version } = manifest
    const name = `${manifest.name}-${version}-linux-${target.arch}`
    const paths = kinds.has('deb') ? [makeDeb({ ...shared, manifest, target, usage })] : []
    if (kinds.has('tar')) {
      const archive = makeTarball({ ...shared, name })
      const what = { name: 'device-agent', version, arch: target.arch } as const
      paths.push(archive, ...(key ? [signArchive(archive, what, key)] : []))
    }
    const image = kinds.has('image')
      ? await makeMachineImage({ manifest, target, program: folder, work, date })
      : undefined
    return { paths, image }
  })
}

const { values } = parseArgs({
  options: {
    output: { type: 'string', default: 'packages' },
    arch: { type: 'string', multiple: true },
    only: { type: 'string', multiple: true },
    sign: { type: 'string' },
    repository: { type: 'string' },
    'archive-key': { type: 'string', multiple: true },
    url: { type: 'string' },
    from: { type: 'string' },
    help: { type: 'boolean', short: 'h' },
  },
})
if (values.help) process.stdout.write(HELP)
else {
  try {
    await main()
  } catch (error) {
    // A mistake of the caller or a failed tool needs no stack.
    if (Object.getPrototypeOf(error) !== Error.prototype) throw error
    process.stderr.write(`${(error as Error).message}\n`)
    process.exitCode = 1
  }
}

async function main(): Promise<void> {
  const output = resolve(values.output)
  const kinds = new Set<string>(values.only ?? KINDS)
  const unknown = values.only?.find((it) => !KINDS.some((kind) => kind === it))
  if (unknown) throw new Error(`Unknown kind ${unknown}. Use --only ${KINDS.join(', ')}.`)
  if (values.repository !== undefined && values.from === undefined && !kinds.has('deb')) {
    throw new Error('--repository takes Debian packages. Add --only deb.')
  }
  const repository = readRepository()
  // Scripts can start here. A mistaken option comes before a missing tool.
  await import(new URL('needed-tools.mjs', import.meta.url).href)
  const made = values.from === undefined ? await build(kinds, output) : debsIn(values.from)
  for (const path of made) {
    process.stdout.write(`${(statSync(path).size / 1e6).toFixed(1).padStart(6)} MB  ${path}\n`)
  }
  if (repository) {
    const debs = made.filter((path) => path.endsWith('.deb'))
    if (debs.length === 0) throw new Error(`${values.from} has no Debian packages.`)
    const times = { date: sourceDate(), now: Date.now() }
    await withWorkFolder((work) =>
      publish({ ...repository, ...times, debs, manifest: readManifest(), work }),
    )
    process.stdout.write(`repository: ${repository.folder}\n`)
  }
}

/** Checked before the packages are built, which takes minutes. */
function readRepository() {
  const { repository, 'archive-key': keys = [], url, from } = values
  if (repository !== undefined) {
    return { folder: resolve(repository), keys: checkedKeys(keys), url: checkedUrl(url) }
  }
  if (keys.length > 0 || url !== undefined || from !== undefined) {
    throw new Error('--archive-key, --url and --from need --repository FOLDER.')
  }
  return undefined
}

function debsIn(folder: string): string[] {
  const names = readdirSync(folder).filter((name) => name.endsWith('.deb'))
  return names.sort().map((name) => resolve(folder, name))
}

async function build(kinds: ReadonlySet<string>, output: string): Promise<string[]> {
  const key = values.sign === undefined ? undefined : readSigningKey(values.sign)
  // A package takes minutes, and would be refused at its end.
  refuseForeignDependencies()
  const order = { kinds, output, date: sourceDate(), usage: await usageFiles(), key }
  const targets = TARGETS.filter(({ arch }) => values.arch?.includes(arch) ?? true)
  const known = TARGETS.map(({ arch }) => arch)
  const odd = values.arch?.find((it) => !known.some((arch) => arch === it))
  if (odd) throw new Error(`Unknown architecture ${odd}. Use --arch ${known.join(' or ')}.`)
  mkdirSync(output, { recursive: true })
  const made: string[] = []
  const images: MachineImage[] = []
  if (hasProgram(kinds)) {
    for (const target of targets) {
      process.stderr.write(`Packing for ${target.arch}. This takes minutes.\n`)
      const { paths, image } = await makeFor(target, order)
      made.push(...paths)
      if (image) images.push(image)
    }
  }
  if (images.length > 0) {
    made.push(await writeImageArchive({ ...order, manifest: readManifest(), images }))
  }
  if (kinds.has('npm'))
    made.push(await withWorkFolder((work) => makeNpmPackage({ ...order, work })))
  return made
}

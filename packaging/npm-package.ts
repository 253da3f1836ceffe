import { copyFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { settle } from './file-tree.ts'
import { fillCommon } from './program-folder.ts'
import { type LockEntry, type Manifest, ROOT, readLock, readManifest, run } from './project.ts'

export interface NpmPackageOptions {
  readonly work: string
  readonly output: string
  readonly date: number
}

/**
 * The package for npm, made from a folder of its own: the bundle without source maps, only what is not
 * in it as dependencies, and a shrinkwrap, so that an installation takes the bytes that were tested.
 */
export function makeNpmPackage({ work, output, date }: NpmPackageOptions): string {
  const folder = join(work, 'npm')
  fillCommon(folder)
  const manifest = readManifest()
  const staged = stagedManifest(manifest)
  const write = (name: string, content: unknown) =>
    writeFileSync(join(folder, name), `${JSON.stringify(content, null, 2)}\n`)
  write('package.json', staged)
  write('npm-shrinkwrap.json', shrinkwrapOf(staged, readLock()))
  for (const name of ['README.md', 'CHANGELOG.md'])
    copyFileSync(join(ROOT, name), join(folder, name))
  settle(folder, date, { 'dist/main.js': 0o755 })
  const [packed] = JSON.parse(
    run('npm', ['pack', folder, '--json', '--pack-destination', work], { cwd: work }),
  ) as [{ filename: string }]
  const path = join(output, `${manifest.name}-${manifest.version}.tgz`)
  renameSync(join(work, packed.filename), path)
  return path
}

export interface StagedManifest {
  readonly name: string
  readonly version: string
  readonly dependencies: Readonly<Record<string, string>>
  readonly optionalDependencies: Readonly<Record<string, string>>
}

/** The dependencies that the build leaves outside of the bundle, and nothing of the workshop. */
export function stagedManifest(manifest: Manifest): StagedManifest {
  const { build = '' } = manifest.scripts
  const outside = new Set([...build.matchAll(/--external:(\S+)/g)].map(([, name]) => name))
  const only = (all: Readonly<Record<string, string>>) =>
    Object.fromEntries(Object.entries(all).filter(([name]) => outside.has(name)))
  const { name, version, description, license, engines } = manifest
  return {
    name,
    version,
    ...{ description, license, type: 'module', engines, bin: { 'device-agent': 'dist/main.js' } },
    dependencies: only(manifest.dependencies),
    optionalDependencies: only(manifest.optionalDependencies),
  }
}

/** The part of the lock file that these dependencies lead to. */
export function shrinkwrapOf(
  staged: StagedManifest,
  lock: Readonly<Record<string, LockEntry>>,
): object {
  const { name, version, dependencies, optionalDependencies } = staged
  const packages: Record<string, LockEntry | StagedManifest> = { '': staged }
  const visit = (from: string, wanted: LockEntry | StagedManifest): void => {
    const names = { ...wanted.dependencies, ...wanted.optionalDependencies }
    for (const wantedName of Object.keys(names)) {
      const path = resolveIn(lock, from, wantedName)
      const entry = path === undefined ? undefined : lock[path]
      if (path === undefined || !entry || path in packages) continue
      if (!entry.integrity) throw new Error(`package-lock.json pins no bytes of ${path}`)
      const { dev: _, ...kept } = entry
      packages[path] = kept
      visit(path, entry)
    }
  }
  visit('', { name, version, dependencies, optionalDependencies })
  const sorted = Object.fromEntries(
    Object.keys(packages)
      .sort()
      .map((path) => [path, packages[path]]),
  )
  return { name, version, lockfileVersion: 3, requires: true, packages: sorted }
}

/** Where Node finds a package from another one: in its own folder, or in those above it. */
function resolveIn(
  lock: Readonly<Record<string, LockEntry>>,
  from: string,
  name: string,
): string | undefined {
  let folder = from
  for (;;) {
    const path = folder === '' ? `node_modules/${name}` : `${folder}/node_modules/${name}`
    if (lock[path]) return path
    if (folder === '') return undefined
    folder = folder.slice(0, Math.max(0, folder.lastIndexOf('/node_modules/')))
  }
}

import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { type BundledPackages, bundleInto } from './bundle.ts'
import parts from './parts.json' with { type: 'json' }
import { type Manifest, ROOT, readManifest, run } from './project.ts'
import { lockedPackage, type PinnedPackage, unpack } from './registry-package.ts'
import type { Target } from './target.ts'

/** What a package has installed beside the bundle, and what it was made from. */
export interface ProgramFolder {
  readonly path: string
  readonly bundled: BundledPackages
  /** Folders of packages that lie beside the bundle, unpacked, with what was pinned. */
  readonly runtime: readonly { readonly pinned: PinnedPackage; readonly source: string }[]
}

/** A file that the program needs when it runs: the rest is for building, and licences are in the notices. */
const NEEDED = /(?:^|\/)(?:package\.json|[^/]+\.(?:js|cjs|node))$/i
const NOT_NEEDED = /(?:^|\/)(?:(?:deps|src|docs|test|benchmark|examples|build)\/|[^/]+\.config\.)/

/** The bundle and the files that both the npm package and those for machines have. */
export function fillCommon(folder: string): BundledPackages {
  mkdirSync(folder, { recursive: true })
  const bundled = bundleInto(join(folder, 'dist'))
  for (const name of ['default-policy.json', 'LICENSE']) {
    copyFileSync(join(ROOT, name), join(folder, name))
  }
  cpSync(join(ROOT, 'systemd'), join(folder, 'systemd'), { recursive: true })
  return bundled
}

/** Copies the pages for users, with the links among them: they describe this version. */
export function copyPages(folder: string): void {
  for (const name of ['README.md', 'SECURITY.md', 'docs']) {
    cpSync(join(ROOT, name), join(folder, name), { recursive: true })
  }
  const readme = join(folder, 'README.md')
  // Other files of the project are not there: only their names stay.
  const text = readFileSync(readme, 'utf8').replaceAll(
    /\[([^\]]+)\]\((?!https?:)([^)#]+)[^)]*\)/g,
    (link, name: string, path: string) => (existsSync(join(folder, path)) ? link : name),
  )
  writeFileSync(readme, text)
}

/** A folder that runs wherever it is put: bundle, native libraries and Node. `work` holds what was unpacked. */
export function makeProgramFolder(path: string, work: string, target: Target): ProgramFolder {
  const bundled = fillCommon(path)
  rmSync(join(path, 'LICENSE'))
  writeFileSync(join(path, 'package.json'), installedManifest(readManifest()))
  const runtime = runtimePackages(target).map((pinned) => {
    const source = join(work, pinned.name)
    if (!existsSync(source)) unpack(pinned, source)
    return { pinned, source }
  })
  for (const { pinned, source } of runtime) {
    if (pinned.name === nodePackage(target).name) continue
    copyNeeded(source, join(path, 'node_modules', pinned.name), target)
  }
  mkdirSync(join(path, 'bin'))
  const node = join(work, nodePackage(target).name, 'bin/node')
  stripInto(node, join(path, 'bin/node'), target, 0o755)
  return { path, bundled, runtime }
}

function runtimePackages(target: Target): PinnedPackage[] {
  const { arch } = target
  const paths = ['better-sqlite3', '@ngrok/ngrok', `@ngrok/ngrok-linux-${arch}-gnu`]
  // There is no build of it for arm64: there the program systemd-notify speaks for the service.
  if (arch === 'x64') paths.push('node-unix-socket', 'node-unix-socket-linux-x64-gnu')
  return [nodePackage(target), ...paths.map(lockedPackage)]
}

export function nodePackage({ arch }: Target): PinnedPackage {
  const { package: name, integrity } = parts.node[arch]
  return { name, version: parts.node.version, integrity }
}

function copyNeeded(from: string, to: string, target: Target): void {
  const { arch } = target
  const files = readdirSync(from, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(from.length + 1))
    .filter((file) => NEEDED.test(file) && !NOT_NEEDED.test(file))
    // Native libraries for other machines than this one.
    .filter(
      (file) =>
        !file.endsWith('.node') || !/(?:linux|darwin|win32)/.test(file) || isFor(file, arch),
    )
  for (const file of files) {
    mkdirSync(join(to, file, '..'), { recursive: true })
    if (file.endsWith('.node')) stripInto(join(from, file), join(to, file), target, 0o644)
    else copyFileSync(join(from, file), join(to, file))
  }
}

const isFor = (file: string, arch: string) =>
  file.includes('linux') && file.includes(arch) && !basename(file).includes('musl')

/** Takes the symbols out that only a debugger reads: a seventh of Node. */
function stripInto(from: string, to: string, { triplet }: Target, mode: number): void {
  run(`${triplet}-strip`, ['--strip-unneeded', '-o', to, from])
  chmodSync(to, mode)
}

/** Of package.json what the program itself reads, and what tells people where it is from. */
function installedManifest({ name, version, description, license }: Manifest): string {
  return `${JSON.stringify({ name, version, description, license, type: 'module', private: true }, null, 2)}\n`
}

/** Work that leaves no folder behind. */
export async function withWorkFolder<T>(use: (folder: string) => T | Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-package-'))
  try {
    return await use(folder)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

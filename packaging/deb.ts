import { createHash } from 'node:crypto'
import { cpSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { envTemplate } from '../src/cli/service/env-template.ts'
import { filesIn, put, settle, sizeOf } from './file-tree.ts'
import { copyPages } from './program-folder.ts'
import { type Manifest, ROOT, run } from './project.ts'
import type { Target } from './target.ts'
import { unitFlags } from './unit-flags.ts'

const LIB = 'usr/lib/device-agent'
const NODE = `/${LIB}/bin/node`
const DEBIAN = join(import.meta.dirname, 'debian')
/** Before those of the owner, which come after it and have the last word. */
export const DROP_IN = '00-update.conf'
const UNITS = ['device-agent.service', 'device-gateway.service', 'device-gateway.socket']

export const MAINTAINER = 'device-agent maintainers <maintainers@device-agent.example>'

/** Starts the version that is in place; as the agent with the flags that its unit has for Node. */
export function launcherText(agentUnit: string): string {
  const flags = unitFlags(agentUnit, 'run').join(' ')
  return `#!/bin/sh
# The version that device-agent update has put in place, else that of the package.
program=/opt/device-agent/current/lib
[ -x "$program/bin/node" ] || program=/${LIB}
if [ "$1" = run ]; then
	exec "$program/bin/node" ${flags} "$program/dist/main.js" "$@"
fi
exec "$program/bin/node" --disable-proto=delete "$program/dist/main.js" "$@"
`
}

export interface DebOptions {
  readonly manifest: Manifest
  readonly target: Target
  readonly program: string
  /** By their paths in the package. */
  readonly usage: Readonly<Record<string, string>>
  readonly documents: Readonly<Record<string, string>>
  readonly work: string
  readonly output: string
  /** Seconds since the epoch. */
  readonly date: number
}

/** A Debian package; answers its path. */
export function makeDeb(options: DebOptions): string {
  const { manifest, target, work, output, date } = options
  const root = join(work, `deb-${target.debian}`)
  fillRoot(root, options)
  return packDeb({
    root,
    path: join(output, `${manifest.name}_${manifest.version}_${target.debian}.deb`),
    control: controlText(options),
    // Not the settings: join and setup change them, so dpkg would ask about each later change of ours.
    conffiles: ['etc/device-agent/default-policy.json'],
    scripts: ['postinst', 'prerm', 'postrm'],
    date,
  })
}

export interface DebTree {
  /** Folder with the files of the package. */
  readonly root: string
  readonly path: string
  /** The control file without the size. */
  readonly control: string
  readonly conffiles?: readonly string[]
  readonly modes?: Readonly<Record<string, number>>
  readonly scripts?: readonly string[]
  readonly date: number
}

/** Packs a tree with the same bytes each time; returns the path. */
export function packDeb(tree: DebTree): string {
  const { root, path, control, conffiles = [], scripts = [], date } = tree
  const sums = filesIn(root)
    .filter((file) => !conffiles.includes(file))
    .map(
      (file) =>
        `${createHash('md5')
          .update(readFileSync(join(root, file)))
          .digest('hex')}  ${file}`,
    )
  const size = Math.ceil(sizeOf(root) / 1_024)
  put(join(root, 'DEBIAN/md5sums'), `${sums.join('\n')}\n`)
  if (conffiles.length > 0) {
    const listed = conffiles.map((file) => `/${file}\n`).sort()
    put(join(root, 'DEBIAN/conffiles'), listed.join(''))
  }
  put(
    join(root, 'DEBIAN/control'),
    control.replace('Section:', `Installed-Size: ${size}\nSection:`),
  )
  for (const script of scripts) {
    put(join(root, 'DEBIAN', script), readFileSync(join(DEBIAN, script)), 0o755)
  }
  settle(root, date, tree.modes)
  run('dpkg-deb', ['--root-owner-group', '-Zxz', '-z6', '--threads-max=1', '--build', root, path], {
    env: { SOURCE_DATE_EPOCH: String(date) },
  })
  return path
}

function fillRoot(root: string, options: DebOptions): void {
  const { program, usage, documents, manifest } = options
  cpSync(program, join(root, LIB), { recursive: true })
  const agentUnit = readFileSync(join(ROOT, 'systemd/device-agent.service'), 'utf8')
  put(join(root, 'usr/bin/device-agent'), launcherText(agentUnit), 0o755)
  put(join(root, LIB, 'bin/settle-update'), readFileSync(join(DEBIAN, 'settle-update')), 0o755)
  const dropIn = join(root, 'usr/lib/systemd/system/device-agent.service.d', DROP_IN)
  put(dropIn, readFileSync(join(DEBIAN, DROP_IN)))
  for (const unit of UNITS) {
    const text = readFileSync(join(ROOT, 'systemd', unit), 'utf8')
    put(join(root, 'usr/lib/systemd/system', unit), text.replace('/usr/bin/node', NODE))
  }
  for (const [path, text] of Object.entries(usage)) {
    const isCompressed = path.endsWith('.gz')
    put(join(root, path), isCompressed ? gzipSync(text, { level: 9 }) : text)
  }
  const docs = join(root, 'usr/share/doc/device-agent')
  for (const [name, text] of Object.entries(documents)) put(join(docs, name), text)
  copyPages(docs)
  put(join(docs, 'copyright'), readFileSync(join(DEBIAN, 'copyright')))
  put(join(docs, 'changelog.gz'), gzipSync(changelogText(manifest.name, options), { level: 9 }))
  put(
    join(docs, 'CHANGELOG.md.gz'),
    gzipSync(readFileSync(join(ROOT, 'CHANGELOG.md')), { level: 9 }),
  )
  const overrides = readFileSync(join(DEBIAN, 'lintian-overrides'))
  put(join(root, 'usr/share/lintian/overrides/device-agent'), overrides)
  const templates = join(root, 'usr/share/device-agent')
  put(join(templates, 'agent.env'), envTemplate('device-agent'))
  put(join(templates, 'gateway.env'), envTemplate('device-gateway'))
  const policy = readFileSync(join(ROOT, 'default-policy.json'))
  put(join(root, 'etc/device-agent/default-policy.json'), policy)
}

/** Debian wants a changelog of its own form; ours is beside it. */
export function changelogText(
  name: string,
  { manifest, date }: Pick<DebOptions, 'manifest' | 'date'>,
): string {
  const day = new Date(date * 1_000).toUTCString().replace('GMT', '+0000')
  return `${name} (${manifest.version}) stable; urgency=medium

  * See CHANGELOG.md.gz for the changes.

 -- ${MAINTAINER}  ${day}
`
}

function controlText({ manifest, target }: DebOptions): string {
  const { name, version } = manifest
  return `Package: ${name}
Version: ${version}
Architecture: ${target.debian}
Maintainer: ${MAINTAINER}
Depends: libc6 (>= 2.34), libgcc-s1, libstdc++6 (>= 11)
Recommends: ca-certificates
Section: net
Priority: optional
Description: makes services of edge devices reachable at public URLs
 Opens tunnels to services of this device and stores them on disk. Tunnels
 return after a restart, a power cut or an outage. The package includes the
 gateway that devices connect to and its own Node.js. Installation needs no
 compiler and no network.
`
}

/**
 * `npm run test:update [-- FOLDER KEYFILE [PATTERN]]`: updates to broken versions of many kinds, on the
 * Debian package, in a copy of this system that is thrown away. Needs root. The folder has packages that
 * `npm run package -- --sign KEYFILE` made; without it they are made first. With PATTERN only kinds whose
 * name it fits.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { createPrivateKey, generateKeyPairSync } from 'node:crypto'
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { archiveIn, makeVersions } from './versions.ts'

const ROOT = join(import.meta.dirname, '../..')
// A file system in memory over the one of the machine: nothing that happens in there is seen outside.
const ENTER = `
ip link set lo up
mount -t tmpfs -o size=4g tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mkdir -p "$1/root/run-update"
mount --bind "$2" "$1/root/run-update"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs tmpfs "$1/root/run"
mount -t tmpfs tmpfs "$1/root/tmp"
mount -t tmpfs tmpfs "$1/root/opt"
mkdir -p "$1/root/srv"
mount -t tmpfs -o size=200m,mode=755 tmpfs "$1/root/srv"
cd "$1/root"
mkdir old-root
pivot_root . old-root
umount --lazy /old-root
exec /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
  DEBIAN_FRONTEND=noninteractive sh -euc 'dpkg -i /run-update/package.deb >/dev/null; exec /usr/lib/device-agent/bin/node /run-update/inside.mjs'
`

/** The same package as a version that is newer than each update. */
function makeNewerPackage(folder: string): void {
  const tree = join(folder, 'newer')
  execFileSync('dpkg-deb', ['-R', join(folder, 'package.deb'), tree])
  for (const [file, old, version] of [
    ['DEBIAN/control', /^Version: .*$/m, 'Version: 9.0.0'],
    ['usr/lib/device-agent/package.json', /"version": ".*"/, '"version": "9.0.0"'],
  ] as const) {
    const path = join(tree, file)
    writeFileSync(path, readFileSync(path, 'utf8').replace(old, version))
  }
  execFileSync('dpkg-deb', ['-Znone', '--build', tree, join(folder, 'newer.deb')])
  rmSync(tree, { recursive: true })
}

if (process.getuid?.() !== 0) throw new Error('only root may make a copy of the system')
const work = mkdtempSync('/var/tmp/device-agent-update-')
try {
  const [, , given, givenKey, pattern = ''] = process.argv
  const keyPath = resolve(givenKey ?? join(work, 'key.pem'))
  if (givenKey === undefined) {
    const { privateKey } = generateKeyPairSync('ed25519')
    const pem = privateKey.export({ type: 'pkcs8', format: 'pem' })
    writeFileSync(keyPath, pem, { mode: 0o600 })
  }
  const packages = resolve(given ?? join(work, 'packages'))
  if (given === undefined) {
    const kinds = ['--arch', 'x64', '--only', 'deb', '--only', 'tar']
    const args = ['packaging/main.ts', ...kinds, '--sign', keyPath, '--output', packages]
    execFileSync(join(ROOT, 'node_modules/.bin/tsx'), args, { cwd: ROOT, stdio: 'inherit' })
  }
  const inside = join(work, 'inside')
  mkdirSync(inside)
  copyFileSync(archiveIn(packages, '_amd64.deb'), join(inside, 'package.deb'))
  makeNewerPackage(inside)
  for (const file of ['inside.mjs', 'cut.mjs']) {
    copyFileSync(join(import.meta.dirname, file), join(inside, file))
  }
  const key = createPrivateKey(readFileSync(keyPath))
  const made = makeVersions(archiveIn(packages, '-linux-x64.tar.gz'), inside, key, pattern)
  const versions = made.map((it) => ({ ...it, archive: it.archive.replace(inside, '/run-update') }))
  writeFileSync(join(inside, 'versions.json'), JSON.stringify(versions))
  const mountPoint = join(work, 'system')
  mkdirSync(mountPoint)
  const flags = ['--net', '--mount', '--pid', '--fork', '--kill-child']
  const { status } = spawnSync(
    'unshare',
    [...flags, 'sh', '-euc', ENTER, 'sh', mountPoint, inside],
    { stdio: 'inherit' },
  )
  process.exitCode = status ?? 1
} finally {
  rmSync(work, { recursive: true, force: true })
}

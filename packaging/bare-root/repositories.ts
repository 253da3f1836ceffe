// tsx packaging/bare-root/repositories.ts FOLDER DEB: apt repositories for inside-apt.sh, with keys that end with this run.
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import process from 'node:process'
import { keyringOf } from '../apt/archive-key.ts'
import { publish } from '../apt/repository.ts'
import { withWorkFolder } from '../program-folder.ts'
import { readManifest, run, sourceDate } from '../project.ts'

const [, , folder, deb] = process.argv
if (folder === undefined || deb === undefined)
  throw new Error('Give a folder and a Debian package.')
const manifest = readManifest()
/** The version of the package, the next version, and a version with new keys alone. */
const versions = ['', '+1', '+2'].map((end) => `${manifest.version}${end}`)
const now = Date.now()

/** The package as the next version, with another template of settings: everything else of it is the same. */
function nextVersion(work: string, version: string): string {
  const tree = join(work, 'tree')
  run('dpkg-deb', ['--raw-extract', deb ?? '', tree])
  for (const [file, old, text] of [
    ['DEBIAN/control', /^Version: .*$/m, `Version: ${version}`],
    ['usr/lib/device-agent/package.json', /"version": ".*"/, `"version": "${version}"`],
    ['usr/share/device-agent/agent.env', /^/, '# With another comment than before.\n'],
  ] as const) {
    const path = join(tree, file)
    writeFileSync(path, readFileSync(path, 'utf8').replace(old, text))
  }
  const path = join(work, basename(deb ?? '').replace(manifest.version, version))
  run('dpkg-deb', ['-Zgzip', '-z1', '--build', tree, path])
  return path
}

function makeKey(name: string): string {
  const made = ['--quick-generate-key', `${name} <${name}@example.com>`, 'ed25519', 'sign', 'never']
  run('gpg', ['--batch', '--passphrase', '', ...made])
  const listed = run('gpg', ['--with-colons', '--list-keys', `${name}@example.com`])
  return /^fpr:+([\dA-F]{40}):/m.exec(listed)?.[1] ?? ''
}

/** The repository `name`, made from the one before. */
async function make(name: string, step: number, keys: string[], debs: string[], from?: string) {
  const path = join(folder ?? '', name)
  if (from !== undefined) cpSync(join(folder ?? '', from), path, { recursive: true })
  const shared = { folder: path, debs, keys, url: 'file:/repository', date: sourceDate() }
  await withWorkFolder((work) =>
    publish({
      ...shared,
      manifest: { ...manifest, version: versions[step] ?? '' },
      work,
      now: now + step * 1_000,
    }),
  )
}

const gpgHome = mkdtempSync(join(tmpdir(), 'device-agent-gpg-'))
process.env.GNUPGHOME = gpgHome
try {
  const [first, next, last] = ['first', 'next', 'last'].map(makeKey) as [string, string, string]
  mkdirSync(folder, { recursive: true })
  await make('first', 0, [first, next], [deb])
  await withWorkFolder((work) =>
    make('next', 1, [first, next], [nextVersion(work, versions[1] ?? '')], 'first'),
  )
  await make('rolled', 2, [next, last], [], 'next')
  await make('foreign', 1, [last], [deb])
  await withWorkFolder((work) =>
    writeFileSync(join(folder, 'first-key.gpg'), keyringOf([first], work)),
  )
} finally {
  run('gpgconf', ['--kill', 'all'])
  rmSync(gpgHome, { recursive: true })
}

// tsx packaging/image/renew-base.ts: writes the newest Debian packages of the image to base.json, with their hashes.
// apt checks the signatures of the mirror. Needs apt and debian-archive-keyring; changes nothing of this system.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { run } from '../project.ts'
import { TARGETS, type Target } from '../target.ts'

const MIRROR = 'http://deb.debian.org'
const RELEASE = '12'
const CODENAME = 'bookworm'
/** SPDX expressions of the files that the image takes, by package. */
const LICENSES: Readonly<Record<string, string>> = {
  'base-files': 'GPL-2.0-or-later',
  'ca-certificates': 'MPL-2.0',
  'gcc-12-base': 'GPL-3.0-or-later WITH GCC-exception-3.1',
  libc6: 'LGPL-2.1-or-later',
  'libgcc-s1': 'GPL-3.0-or-later WITH GCC-exception-3.1',
  'libstdc++6': 'GPL-3.0-or-later WITH GCC-exception-3.1',
}

function newestFor({ debian }: Target, folder: string) {
  for (const name of ['state/lists/partial', 'cache/archives/partial'])
    mkdirSync(join(folder, name), { recursive: true })
  const sources = join(folder, 'sources.list')
  const suites = [
    `debian ${CODENAME}`,
    `debian ${CODENAME}-updates`,
    `debian-security ${CODENAME}-security`,
  ]
  const signed = '[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
  writeFileSync(sources, suites.map((it) => `deb ${signed} ${MIRROR}/${it} main\n`).join(''))
  const settings = {
    'APT::Architecture': debian,
    'APT::Architectures': debian,
    'Acquire::Languages': 'none',
    'Dir::Etc::sourcelist': sources,
    'Dir::Etc::sourceparts': '/dev/null',
    'Dir::State': join(folder, 'state'),
    'Dir::State::status': '/dev/null',
    'Dir::Cache': join(folder, 'cache'),
  }
  const options = Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`])
  run('apt-get', [...options, 'update'])
  const names = Object.keys(LICENSES)
  const listed = run('apt-get', [...options, '--print-uris', 'download', ...names])
  const form =
    /^'[^']+?\/(debian(?:-security)?\/pool\/[^']+)' (\S+?)_(\S+)_\S+\.deb \d+ SHA256:(\S+)$/gm
  const found = [...listed.matchAll(form)].map(
    ([, path = '', name = '', version = '', sha256]) => ({
      name,
      version: decodeURIComponent(version),
      license: LICENSES[name],
      path,
      sha256,
    }),
  )
  if (found.length !== names.length) throw new Error(`apt-get answered something else:\n${listed}`)
  return found
}

const folder = mkdtempSync(join(tmpdir(), 'device-agent-base-'))
try {
  const packages = Object.fromEntries(
    TARGETS.map((target) => [target.debian, newestFor(target, join(folder, target.debian))]),
  )
  const text = JSON.stringify({ mirror: MIRROR, release: RELEASE, packages }, null, 2)
  writeFileSync(join(import.meta.dirname, 'base.json'), `${text}\n`)
  process.stdout.write('packaging/image/base.json has the newest packages\n')
} finally {
  rmSync(folder, { recursive: true })
}

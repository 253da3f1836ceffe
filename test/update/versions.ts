import { execFileSync } from 'node:child_process'
import { generateKeyPairSync, type KeyObject } from 'node:crypto'
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { publicKeyOf, signArchive } from '../../packaging/signing.ts'

/** How an update with it is to end. */
export type Outcome = 'refused' | 'given up' | 'undone' | 'confirmed'

export interface MadeVersion {
  readonly name: string
  readonly version: string
  readonly outcome: Outcome
  readonly archive: string
  /** What stands in its way on this machine, but for itself. */
  readonly hindrance: Hindrance | null
}

/** `cut N`: kill -9 of the start that begins or undoes it, when that has changed the disk N times. */
export type Hindrance =
  | 'full disk'
  | 'no room for the data'
  | 'killed with its judge'
  | `begin cut ${number}`
  | `undo cut ${number}`

interface Kind {
  readonly name: string
  readonly outcome: Outcome
  readonly version?: string
  /** Runs before everything else of the program. */
  readonly always?: string
  /** The same, when it is started as the service. */
  readonly run?: string
  readonly arch?: string
  /** Changes the unpacked program. */
  readonly spoil?: (folder: string) => void
  /** Changes the archive after it was signed. */
  readonly damage?: (archive: string) => void
  readonly isForeign?: boolean
  /** Signed with the key that those before were signed with, after another has taken its place. */
  readonly isOld?: boolean
  /** Has versions after it checked with another key, which signs what follows. */
  readonly hasNewKey?: boolean
  readonly hindrance?: MadeVersion['hindrance']
}

const MIGRATE = `
const { createRequire } = await import('node:module')
const Sqlite = createRequire(import.meta.url)('better-sqlite3')
const database = new Sqlite(process.env.STATE_DIRECTORY + '/agent.db')
database.exec('DELETE FROM tunnels; ALTER TABLE tunnels RENAME TO tunnels_of_tomorrow')
database.close()
process.exit(3)
`

const KINDS: readonly Kind[] = [
  { name: 'signed with another key', outcome: 'refused', isForeign: true },
  {
    name: 'cut short',
    outcome: 'refused',
    damage: (archive) => truncateSync(archive, 20_000_000),
  },
  { name: 'for another machine', outcome: 'refused', arch: 'arm64' },
  {
    name: 'for another machine, though it says otherwise',
    outcome: 'refused',
    // An ELF file of the architecture 183, aarch64.
    spoil: (folder) => replace(join(folder, 'lib/bin/node'), elfHeader(183), 0o755),
  },
  { name: 'older than what runs', outcome: 'refused', version: '0.0.9' },
  { name: 'does not start', outcome: 'refused', always: `throw new Error('broken')` },
  { name: 'no space left', outcome: 'refused', hindrance: 'full disk' },
  { name: 'starts and dies', outcome: 'undone', run: 'process.exit(1)' },
  {
    name: 'hangs, and ignores signals',
    outcome: 'undone',
    run: `process.on('SIGTERM', () => {}); for (;;);`,
  },
  {
    name: 'is never ready',
    outcome: 'undone',
    run: 'setInterval(() => {}, 1_000); await new Promise(() => {})',
  },
  {
    name: 'gets no link',
    outcome: 'undone',
    run: `process.env.SVC_SERVER_ADDR = '127.0.0.1:9'`,
  },
  { name: 'migrates and dies', outcome: 'undone', run: MIGRATE },
  {
    name: 'is linked, and dies then',
    outcome: 'undone',
    run: 'setTimeout(() => process.exit(1), 9_000)',
  },
  {
    name: 'is killed on trial, with its judge',
    outcome: 'undone',
    hindrance: 'killed with its judge',
  },
  {
    name: 'no room for a copy of the data',
    outcome: 'given up',
    hindrance: 'no room for the data',
  },
  ...[4, 12, 24].map(
    (cut): Kind => ({
      name: `power cut after ${cut} steps of the switch`,
      outcome: 'undone',
      hindrance: `begin cut ${cut}`,
    }),
  ),
  ...[0, 1, 2, 4].map(
    (cut): Kind => ({
      name: `migrates and dies; power cut after ${cut} steps back`,
      outcome: 'undone',
      run: MIGRATE,
      hindrance: `undo cut ${cut}`,
    }),
  ),
  {
    name: 'a good one whose status says more',
    outcome: 'confirmed',
    hasNewKey: true,
    spoil: sayMore,
  },
  { name: 'signed with the older key', outcome: 'refused', isOld: true },
  { name: 'starts and dies, after the good one', outcome: 'undone', run: 'process.exit(1)' },
]

/** An archive of each kind, made from a good one, signed as it is meant to be. */
export function makeVersions(
  good: string,
  folder: string,
  key: KeyObject,
  pattern: string,
): MadeVersion[] {
  const base = join(folder, 'base')
  mkdirSync(base)
  execFileSync('tar', ['-xzf', good, '-C', base, '--strip-components=1'])
  const { privateKey: newKey } = generateKeyPairSync('ed25519')
  const changed = KINDS.findIndex((kind) => kind.hasNewKey)
  return KINDS.flatMap((kind, index) => {
    if (!new RegExp(pattern).test(kind.name)) return []
    const keys = { signing: index > changed && !kind.isOld ? newKey : key, next: newKey }
    return makeVersion(kind, index, { base, folder, keys })
  })
}

interface Surroundings {
  readonly base: string
  readonly folder: string
  readonly keys: { readonly signing: KeyObject; readonly next: KeyObject }
}

function makeVersion(kind: Kind, index: number, { base, folder, keys }: Surroundings): MadeVersion {
  const { name, outcome, arch = 'x64', hindrance = null } = kind
  const version = kind.version ?? `2.0.${index}`
  const tree = join(folder, 'tree')
  execFileSync('cp', ['-a', '--link', base, tree])
  const manifest = join(tree, 'lib/package.json')
  const text = readFileSync(manifest, 'utf8').replace(/"version": ".*"/, `"version": "${version}"`)
  replace(manifest, text)
  const main = join(tree, 'lib/dist/main.js')
  renameSync(main, join(tree, 'lib/dist/real-main.js'))
  const { always = '', run = '' } = kind
  writeFileSync(
    main,
    `${always}\nif (process.argv[2] === 'run') {\n${run}\n}\nawait import('./real-main.js')\n`,
  )
  if (kind.hasNewKey) replace(join(tree, 'lib/update-keys.pem'), publicKeyOf(keys.next))
  kind.spoil?.(tree)
  const archive = join(folder, `device-agent-${version}-linux-${arch}.tar.gz`)
  const unpacked = join(folder, 'tree.tar')
  execFileSync('tar', ['-cf', unpacked, '-C', folder, 'tree'])
  // What is thrown away in a minute is not worth compressing.
  writeFileSync(archive, gzipSync(readFileSync(unpacked), { level: 0 }))
  rmSync(unpacked)
  const signer = kind.isForeign ? generateKeyPairSync('ed25519').privateKey : keys.signing
  signArchive(archive, { name: 'device-agent', version, arch }, signer)
  kind.damage?.(archive)
  rmSync(tree, { recursive: true })
  return { name, version, outcome, archive, hindrance }
}

/** Its files are links of others: what is written there must be a new one. */
function replace(path: string, content: string | Buffer, mode = 0o644): void {
  rmSync(path)
  writeFileSync(path, content, { mode })
}

/** As a later version will: one more line in the answer of `/status`. */
function sayMore(tree: string): void {
  const dist = join(tree, 'lib/dist')
  const changed = readdirSync(dist).filter((file) => {
    if (!file.endsWith('.js')) return false
    const text = readFileSync(join(dist, file), 'utf8')
    const more = text.replace(/\bdamaged_rows:(?=[^{}]{0,80}\.map\()/, 'of_tomorrow:1,$&')
    if (more === text) return false
    replace(join(dist, file), more)
    return true
  })
  if (changed.length !== 1) throw new Error(`the answer of /status is made in ${changed}`)
}

function elfHeader(machine: number): Buffer {
  const header = Buffer.alloc(64)
  header.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1])
  header.writeUInt16LE(2, 16)
  header.writeUInt16LE(machine, 18)
  return header
}

export function archiveIn(folder: string, ending: string): string {
  const name = readdirSync(folder).find((file) => file.endsWith(ending))
  if (name === undefined) throw new Error(`there is no *${ending} in ${folder}`)
  return join(folder, name)
}

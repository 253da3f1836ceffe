import { existsSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import type { Secret } from '../../base/secret.ts'
import type { PostgresServer } from '../../gateway/cluster/postgres/postgres-session.ts'
import { plainLine } from '../local/terminal-text.ts'
import { readVersion } from '../version.ts'
import { isReadableByOthers, type Manifest, refusalOf, writeBackup } from './backup-file.ts'
import { type Role, readData, readKept } from './roles.ts'
import { readSettings, type SettingsFile } from './settings-files.ts'

export interface BackupRequest {
  readonly role: Role
  /** The data directory. */
  readonly folder: string
  readonly path: string
  readonly passphrase: Secret | undefined
  /** PostgreSQL of several gateways, which has the records. */
  readonly server?: PostgresServer | undefined
  /** Root folder of the machine, for the settings of an installed service. Undefined: no settings. */
  readonly settingsRoot?: string | undefined
}

/** Makes a backup of a data directory, also while its service runs. Throws a StartError. */
export async function makeBackup(request: BackupRequest): Promise<Manifest> {
  const { role, folder, path, passphrase, server, settingsRoot } = request
  // Its own database is from before it joined.
  if (role.name === 'gateway' && !server && existsSync(join(folder, 'node.json'))) {
    throw new StartError(
      `The gateway in ${folder} belongs to a cluster, so PostgreSQL has its records. Set GATEWAY_DATABASE_URL.`,
    )
  }
  const data = server ? await readSite(role, folder, server) : await readData(role, folder)
  const deviceId = data.get('device-id')?.toString('utf8').trim() ?? null
  const settings = settingsOf(role, settingsRoot)
  const files = new Map([
    ...Array.from(data, ([name, content]) => [`data/${name}`, content] as const),
    ...Array.from(settings, ([name, { content }]) => [name, content] as const),
  ])
  const modes = new Map(Array.from(settings, ([name, { mode }]) => [name, mode]))
  const origin = {
    program: readVersion(),
    role: role.name,
    made_at: new Date().toISOString(),
    host: hostname(),
    device_id: deviceId,
    cluster: server !== undefined,
  }
  return writeBackup(path, origin, files, passphrase, modes)
}

function settingsOf({ name }: Role, root: string | undefined): Map<string, SettingsFile> {
  if (root === undefined) return new Map()
  try {
    return readSettings(name, root)
  } catch (error) {
    throw refusalOf('Cannot read the settings of the service', error)
  }
}

/** Records and secrets of the site, with the files that only this gateway has. */
async function readSite(
  role: Role,
  folder: string,
  server: PostgresServer,
): Promise<Map<string, Buffer>> {
  const { copySite } = await import('../../gateway/cluster/site-copy.ts')
  const { database, files } = await copySite(server)
  const own = readKept(role, folder)
  // The secrets of the site are newer than files that were left from before joining.
  const all = new Map([[role.database, database], ...own, ...files])
  return new Map([...all].filter(([name]) => name === role.database || role.kept.test(name)))
}

/** The output for people. */
export function describeBackup(path: string, manifest: Manifest, isEncrypted: boolean): string {
  const isOpen = isReadableByOthers(path)
  const care = isEncrypted
    ? 'It is encrypted. Without the passphrase it cannot be restored.'
    : isOpen
      ? 'Other users can read it, because its file system has no file modes, and it contains keys and tokens: use --encrypt.'
      : 'It contains keys and tokens: keep it private, or use --encrypt.'
  return `Wrote ${path}: ${describeContent(manifest)}. Read back and checked.\n${care}\n`
}

export function describeContent({ role, device_id, made_at, files, program }: Manifest): string {
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0)
  const name = device_id === null ? role : `${role} ${device_id}`
  // The file may be forged.
  return plainLine(
    `${name}, ${made_at}, ${files.length} files, ${Math.ceil(bytes / 1024)} KiB, version ${program}`,
  )
}

import { existsSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import type { Secret } from '../../base/secret.ts'
import type { PostgresServer } from '../../gateway/cluster/postgres/postgres-session.ts'
import { plainLine } from '../local/terminal-text.ts'
import { readVersion } from '../version.ts'
import { isReadableByOthers, type Manifest, writeBackup } from './backup-file.ts'
import { type Role, readData, readKept } from './roles.ts'

export interface BackupRequest {
  readonly role: Role
  /** The data directory. */
  readonly folder: string
  readonly path: string
  readonly passphrase: Secret | undefined
  /** PostgreSQL of several gateways, which has the records. */
  readonly server?: PostgresServer | undefined
}

/** Makes a backup of a data directory, also while its service runs. Throws a StartError. */
export async function makeBackup(request: BackupRequest): Promise<Manifest> {
  const { role, folder, path, passphrase, server } = request
  // Its own database is from before it joined.
  if (role.name === 'gateway' && !server && existsSync(join(folder, 'node.json'))) {
    throw new StartError(
      `The gateway in ${folder} belongs to a cluster, so PostgreSQL has its records. Set GATEWAY_DATABASE_URL.`,
    )
  }
  const data = server ? await readSite(role, folder, server) : await readData(role, folder)
  const deviceId = data.get('device-id')?.toString('utf8').trim() ?? null
  const files = new Map([...data].map(([name, content]) => [`data/${name}`, content]))
  const origin = {
    program: readVersion(),
    role: role.name,
    made_at: new Date().toISOString(),
    host: hostname(),
    device_id: deviceId,
    cluster: server !== undefined,
  }
  return writeBackup(path, origin, files, passphrase)
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

import { hostname } from 'node:os'
import type { Secret } from '../../base/secret.ts'
import { readVersion } from '../version.ts'
import { isReadableByOthers, type Manifest, writeBackup } from './backup-file.ts'
import { type Role, readData } from './roles.ts'

export interface BackupRequest {
  readonly role: Role
  /** The data directory. */
  readonly folder: string
  readonly path: string
  readonly passphrase: Secret | undefined
}

/** Makes a backup of a data directory, also while its service runs. Throws a StartError. */
export async function makeBackup({
  role,
  folder,
  path,
  passphrase,
}: BackupRequest): Promise<Manifest> {
  const data = await readData(role, folder)
  const deviceId = data.get('device-id')?.toString('utf8').trim() ?? null
  const files = new Map([...data].map(([name, content]) => [`data/${name}`, content]))
  const origin = {
    program: readVersion(),
    role: role.name,
    made_at: new Date().toISOString(),
    host: hostname(),
    device_id: deviceId,
    cluster: false,
  }
  return writeBackup(path, origin, files, passphrase)
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
  return `${name}, ${made_at}, ${files.length} files, ${Math.ceil(bytes / 1024)} KiB, version ${program}`
}

import { readFileSync, statSync } from 'node:fs'
import { StartError } from '../../base/app-error.ts'

/**
 * Text for a file that the service may not read, with the command that mends it. The data directory belongs to
 * the user of the service.
 */
export function unreadableText(path: string, folder: string): string {
  return `The service cannot read ${path}. Give the file to the user of the service: sudo chown --reference=${folder} ${path} && sudo chmod 600 ${path}`
}

/** The same as an error. Undefined if permissions are not the reason. */
export function unreadableError(
  path: string,
  folder: string,
  cause: unknown,
): StartError | undefined {
  if ((cause as NodeJS.ErrnoException).code !== 'EACCES') return undefined
  return new StartError(unreadableText(path, folder), { cause })
}

/** Throws a StartError if this process may not read a file. Other problems are found at its use. */
export function requireReadable(path: string, folder: string): void {
  try {
    readFileSync(path)
  } catch (cause) {
    const refused = unreadableError(path, folder, cause)
    if (refused) throw refused
  }
}

/** Whether the owner of the data directory may read a file, as far as its mode shows. For commands of root. */
export function isReadableByService(path: string, folder: string): boolean {
  const [file, data] = [path, folder].map((it) => statSync(it, { throwIfNoEntry: false }))
  if (!file || !data || data.uid === 0) return true
  if (file.uid === data.uid) return (file.mode & 0o400) !== 0
  return (file.mode & (file.gid === data.gid ? 0o040 : 0o004)) !== 0
}

/** Files that the settings of a shared database name. */
export function databaseFiles({
  passwordPath,
  address,
}: {
  readonly passwordPath: string | undefined
  readonly address: { readonly caPath?: string | undefined }
}): string[] {
  return [passwordPath, address.caPath].filter((path) => path !== undefined)
}

import {
  chmodSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { makeFolder, syncFolder, writeFileDurably } from '../../base/file.ts'
import type { Backup } from './backup-file.ts'
import type { RoleName } from './roles.ts'

/** Folder in the backup, which stands for the root of the machine. */
const SETTINGS = 'settings/'
const MAX_BYTES = 1024 * 1024

/**
 * Files in these folders belong to the settings of an installed service. The keys of updates do not: whoever
 * makes a backup must not choose whose updates a device accepts.
 */
const PLACES: Readonly<Record<RoleName, readonly { folder: string; names: RegExp }[]>> = {
  agent: [
    {
      folder: 'etc/device-agent',
      names: /^(?!update-keys\.pem$)(?!.*\.before-restore-)\w[\w.-]*$/,
    },
    { folder: 'etc/credstore', names: /^(?:svc-authtoken|api-token)$/ },
  ],
  gateway: [{ folder: 'etc/device-gateway', names: /^(?!.*\.before-restore-)\w[\w.-]*$/ }],
}

/** Whether a path in a backup is a settings file of the role. */
export function isSettings(role: RoleName, path: string): boolean {
  return PLACES[role].some(({ folder, names }) => {
    const start = `${SETTINGS}${folder}/`
    return path.startsWith(start) && names.test(path.slice(start.length))
  })
}

export interface SettingsFile {
  readonly content: Buffer
  /** Permissions, such as 0o600. */
  readonly mode: number
}

/** Reads the settings of an installed service, by their paths in the backup. Throws the system's error. */
export function readSettings(role: RoleName, root: string): Map<string, SettingsFile> {
  const files = new Map<string, SettingsFile>()
  for (const { folder, names } of PLACES[role]) {
    const place = join(root, folder)
    for (const name of existsSync(place) ? readdirSync(place).sort() : []) {
      const path = join(place, name)
      const { mode, size } = lstatSync(path)
      // A link could lead to any file of the machine.
      const isPlain = (mode & 0o170_000) === 0o100_000
      if (!isPlain || size > MAX_BYTES || !names.test(name)) continue
      files.set(`${SETTINGS}${folder}/${name}`, {
        content: readFileSync(path),
        mode: mode & 0o777,
      })
    }
  }
  return files
}

/** Paths of existing settings files that differ from those in the backup. */
export function differingSettings({ files }: Backup, root: string): string[] {
  return settingsIn(files).flatMap(([path, content]) => {
    const place = placeOf(path, root)
    return existsSync(place) && !isEqual(place, content) ? place : []
  })
}

/**
 * Writes the settings of a backup with their permissions. A file that differs is moved aside, to its name with
 * `aside`. Returns the paths of all files. Throws the system's error.
 */
export function writeSettings({ manifest, files }: Backup, root: string, aside: string): string[] {
  const modes = new Map(manifest.files.map(({ path, mode = 0o600 }) => [path, mode]))
  return settingsIn(files).map(([path, content]) => {
    const place = placeOf(path, root)
    if (existsSync(place) && !isEqual(place, content)) renameSync(place, `${place}.${aside}`)
    makeFolder(dirname(place), dirname(place).endsWith('/credstore') ? 0o700 : 0o755)
    writeFileDurably(place, content)
    chmodSync(place, modes.get(path) ?? 0o600)
    syncFolder(dirname(place))
    return place
  })
}

const settingsIn = (files: Backup['files']) =>
  [...files].filter(([path]) => path.startsWith(SETTINGS))

const placeOf = (path: string, root: string) => join(root, path.slice(SETTINGS.length))

function isEqual(place: string, content: Buffer): boolean {
  return statSync(place).size === content.length && readFileSync(place).equals(content)
}

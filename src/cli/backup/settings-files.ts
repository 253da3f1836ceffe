import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { makeFolder, syncFolder, writeFileDurably } from '../../base/file.ts'
import { type Backup, refusalOf } from './backup-file.ts'
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

/** Settings of a backup beside their places, on disk. */
export interface StagedSettings {
  /** Paths of all files. */
  readonly places: readonly string[]
  /** Puts the files in their places. Throws a StartError with the commands that finish this. */
  finish(): void
  /** Removes the files again. */
  discard(): void
}

/**
 * Writes the settings of a backup with their permissions beside their places. A file that differs is also kept
 * by its name with `aside`. `finish` only renames: after a power cut, each place has the old or the new file.
 * Throws the system's error, and changes nothing then.
 */
export function stageSettings(
  { manifest, files }: Backup,
  root: string,
  aside: string,
): StagedSettings {
  const modes = new Map(manifest.files.map(({ path, mode = 0o600 }) => [path, mode]))
  const staged: { readonly from: string; readonly place: string }[] = []
  const made: string[] = []
  const discard = () => {
    for (const path of made) rmSync(path, { force: true })
  }
  const finish = () => {
    const open = [...staged]
    try {
      for (const { from, place } of staged) {
        renameSync(from, place)
        syncFolder(dirname(place))
        open.shift()
      }
    } catch (error) {
      const commands = open.map(({ from, place }) => `mv ${from} ${place}`).join(' && ')
      throw refusalOf(
        `The data is restored, but not ${open.map(({ place }) => place).join(', ')}. To finish, fix the cause and run: ${commands}. Cause`,
        error,
      )
    }
  }
  try {
    for (const [path, content] of settingsIn(files)) {
      const place = placeOf(path, root)
      const folder = dirname(place)
      makeFolder(folder, folder.endsWith('/credstore') ? 0o700 : 0o755)
      // Backups and services ignore names with a dot.
      const from = join(folder, `.${basename(place)}.restored`)
      made.push(from)
      writeFileDurably(from, content)
      chmodSync(from, modes.get(path) ?? 0o600)
      if (existsSync(place) && !isEqual(place, content)) {
        made.push(`${place}.${aside}`)
        keepAside(place, `${place}.${aside}`)
      }
      syncFolder(folder)
      staged.push({ from, place })
    }
  } catch (error) {
    discard()
    throw error
  }
  return { places: staged.map(({ place }) => place), finish, discard }
}

/** Gives a file a second name. It keeps the first. */
function keepAside(place: string, aside: string): void {
  try {
    linkSync(place, aside)
  } catch (error) {
    // Some file systems have no links.
    if (!['EPERM', 'ENOTSUP', 'EMLINK'].includes(String((error as NodeJS.ErrnoException).code))) {
      throw error
    }
    writeFileDurably(aside, readFileSync(place), statSync(place).mode & 0o777)
  }
}

const settingsIn = (files: Backup['files']) =>
  [...files].filter(([path]) => path.startsWith(SETTINGS))

const placeOf = (path: string, root: string) => join(root, path.slice(SETTINGS.length))

function isEqual(place: string, content: Buffer): boolean {
  return statSync(place).size === content.length && readFileSync(place).equals(content)
}

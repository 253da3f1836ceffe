import { existsSync, mkdirSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import { makeFolder, writeFileDurably } from '../../base/file.ts'
import type { Logger } from '../../base/logger.ts'
import type { PostgresServer } from '../../gateway/cluster/postgres/postgres-session.ts'
import { giveToFolderOwner, lockFolder } from '../../store/data-folder.ts'
import { asideName, replaceData } from '../../store/replaced-data.ts'
import { checkSnapshot, type SnapshotSchema, writeSnapshot } from '../../store/snapshot.ts'
import { plainLine } from '../local/terminal-text.ts'
import { type Backup, refusalOf } from './backup-file.ts'
import { keepOwnSettings } from './own-settings.ts'
import { ownNames, type Role } from './roles.ts'
import {
  differingSettings,
  isSettings,
  type StagedSettings,
  stageSettings,
} from './settings-files.ts'

const DATA = 'data/'

export interface RestoreRequest {
  readonly role: Role
  /** The data directory. */
  readonly folder: string
  readonly backup: Backup
  /** Moves existing data aside. */
  readonly replace: boolean
  /** Empty PostgreSQL database of several gateways, which gets the records. */
  readonly server?: PostgresServer | undefined
  /** Root folder of the machine, for the settings of an installed service. Undefined: they are left out. */
  readonly settingsRoot?: string | undefined
  /** Reports the records that PostgreSQL has taken. */
  readonly onProgress?: (done: number, of: number) => void
  readonly log: Logger
}

/** Checks that a backup can be restored here by this program. Writes nothing. Throws a StartError. */
export async function checkBackup(
  role: Role,
  { manifest, files }: Backup,
): Promise<SnapshotSchema> {
  if (manifest.role !== role.name) {
    const command = manifest.role === 'agent' ? 'restore' : 'gateway restore'
    throw new StartError(
      `This is a backup of ${manifest.role === 'agent' ? 'an agent' : 'a gateway'}. Use device-agent ${command}.`,
    )
  }
  for (const path of files.keys()) {
    const name = path.startsWith(DATA) ? path.slice(DATA.length) : ''
    const isData = name === role.database || role.kept.test(name)
    if (!isData && !isSettings(role.name, path)) {
      throw new StartError(
        `The backup contains ${plainLine(path)}, which is no file of this program.`,
      )
    }
  }
  const database = files.get(`${DATA}${role.database}`)
  if (!database) throw new StartError(`The backup contains no ${role.database}.`)
  const schema = await role.schema()
  checkSnapshot(database, schema, `${role.database} in the backup`)
  return schema
}

export interface Restored {
  /** Folder with the previous data; undefined if there was none. */
  readonly aside: string | undefined
  /** Paths of the settings files. */
  readonly settings: readonly string[]
  /** Names of settings that a server of a cluster keeps. */
  readonly keptSettings: readonly string[]
}

/**
 * Restores a backup into the data directory, all or nothing, and then its settings. These are on disk before the
 * data is replaced. Throws a StartError, which says what was done.
 */
export async function restoreBackup(request: RestoreRequest): Promise<Restored> {
  const { role, folder, replace, server, settingsRoot, log } = request
  const { onProgress = () => {} } = request
  const schema = await checkBackup(role, request.backup)
  if (request.backup.manifest.cluster && !server) {
    throw new StartError(
      'This is a backup of a cluster. Set GATEWAY_DATABASE_URL to an empty PostgreSQL database.',
    )
  }
  const { backup, kept: keptSettings } =
    server && settingsRoot !== undefined
      ? keepOwnSettings(request.backup, settingsRoot)
      : { backup: request.backup, kept: [] }
  if (settingsRoot !== undefined) giveToService(folder)
  const lock = lockFolder({ folder, owner: role.name, log })
  try {
    const old = ownNames(role, folder)
    if (old.length > 0 && !replace) {
      throw new StartError(
        `${folder} already contains data. Add --replace to move it aside, or set --data-dir to another directory.`,
      )
    }
    const [differing] = settingsRoot === undefined ? [] : differingSettings(backup, settingsRoot)
    if (differing !== undefined && !replace) {
      throw new StartError(
        `${differing} differs from the backup. Add --replace to move it aside, or set --data-dir to restore only data.`,
      )
    }
    const aside = asideName(folder, 'before-restore', systemClock.now())
    const fill = async (target: string) => {
      writeFiles(role, backup, target, schema)
      if (!server) return
      const { importSite } = await import('../../gateway/cluster/migrate-site.ts')
      await importSite({ folder: target, server, onProgress, log, clock: systemClock })
    }
    const staged = settingsRoot === undefined ? undefined : stage(backup, settingsRoot, aside)
    try {
      await replaceData({ folder, old, aside, fill })
    } catch (error) {
      staged?.discard()
      throw error
    }
    staged?.finish()
    const settings = staged?.places ?? []
    return { aside: old.length > 0 ? join(folder, aside) : undefined, settings, keptSettings }
  } catch (error) {
    throw refusalOf(`Cannot restore into ${folder}`, error)
  } finally {
    lock.release()
  }
}

/**
 * Creates the data directory. In the state directory, it belongs to the user of the service. systemd changes the
 * owner of a state directory only as a whole, so a folder of root would stay closed to the service.
 */
function giveToService(folder: string): void {
  try {
    makeFolder(folder)
    if (statSync(folder).uid === 0) giveToFolderOwner(folder)
  } catch (error) {
    throw refusalOf(`Cannot create or open the data directory ${folder}`, error)
  }
}

function stage(backup: Backup, root: string, aside: string): StagedSettings {
  try {
    return stageSettings(backup, root, aside)
  } catch (error) {
    throw refusalOf(
      `Cannot write the settings below ${join(root, 'etc')}. Nothing was changed`,
      error,
    )
  }
}

function writeFiles(role: Role, { files }: Backup, target: string, schema: SnapshotSchema): void {
  for (const [path, content] of files) {
    if (!path.startsWith(DATA)) continue
    const name = path.slice(DATA.length)
    const place = join(target, name)
    if (!existsSync(dirname(place))) mkdirSync(dirname(place), { mode: 0o700 })
    if (name === role.database) writeSnapshot(content, place, { ...schema, clock: systemClock })
    else writeFileDurably(place, content)
  }
}

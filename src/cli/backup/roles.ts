import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import { type SnapshotSchema, takeSnapshot } from '../../store/snapshot.ts'
import { type Files, refusalOf } from './backup-file.ts'

export type RoleName = 'agent' | 'gateway'

/** What a backup of an agent or of a gateway consists of. */
export interface Role {
  readonly name: RoleName
  /** Name of the database in the data directory. */
  readonly database: string
  /** Service that runs it. */
  readonly unit: string
  /** Files beside the database, with `/` between folders. */
  readonly kept: RegExp
  /** Folders with such files. */
  readonly folders: readonly string[]
  /** Files that are made again, or describe only a moment. A restore moves them aside, too. */
  readonly remade: RegExp
  readonly schema: () => Promise<SnapshotSchema>
}

export const ROLES: Readonly<Record<RoleName, Role>> = {
  agent: {
    name: 'agent',
    database: 'agent.db',
    unit: 'device-agent',
    kept: /^(?:device-id|api-token|authtoken|agent\.db\.losses)$/,
    folders: [],
    remade: /^agent\.db/,
    schema: async () => {
      const { AGENT_APPLICATION_ID, AGENT_MIGRATIONS } = await import('../../api/agent-database.ts')
      return { applicationId: AGENT_APPLICATION_ID, migrations: AGENT_MIGRATIONS }
    },
  },
  gateway: {
    name: 'gateway',
    database: 'gateway.db',
    unit: 'device-gateway',
    kept: /^(?:ca\.(?:key|pem)|login\.key|secrets\.key|server\.pem|api-key|authtoken|acme-account\.key|gateway\.db\.losses|certificates\/\w[\w.-]*\.pem)$/,
    folders: ['certificates'],
    remade:
      /^(?:(?:gateway|replica)\.db|node\.json|names\.json|limits\.json|\w+\.(?:key|pem)\.before-joining)/,
    schema: async () => {
      const { GATEWAY_APPLICATION_ID, GATEWAY_MIGRATIONS } = await import(
        '../../gateway/gateway-database.ts'
      )
      return { applicationId: GATEWAY_APPLICATION_ID, migrations: GATEWAY_MIGRATIONS }
    },
  },
}

/** Names in a data directory that belong to the role: a restore replaces them. */
export function ownNames(role: Role, folder: string): string[] {
  return readdirSync(folder).filter((name) => {
    return role.kept.test(name) || role.remade.test(name) || role.folders.includes(name)
  })
}

const MAX_TRIES = 5

/**
 * Reads the database and the files beside it as of one moment, also while the service runs. Throws a StartError.
 */
export async function readData(role: Role, folder: string): Promise<Map<string, Buffer>> {
  const schema = await role.schema()
  requireDatabase(role, folder)
  try {
    // A token that is rotated meanwhile is in the database and in a file.
    let before = readKept(role, folder)
    for (let tries = 1; ; tries += 1) {
      const database = takeSnapshot(join(folder, role.database), schema)
      const after = readKept(role, folder)
      if (isSame(before, after)) return new Map([[role.database, database], ...after])
      if (tries === MAX_TRIES) throw new StartError('The data keep changing. Try again.')
      before = after
    }
  } catch (error) {
    throw refusalOf(`Cannot read the data in ${folder}`, error)
  }
}

function requireDatabase(role: Role, folder: string): void {
  try {
    statSync(join(folder, role.database))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') {
      throw refusalOf(`Cannot read the data in ${folder}`, error)
    }
    throw new StartError(
      `${folder} contains no data of ${role.name === 'agent' ? 'an agent' : 'a gateway'}. Set --data-dir to its data directory.`,
    )
  }
}

/** Reads the files beside the database. Plain files alone: a link could lead out of the folder. */
export function readKept(role: Role, folder: string): Map<string, Buffer> {
  const files = new Map<string, Buffer>()
  for (const inside of ['', ...role.folders]) {
    for (const { path, name } of plainFilesIn(join(folder, inside))) {
      const key = inside === '' ? name : `${inside}/${name}`
      if (role.kept.test(key)) files.set(key, readFileSync(path))
    }
  }
  return files
}

function plainFilesIn(folder: string): { readonly path: string; readonly name: string }[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ name }) => ({ path: join(folder, name), name }))
      .sort((a, b) => (a.name < b.name ? -1 : 1))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}

function isSame(before: Files, after: Files): boolean {
  return (
    before.size === after.size &&
    [...before].every(([path, content]) => after.get(path)?.equals(content))
  )
}

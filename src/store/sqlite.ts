import { createRequire } from 'node:module'
import process from 'node:process'
import type BetterSqlite from 'better-sqlite3'
import { StartError } from '../base/app-error.ts'

export type { Database as Connection, Statement } from 'better-sqlite3'

/** The part of `process.versions` that decides: Node's version, and that of its Node-API. */
export interface NodeVersions {
  readonly node: string
  readonly napi?: string | undefined
}

/** A package that is better-sqlite3, under the name that package.json gives it. */
interface Package {
  readonly name: string
  readonly major: number
}

/**
 * The better-sqlite3 for a Node; throws a StartError where there is none. Loading the other one
 * is no error that could be caught: 13 is built for Node-API 10 and ends an older Node with
 * SIGSEGV, 12 is built for one V8 and aborts on Node 24.19 and newer.
 */
export function packageFor({ node, napi }: NodeVersions): Package {
  if (Number(napi) >= 10) return { name: 'better-sqlite3', major: 13 }
  if (node.startsWith('20.')) return { name: 'better-sqlite3-node20', major: 12 }
  throw new StartError(
    `Node.js ${node} is not supported. Use Node.js 24 or newer, 22.14 or newer, or 20.19 or newer.`,
  )
}

/** Loads it, native part included; throws a StartError when what is installed does not fit. */
export function loadSqlite(versions: NodeVersions, load: NodeJS.Require): typeof BetterSqlite {
  const { name, major } = packageFor(versions)
  try {
    const Sqlite: typeof BetterSqlite = load(name)
    const { version } = load(`${name}/package.json`)
    if (!version.startsWith(`${major}.`)) throw new Error(`${name} is version ${version}`)
    // The native part is loaded with the first database.
    new Sqlite(':memory:').close()
    return Sqlite
  } catch (error) {
    throw new StartError(
      `Cannot load SQLite on Node.js ${versions.node} (${reasonOf(error)}). Install device-agent ` +
        'again with this Node.js version. In a clone, run `npm run setup`.',
      { cause: error },
    )
  }
}

/** The first sentence of an error of the loader, without the paths that it tried. */
function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  const [first = message] = message.split(/\. |\nRequire stack/)
  return first.replace(/\s+/g, ' ')
}

/** The library; whoever imports this module on a Node without one gets a StartError. */
export const Sqlite = loadSqlite(process.versions, createRequire(import.meta.url))
/** What the library throws, with SQLite's result code as `code`. */
export const SqliteError = Sqlite.SqliteError

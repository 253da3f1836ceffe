import { createHash } from 'node:crypto'
import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs'
import { arch, cpus, freemem, loadavg, platform, release, tmpdir, totalmem, uptime } from 'node:os'
import { basename, join } from 'node:path'
import process from 'node:process'
import { StartError } from '../../base/app-error.ts'
import { type Connection, Sqlite } from '../../store/sqlite.ts'
import type { CommandContext } from '../command-context.ts'
import type { SeenAgent } from '../doctor/agent-checks.ts'
import { findingText, summary } from '../doctor/doctor.ts'
import type { Examination } from '../doctor/examination.ts'
import type { Finding } from '../doctor/finding.ts'
import { type LogPlace, openLog } from '../local/open-log.ts'
import { readVersion } from '../version.ts'
import { knownSecrets, Scrubber } from './scrubber.ts'
import { shownSettings } from './shown-settings.ts'

/** A damaged index alone can be worth thousands of lines. */
const MAX_PROBLEMS = 20
const BUSY_MS = 2_000
const MAX_FILES = 200

/** Facts about a database, without its content. */
interface DatabaseCheck {
  readonly file: string
  readonly result: 'ok' | 'damaged' | 'unreadable'
  readonly problems: readonly string[]
  readonly sqlite?: string
  readonly journal_mode?: unknown
  readonly rows?: Readonly<Record<string, number>>
}

/**
 * Lists the files of a data directory with sizes and rights. Missing, large and readable files show there.
 */
function listFolder(folder: string): object[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
      .slice(0, MAX_FILES)
      .map((entry) => {
        const { size, mode, mtime, uid, gid } = statSync(join(folder, entry.name))
        const kind = entry.isFile() ? 'file' : entry.isDirectory() ? 'folder' : 'other'
        const rights = (mode & 0o777).toString(8)
        return { name: entry.name, kind, bytes: size, mode: rights, uid, gid, changed_at: mtime }
      })
  } catch (error) {
    return [{ problem: (error as NodeJS.ErrnoException).code ?? String(error) }]
  }
}

/** Checks a database; undefined if it does not exist. */
function checkDatabase(path: string, isInUse: boolean): DatabaseCheck | undefined {
  if (!existsSync(path)) return undefined
  const file = basename(path)
  try {
    return { file, ...readDatabase(path, isInUse, examine) }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    return { file, result: 'unreadable', problems: [code ?? message] }
  }
}

/** The policies of the tunnels in a database, so that their secrets can be masked. */
function policiesIn(path: string, isInUse: boolean): string[] {
  try {
    return readDatabase(path, isInUse, (database) =>
      database
        .prepare('SELECT policy FROM tunnels')
        .pluck()
        .all()
        .filter((text) => typeof text === 'string'),
    )
  } catch {
    return []
  }
}

/**
 * Reads a database in place while its agent runs, else a copy: opening a database after a crash changes it.
 */
function readDatabase<T>(path: string, isInUse: boolean, read: (database: Connection) => T): T {
  if (isInUse) return readAt(path, read)
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-bundle-'))
  try {
    const copy = join(folder, basename(path))
    for (const suffix of ['', '-wal']) {
      if (existsSync(path + suffix)) copyFileSync(path + suffix, copy + suffix)
    }
    return readAt(copy, read)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function readAt<T>(path: string, read: (database: Connection) => T): T {
  const database = new Sqlite(path, { readonly: true, fileMustExist: true, timeout: BUSY_MS })
  try {
    return read(database)
  } finally {
    database.close()
  }
}

function examine(database: Connection): Omit<DatabaseCheck, 'file'> {
  const found = database.pragma(`integrity_check(${MAX_PROBLEMS})`) as object[]
  const problems = found.flatMap((row) => Object.values(row).map(String))
  const isSound = problems.length === 1 && problems[0] === 'ok'
  return {
    result: isSound ? 'ok' : 'damaged',
    problems: isSound ? [] : problems,
    sqlite: String(database.prepare('SELECT sqlite_version()').pluck().get()),
    journal_mode: database.pragma('journal_mode', { simple: true }),
    rows: isSound ? countRows(database) : {},
  }
}

function countRows(database: Connection): Record<string, number> {
  const names = database
    .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    .pluck()
    .all() as string[]
  return Object.fromEntries(
    names.map((name) => [
      name,
      Number(
        database
          .prepare(`SELECT count(*) FROM "${name.replaceAll('"', '""')}"`)
          .pluck()
          .get(),
      ),
    ]),
  )
}

const LOG = 'log.jsonl'
const LOG_LINES = 5_000
const MAX_LOG_BYTES = 8 * 1024 * 1024
const LOG_WITHIN_MS = 10_000
const README = `Diagnostic data of a device, collected by device-agent support-bundle.

  doctor.txt     results of all checks as text; doctor.json is the machine-readable form
  status.json    status of the running agent and its tunnels, without policies
  settings.json  each setting with its value and source; secrets are replaced by [secret]
  versions.json  versions of programs, system and hardware
  database.json  integrity and row counts of the databases; files in the data directory
  log.jsonl      latest log lines
  problems.txt   data that could not be collected, if any

Tokens, keys, passwords and policies are left out or replaced by [secret]. Names, addresses and log
lines are included. Review the archive before you share it.
`

/** A file of the bundle. */
export interface BundlePart {
  readonly name: string
  readonly text: string
}

/** Collects all parts. A part that cannot be read contains the reason. */
export async function gatherParts(
  context: CommandContext,
  examination: Examination,
  place: LogPlace,
): Promise<BundlePart[]> {
  const { config, findings: looks, seen, surroundings } = examination
  const dataDir = config?.agent.dataDir
  const isRunning = 'status' in seen
  const problems: string[] = []
  const databases = dataDir ? [join(dataDir, 'agent.db')] : []
  if (config) databases.push(join(config.gateway.dataDir, 'gateway.db'))
  const ofTunnels = isRunning
    ? seen.tunnels.map(({ policy }) => textOf(policy))
    : databases.slice(0, 1).flatMap((path) => policiesIn(path, false))
  const ofDevice = readIfThere(config?.agent.defaultPolicyPath)
  const policies = [...ofTunnels, ...(ofDevice ? [ofDevice] : [])]
  const scrubber = new Scrubber(knownSecrets(surroundings, config, policies))
  if (seen instanceof StartError) problems.push(`status.json: ${seen.message}`)

  const findings: Finding[] = []
  for await (const some of looks) findings.push(...some)
  const log = await readLog(context, place, problems)
  const parts: BundlePart[] = [
    { name: 'README.txt', text: README },
    { name: 'doctor.txt', text: doctorText(findings) },
    { name: 'doctor.json', text: jsonText(findings) },
    ...(isRunning ? [{ name: 'status.json', text: jsonText(withoutPolicies(seen)) }] : []),
    { name: 'settings.json', text: jsonText(shownSettings(surroundings)) },
    { name: 'versions.json', text: jsonText(versions(isRunning ? seen : undefined)) },
    {
      name: 'database.json',
      text: jsonText({
        checks: databases.flatMap((path) => checkDatabase(path, isRunning) ?? []),
        files: dataDir ? listFolder(dataDir) : [],
      }),
    },
    ...(log === '' ? [] : [{ name: LOG, text: log }]),
    ...(problems.length > 0 ? [{ name: 'problems.txt', text: `${problems.join('\n')}\n` }] : []),
  ]
  return parts.map(({ name, text }) => {
    if (name === 'README.txt') return { name, text }
    return { name, text: name === LOG ? scrubber.scrubWords(text) : scrubber.scrub(text) }
  })
}

async function readLog(
  context: CommandContext,
  place: LogPlace,
  problems: string[],
): Promise<string> {
  const enough = new AbortController()
  const timer = setTimeout(() => enough.abort(), LOG_WITHIN_MS)
  const lines: string[] = []
  let bytes = 0
  try {
    const request = { lines: LOG_LINES, follow: false, stop: enough.signal }
    for await (const line of await openLog(context, place, request)) {
      lines.push(line)
      bytes += line.length + 1
      while (bytes > MAX_LOG_BYTES) bytes -= (lines.shift()?.length ?? 0) + 1
    }
  } catch (error) {
    if (!(error instanceof StartError)) throw error
    problems.push(`${LOG}: ${error.message}`)
  } finally {
    clearTimeout(timer)
  }
  return lines.map((line) => `${line}\n`).join('')
}

function doctorText(findings: readonly Finding[]): string {
  const plain = (_colour: unknown, text: string) => text
  return `${findings.map((finding) => findingText(finding, plain)).join('')}\n${summary(findings)}\n`
}

/** A policy may contain passwords. Its hash shows whether it changed. */
function withoutPolicies({ status, tunnels }: SeenAgent): object {
  return {
    status,
    tunnels: tunnels.map(({ policy, ...tunnel }) => ({
      ...tunnel,
      policy_sha256: createHash('sha256').update(textOf(policy)).digest('hex'),
      policy_bytes: Buffer.byteLength(textOf(policy)),
    })),
  }
}

function versions(seen: SeenAgent | undefined): object {
  return {
    made_at: new Date().toISOString(),
    program: readVersion(),
    running_agent: seen?.status.versions ?? null,
    node: process.versions,
    system: {
      platform: platform(),
      release: release(),
      arch: arch(),
      distribution: distribution(),
      uptime_s: Math.round(uptime()),
    },
    machine: {
      processors: cpus().length,
      model: cpus()[0]?.model ?? null,
      load: loadavg(),
      memory_bytes: totalmem(),
      free_bytes: freemem(),
    },
  }
}

function distribution(): string | null {
  const text = readIfThere('/etc/os-release') ?? ''
  return /^PRETTY_NAME="?([^"\n]*)"?$/m.exec(text)?.[1] ?? null
}

function readIfThere(path: string | undefined): string | undefined {
  try {
    return path !== undefined && existsSync(path) ? readFileSync(path, 'utf8') : undefined
  } catch {
    return undefined
  }
}

const textOf = (policy: unknown) => (typeof policy === 'string' ? policy : JSON.stringify(policy))
const jsonText = (value: unknown) => `${JSON.stringify(value, null, 2)}\n`

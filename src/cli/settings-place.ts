import { existsSync, readFileSync } from 'node:fs'
import { parse } from 'dotenv'
import { StartError } from '../base/app-error.ts'
import { type Environment, SettingsError } from '../settings/settings.ts'
import { INSTALLED, INSTALLED_GATEWAY } from './surroundings.ts'

/** Files that this process reads, or that the service manager reads for it. */
const FILES = ['.env', INSTALLED.settings, INSTALLED_GATEWAY.settings]

/**
 * The error with file and line of each wrong setting. Settings of no file stay without, and other errors stay
 * unchanged.
 */
export function withPlaces(
  error: unknown,
  environment: Environment,
  files: readonly string[] = FILES,
): unknown {
  if (!(error instanceof SettingsError)) return error
  const texts = files.map((path) => ({ path, text: readIfReadable(path) }))
  const lines = error.problems.map(({ name, message }) => {
    const place = texts
      .filter(({ text }) => {
        const value = parse(text)[name]
        return value !== undefined && value === (environment[name] ?? value)
      })
      .map(({ path, text }) => `${path}:${lineOf(text, name)}: `)
    return `${place[0] ?? ''}${message}`
  })
  return new StartError(lines.join('\n'), { cause: error })
}

/**
 * Settings of a file, empty without it. Throws a StartError if it cannot be read, or if a line with the name of a
 * setting sets nothing: the agent would use the default, and nobody would see why.
 */
export function readSettingsFile(path: string): Record<string, string> {
  try {
    if (!existsSync(path)) return {}
    const text = readFileSync(path, 'utf8')
    const problems = strayLines(path, text)
    if (problems.length > 0) throw new StartError(problems.join('\n'))
    return parse(text)
  } catch (error) {
    if (error instanceof StartError) throw error
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`Cannot read the file ${path} in the current directory: ${code}.`, {
      cause: error,
    })
  }
}

/** One line, or several in quotes, as dotenv reads them. */
const ASSIGNMENT =
  /^\s*(?:export\s+)?[\w.-]+(?:\s*=\s*?|:\s+?)(?:\s*'(?:\\'|[^'])*'|\s*"(?:\\"|[^"])*"|\s*`(?:\\`|[^`])*`|[^#\r\n]+)?\s*(?:#.*)?$/gm
/** A comment, or the export of a variable that another line sets. */
const IGNORED = /^\s*(?:[#;]|export\s[\w\s]+$)/
const NAME = /\b(?:(?:AGENT|SVC|GATEWAY)_[A-Z0-9_]+|LOG_LEVEL\b)/

/** The problem of each line with the name of a setting that dotenv ignores. Files may have lines of other programs. */
export function strayLines(path: string, text = readIfReadable(path)): string[] {
  const rest = text
    .replaceAll(/\r\n?/g, '\n')
    .replaceAll(ASSIGNMENT, (lines) => lines.replaceAll(/[^\n]/g, ''))
  return rest.split('\n').flatMap((line, at) => {
    const [name] = IGNORED.test(line) ? [] : (NAME.exec(line) ?? [])
    const problem = `${path}:${at + 1}: The line of ${name} is not a setting. Write ${name}=VALUE.`
    return name === undefined ? [] : [problem]
  })
}

/** Settings of the file `.env` in this folder. Empty without it. */
export function readDotenv(): Readonly<Record<string, string>> {
  return parse(readIfReadable('.env'))
}

const CA_NAME = 'NODE_EXTRA_CA_CERTS'

/** Node.js reads this variable before the program reads `.env`. Undefined if nothing is lost. */
export function lateCaWarning(environment: Environment): string | undefined {
  if (readDotenv()[CA_NAME] === undefined || environment[CA_NAME]) return undefined
  return `${CA_NAME} has no effect in .env: set it in the environment, such as ${CA_NAME}=ca.pem npm start`
}

function readIfReadable(path: string): string {
  try {
    return existsSync(path) ? readFileSync(path, 'utf8') : ''
  } catch {
    return ''
  }
}

/** The last line that sets the name, because the last value counts. */
function lineOf(text: string, name: string): number {
  const start = new RegExp(`^\\s*(?:export\\s+)?${name}\\s*[=:]`)
  return text.split(/\r\n|\r|\n/).findLastIndex((line) => start.test(line)) + 1
}

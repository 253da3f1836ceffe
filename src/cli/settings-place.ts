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

/** Settings of the file `.env` in this folder. Empty without it. */
export function readDotenv(): Readonly<Record<string, string>> {
  return parse(readIfReadable('.env'))
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

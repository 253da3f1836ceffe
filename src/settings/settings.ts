import { StartError } from '../base/app-error.ts'
import { nearest } from '../base/nearest.ts'
import { AGENT } from './agent-settings.ts'
import { oneOf, Problem } from './forms.ts'
import { GATEWAY } from './gateway-settings.ts'
import { type NamedValues, setting } from './group.ts'

/** Setting names are long, so up to four letters may be wrong. */
const MAX_WRONG_LETTERS = 4
const PREFIXES = /^(AGENT|SVC|GATEWAY)_/
const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const

/** All settings, in the order of the docs. */
export const SETTINGS = {
  ...AGENT,
  ...GATEWAY,
  LOG_LEVEL: setting('logLevel', oneOf(LOG_LEVELS), 'info').describe(
    'log level on stderr; JSON lines, or readable text on a terminal',
  ),
}

/** The settings of one process, given or by default, by their names. */
export type Settings = NamedValues<typeof SETTINGS>

export type Environment = Readonly<Record<string, string | undefined>>

/** Names of settings whose text is a secret, or may contain one. */
export const SECRET_SETTINGS = Object.entries(SETTINGS).flatMap(([name, { isSecret }]) =>
  isSecret ? [name] : [],
)

/**
 * Reads the settings from an environment. Throws a StartError with one line for each problem. The lines do
 * not repeat values, which may be secrets.
 */
export function parseSettings(environment: Environment): Settings {
  const given = Object.entries(environment).filter(
    ([name, text]) => (PREFIXES.test(name) || name === 'LOG_LEVEL') && text !== '',
  )
  const texts: Environment = Object.fromEntries(given)
  const parsed: Record<string, unknown> = {}
  const problems: string[] = []
  for (const [name, { read }] of Object.entries(SETTINGS)) {
    const value = read(texts[name])
    if (value instanceof Problem) problems.push(`${name} ${value.message}.`)
    else parsed[name] = value
  }
  const unknown = Object.keys(texts).filter((name) => !Object.hasOwn(SETTINGS, name))
  problems.push(...unknown.map(unknownSetting))
  if (problems.length > 0) throw new StartError(problems.join('\n'))
  return parsed as unknown as Settings
}

function unknownSetting(name: string): string {
  const meant = nearest(name, Object.keys(SETTINGS), MAX_WRONG_LETTERS)
  return `Unknown setting ${name}.${meant === undefined ? '' : ` Did you mean ${meant}?`}`
}

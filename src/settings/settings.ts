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

interface SettingProblem {
  readonly name: string
  readonly message: string
}

/** Unknown settings and wrong values, with one line for each. */
export class SettingsError extends StartError {
  readonly problems: readonly SettingProblem[]

  constructor(problems: readonly SettingProblem[]) {
    super(problems.map(({ message }) => message).join('\n'))
    this.problems = problems
  }
}

/**
 * Reads the settings from an environment. Throws a SettingsError with all problems. Its messages do not repeat
 * values, which may be secrets.
 */
export function parseSettings(environment: Environment): Settings {
  const given = Object.entries(environment).filter(
    ([name, text]) => (PREFIXES.test(name) || name === 'LOG_LEVEL') && text !== '',
  )
  const texts: Environment = Object.fromEntries(given)
  const parsed: Record<string, unknown> = {}
  const problems: SettingProblem[] = []
  for (const [name, { read }] of Object.entries(SETTINGS)) {
    const value = read(texts[name])
    if (value instanceof Problem) problems.push({ name, message: `${name} ${value.message}.` })
    else parsed[name] = value
  }
  const unknown = Object.keys(texts).filter((name) => !Object.hasOwn(SETTINGS, name))
  problems.push(...unknown.map((name) => ({ name, message: unknownSetting(name) })))
  if (problems.length > 0) throw new SettingsError(problems)
  return parsed as unknown as Settings
}

function unknownSetting(name: string): string {
  const meant = nearest(name, Object.keys(SETTINGS), MAX_WRONG_LETTERS)
  return `Unknown setting ${name}.${meant === undefined ? '' : ` Did you mean ${meant}?`}`
}

import * as z from 'zod'
import { StartError } from '../base/app-error.ts'
import { nearest } from '../base/nearest.ts'
import { AGENT } from './agent-settings.ts'
import { oneOf } from './forms.ts'
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

const schemas = Object.entries(SETTINGS).map(([name, { schema }]) => [name, schema] as const)
const SettingsSchema = z.strictObject(Object.fromEntries(schemas))

/**
 * Reads the settings from an environment. Throws a StartError with one line for each problem. The lines do
 * not repeat values, which may be secrets.
 */
export function parseSettings(environment: Environment): Settings {
  const given = Object.entries(environment).filter(
    ([name, value]) => (PREFIXES.test(name) || name === 'LOG_LEVEL') && value !== '',
  )
  const parsed = SettingsSchema.safeParse(Object.fromEntries(given))
  if (parsed.success) return parsed.data as Settings
  throw new StartError(parsed.error.issues.flatMap(sentencesOf).join('\n'))
}

function sentencesOf(issue: z.core.$ZodIssue): string[] {
  if (issue.code === 'unrecognized_keys') return issue.keys.map(unknownSetting)
  return [`${issue.path.join('.')} ${issue.message}.`]
}

function unknownSetting(name: string): string {
  const meant = nearest(name, Object.keys(SETTINGS), MAX_WRONG_LETTERS)
  return `Unknown setting ${name}.${meant === undefined ? '' : ` Did you mean ${meant}?`}`
}

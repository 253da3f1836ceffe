import { existsSync, readFileSync } from 'node:fs'
import { parse as parseDotenv } from 'dotenv'
import { isSecretName } from '../../base/masked-text.ts'
import { type Environment, SECRET_SETTINGS } from '../../settings/settings.ts'
import type { Surroundings } from '../surroundings.ts'
import { settingRows } from '../usage/settings-table.ts'

const PREFIXES = /^(?:AGENT|SVC|GATEWAY)_|^LOG_LEVEL$/
/** Variables from the service manager, and variables that name files of settings. */
const GIVEN = ['STATE_DIRECTORY', 'RUNTIME_DIRECTORY', 'CREDENTIALS_DIRECTORY']
/** Their values are paths, although their names sound like secrets. */
const PATH_NAMES = /_(?:FILE|CERT|KEYS)$|^GATEWAY_TLS_KEY$|_DIRECTORY$/

/** A setting as it may be shown: a secret one is only said to be set. */
export interface ShownSetting {
  readonly name: string
  readonly value: string
  readonly source: string
}

/** Every setting with its value and where that comes from; and names that are no settings. */
export function shownSettings({ environment, source }: Surroundings): ShownSetting[] {
  const rows = new Map(settingRows().map((row) => [row.name, row]))
  const file = readDotenv()
  const given = Object.keys(environment).filter(
    (name) => (PREFIXES.test(name) || GIVEN.includes(name)) && environment[name],
  )
  return [...new Set([...rows.keys(), ...given])].map((name) => {
    const value = environment[name]
    if (value === undefined || value === '') {
      return { name, value: rows.get(name)?.fallback ?? '', source: 'default' }
    }
    const isKnown = rows.has(name) || GIVEN.includes(name)
    const from = file[name] === value && source === 'environment' ? '.env' : source
    if (!isKnown) return { name, value: '[not a setting]', source: from }
    return { name, value: isHidden(name) ? '[secret]' : withoutUser(value), source: from }
  })
}

/** The values that must not be shown. */
export function secretSettings(environment: Environment): string[] {
  return Object.entries(environment).flatMap(([name, value]) =>
    PREFIXES.test(name) && isHidden(name) && value ? [value] : [],
  )
}

function isHidden(name: string): boolean {
  return (isSecretName(name) || SECRET_SETTINGS.includes(name)) && !PATH_NAMES.test(name)
}

/** A URL may have a name and a password in it. */
const withoutUser = (value: string) => value.replace(/(\/\/)[^\s/@]+@/g, '$1[secret]@')

function readDotenv(): Record<string, string> {
  try {
    return existsSync('.env') ? parseDotenv(readFileSync('.env')) : {}
  } catch {
    return {}
  }
}

import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import type { Config } from '../../config.ts'
import type { Environment } from '../../settings/settings.ts'
import type { RoleName } from './roles.ts'

/** Settings of a role. The data directory is known without them. */
const SETTINGS: Readonly<Record<RoleName, RegExp>> = {
  agent: /^(?:SVC_|AGENT_(?!DATA_DIR$))/,
  gateway: /^GATEWAY_(?!DATA_DIR$)/,
}

/**
 * Text about settings of a program that is not an installed service: a backup contains only data. Such a program has
 * them in `.env` of the current folder, or in its environment.
 */
export function leftOutText(role: RoleName, { agent }: Config): string {
  const own = role === 'agent' ? [agent.caCertPath, agent.authtokenFile] : []
  const files = ['.env', ...own].flatMap((path) =>
    path !== undefined && existsSync(path) ? resolve(path) : [],
  )
  return files.length === 0
    ? 'Not in this backup: the settings, such as .env and the files that it names. Keep a copy of them.\n'
    : `Not in this backup: the settings. Keep a copy of ${files.join(', ')}.\n`
}

/** The step before the start in a folder without settings. Empty if it has some. */
export function settingsStep(role: RoleName, environment: Environment): string {
  const has = Object.keys(environment).some((name) => SETTINGS[role].test(name))
  return has
    ? ''
    : 'The settings are not restored: copy .env and the files that it names from the old folder. '
}

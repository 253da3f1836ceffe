import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse as parseDotenv } from 'dotenv'
import { StartError } from '../base/app-error.ts'
import { agentDataDir } from '../config.ts'
import type { CommandContext } from './command-context.ts'

/** Files of the installed agent. */
export const INSTALLED = {
  settings: '/etc/device-agent/agent.env',
  authtoken: '/etc/credstore/svc-authtoken',
  policy: '/etc/device-agent/default-policy.json',
  data: '/var/lib/device-agent',
  joinRecord: '/etc/device-agent/join.json',
}
/** The same record in a data directory. */
export const JOIN_RECORD = 'join.json'
/** Files of the installed gateway. */
export const INSTALLED_GATEWAY = {
  settings: '/etc/device-gateway/gateway.env',
  data: '/var/lib/device-gateway',
}

/** The settings of the agent that is meant, and where they come from. */
export interface Surroundings {
  readonly environment: CommandContext['environment']
  readonly source: string
}

/** The settings of the installed service, unless this program has its own or a folder is given. */
export function surroundingsOf(
  environment: CommandContext['environment'],
  dataDir: string | undefined,
): Surroundings {
  const own = { ...environment, ...(dataDir === undefined ? {} : { AGENT_DATA_DIR: dataDir }) }
  const hasOwn = Object.keys(own).some((name) => /^(?:SVC|AGENT)_/.test(name))
  if (hasOwn || !existsSync(INSTALLED.settings)) return { environment: own, source: 'environment' }
  const installed = {
    STATE_DIRECTORY: INSTALLED.data,
    ...(existsSync(INSTALLED.policy) ? { AGENT_DEFAULT_POLICY: INSTALLED.policy } : {}),
    ...(existsSync(INSTALLED.authtoken) ? { SVC_AUTHTOKEN_FILE: INSTALLED.authtoken } : {}),
    ...readInstalled(INSTALLED.settings),
  }
  return { environment: { ...environment, ...installed }, source: INSTALLED.settings }
}

/** The same for a gateway. `root` is for a service that is installed below another folder. */
export function gatewaySurroundings(
  environment: CommandContext['environment'],
  dataDir: string | undefined,
  root = '/',
): Surroundings {
  const settings = join(root, INSTALLED_GATEWAY.settings)
  const own = { ...environment, ...(dataDir === undefined ? {} : { GATEWAY_DATA_DIR: dataDir }) }
  const hasOwn = Object.keys(own).some((name) => /^(?:GATEWAY_|AGENT_DATA_DIR$)/.test(name))
  if (hasOwn || !existsSync(settings)) return { environment: own, source: 'environment' }
  const data = join(root, INSTALLED_GATEWAY.data)
  const installed = { STATE_DIRECTORY: data, ...readInstalled(settings) }
  return { environment: { ...environment, ...installed }, source: settings }
}

/** Name of the settings file that SVC_JOIN_FILE leaves in the data directory. */
export const JOINED_ENV = 'joined.env'

/** The environment with the settings of a join in the data directory. Settings that are given win. */
export function withJoined(
  environment: CommandContext['environment'],
): CommandContext['environment'] {
  if (!environment.SVC_JOIN_FILE) return environment
  try {
    const path = join(agentDataDir(environment), JOINED_ENV)
    return existsSync(path) ? { ...parseDotenv(readFileSync(path)), ...environment } : environment
  } catch {
    // `run` reports it: without these settings, it joins.
    return environment
  }
}

function readInstalled(path: string): Record<string, string> {
  try {
    return parseDotenv(readFileSync(path))
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`Cannot read ${path} (${code}). Run this command with sudo.`, {
      cause: error,
    })
  }
}

import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { shippedPolicyPath } from './agent/policies/shipped-policy.ts'
import { allowProblems } from './agent/upstreams/forward-rules.ts'
import { StartError } from './base/app-error.ts'
import type { Secret } from './base/secret.ts'
import { agentSettings } from './settings/agent-settings.ts'
import { apiToken, Problem } from './settings/forms.ts'
import { gatewaySettings } from './settings/gateway-settings.ts'
import { type Environment, parseSettings, SettingsError } from './settings/settings.ts'

/** Typed settings of all processes, by group. Paths are absolute. */
export type Config = ReturnType<typeof parseConfig>

/** Builds the configuration from an environment. Throws a StartError with all problems. */
export function parseConfig(environment: Environment) {
  const settings = parseSettings(environment)
  requireRules(settings.AGENT_FORWARD_ALLOW)
  const dataDir = agentDataDir(environment)
  const apiTokenFile = credential(environment, 'api-token')
  // A join that was interrupted has written this token together with the address of its gateway.
  const { SVC_AUTHTOKEN_JOINED: joined } = settings
  const mountedToken = joined ? undefined : credential(environment, 'svc-authtoken')
  return {
    agent: agentSettings(settings, {
      dataDir,
      runtimeDir: environment.RUNTIME_DIRECTORY?.split(':')[0],
      defaultPolicyPath: settings.AGENT_DEFAULT_POLICY ?? defaultPolicyPath(environment),
      authtoken: joined ?? settings.SVC_AUTHTOKEN,
      authtokenFile: joined ? undefined : (mountedToken ?? settings.SVC_AUTHTOKEN_FILE),
      isTokenMounted: mountedToken !== undefined,
      apiToken: apiTokenFile ? readApiToken(apiTokenFile) : settings.AGENT_API_TOKEN,
    }),
    gateway: gatewaySettings(settings, join(dataDir, 'gateway')),
    /** Opens the management API. */
    apiKey: settings.SVC_API_KEY,
    logLevel: settings.LOG_LEVEL,
  }
}

/** Checked here, so that commands find the same mistakes as a start. */
function requireRules(allow: readonly string[]): void {
  const name = 'AGENT_FORWARD_ALLOW'
  const problems = allowProblems(allow).map((it) => ({ name, message: `${name}: ${it}.` }))
  if (problems.length > 0) throw new SettingsError(problems)
}

/** Data directory of the agent, also while other settings are wrong. */
export function agentDataDir({ AGENT_DATA_DIR: given, STATE_DIRECTORY }: Environment): string {
  // systemd passes absolute paths, several joined by a colon; the first is ours.
  return resolve(given || STATE_DIRECTORY?.split(':')[0] || 'data')
}

/** Path of a systemd credential; looked at first, because no other user can read it. */
function credential(environment: Environment, name: string): string | undefined {
  const folder = environment.CREDENTIALS_DIRECTORY
  const path = folder && join(folder, name)
  return path && existsSync(path) ? path : undefined
}

function readApiToken(path: string): Secret {
  const token = apiToken.read(readFileSync(path, 'utf8').trim())
  if (!(token instanceof Problem)) return token
  throw new StartError(`The credential api-token ${token.message}.`)
}

/** The policy file of the configuration directory, or the shipped file. */
function defaultPolicyPath(environment: Environment): string {
  const folder = environment.CONFIGURATION_DIRECTORY?.split(':')[0] ?? '.'
  const own = resolve(folder, 'default-policy.json')
  return existsSync(own) ? own : shippedPolicyPath()
}

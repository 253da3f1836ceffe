import { existsSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { isSecretName } from '../../base/masked-text.ts'
import type { Config } from '../../config.ts'
import { apiKeyPath } from '../api-key-file.ts'
import type { Surroundings } from '../doctor/surroundings.ts'
import { secretSettings } from './shown-settings.ts'

const MAX_FILE_BYTES = 64 * 1024

/** Every secret that this program can know of: those of settings, of files, and of policies. */
export function knownSecrets(
  { environment }: Surroundings,
  config: Config | undefined,
  policies: readonly string[],
): Set<string> {
  const credentials = environment.CREDENTIALS_DIRECTORY
  const dataDir = config?.agent.dataDir
  const files = [
    environment.SVC_AUTHTOKEN_FILE,
    config?.agent.authtokenFile,
    ...(dataDir ? [join(dataDir, 'api-token'), join(dataDir, 'authtoken')] : []),
    ...(config ? [apiKeyPath(config.gateway)] : []),
    ...(credentials ? [join(credentials, 'svc-authtoken'), join(credentials, 'api-token')] : []),
  ]
  return new Set([
    ...secretSettings(environment),
    ...files.flatMap(readSecret),
    ...policies.flatMap(secretsInPolicy),
  ])
}

function readSecret(path: string | undefined): string[] {
  try {
    if (path === undefined || !existsSync(path) || statSync(path).size > MAX_FILE_BYTES) return []
    const text = readFileSync(path, 'utf8').trim()
    return text === '' ? [] : [text]
  } catch {
    // Whoever cannot read it cannot give it away either.
    return []
  }
}

/** Every text that an action was given: passwords, keys and header values cannot be told apart. */
export function secretsInPolicy(text: string): string[] {
  try {
    return [...textsIn(JSON.parse(text), false)]
  } catch {
    return [text]
  }
}

/** Words that stand in many policies, and would be missed everywhere else. */
const ORDINARY = /^[a-z]{1,12}(?:[-_.][a-z]{1,12})*$/

function* textsIn(value: unknown, isConfig: boolean, isSecret = false): Generator<string> {
  if (typeof value === 'string') {
    if (!isConfig || (ORDINARY.test(value) && !isSecret)) return
    yield value
    // `user:password`, as basic auth has it.
    const password = value.slice(value.indexOf(':') + 1)
    if (password !== value) yield password
    return
  }
  if (typeof value !== 'object' || value === null) return
  for (const [name, inner] of Object.entries(value)) {
    yield* textsIn(inner, isConfig || name === 'config', isSecret || isSecretName(name))
  }
}

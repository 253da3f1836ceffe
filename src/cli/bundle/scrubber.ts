import { existsSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { isSecretName, MASK, maskedForms, maskedText } from '../../base/masked-text.ts'
import type { Config } from '../../config.ts'
import { apiKeyPath } from '../api-key-file.ts'
import type { Surroundings } from '../surroundings.ts'
import { secretSettings } from './shown-settings.ts'

const MAX_FILE_BYTES = 64 * 1024

/** All secrets that this program knows: from settings, files and policies. */
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
    // A file that this program cannot read is not in the bundle either.
    return []
  }
}

/** Every text that an action was given: passwords, keys and header values cannot be told apart. */
function secretsInPolicy(text: string): string[] {
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

/** Shorter secrets would match everywhere. */
const LEAST_LENGTH = 6
/** A piece of base64 that is shorter says nothing about where it comes from. */
const LEAST_ENCODED = 8

/** Removes secrets from texts: known secrets in all encodings, and texts that look like secrets. */
export class Scrubber {
  readonly #known: RegExp | undefined

  constructor(secrets: Iterable<string>) {
    const forms = new Set<string>()
    for (const secret of secrets) {
      if (secret.length >= LEAST_LENGTH) for (const form of formsOf(secret)) forms.add(form)
    }
    // The longest first: a part must not hide the whole.
    const all = [...forms].sort((a, b) => b.length - a.length).map(escaped)
    this.#known = all.length === 0 ? undefined : new RegExp(all.join('|'), 'g')
  }

  /** The text without known secrets, and without texts that look like secrets. */
  scrub(text: string): string {
    const plain = maskedForms(text)
    return this.#known ? plain.replace(this.#known, MASK) : plain
  }

  /** The same for text of unknown origin: values with a secret's name are removed, too. */
  scrubWords(text: string): string {
    return maskedText(this.scrub(text))
  }
}

function formsOf(secret: string): string[] {
  const bytes = Buffer.from(secret)
  const url = encodeURIComponent(secret)
  const json = JSON.stringify(secret).slice(1, -1)
  const lower = (text: string) => text.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase())
  return [
    secret,
    json,
    JSON.stringify(json).slice(1, -1),
    url,
    lower(url),
    url.replaceAll('%20', '+'),
    bytes.toString('hex'),
    ...[0, 1, 2].flatMap((offset) => base64At(bytes, offset)),
  ]
}

/** How it stands in base64 behind `offset` other bytes; the ends, which it shares, are left out. */
function base64At(bytes: Buffer, offset: number): string[] {
  const behind = Buffer.concat([Buffer.alloc(offset), bytes])
  const start = Math.ceil((offset * 8) / 6)
  const end = Math.floor((behind.length * 8) / 6)
  const whole = behind.toString('base64').slice(start, end)
  if (whole.length < LEAST_ENCODED) return []
  return [whole, whole.replaceAll('+', '-').replaceAll('/', '_'), encodeURIComponent(whole)]
}

const escaped = (text: string) => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')

import { readFileSync } from 'node:fs'
import { StartError } from '../base/app-error.ts'
import type { Clock } from '../base/clock.ts'
import { writeFileDurably } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import { Secret } from '../base/secret.ts'
import { createToken, hashToken, matchesHash } from '../base/token.ts'
import type { ApiTokenStore } from './api-token-store.ts'

const PREFIX = 'dagt_'
/** 256 bits in base64url. */
const FORM = /^dagt_[\w-]{43}$/

export interface ApiTokenOptions {
  /** The setting: when it is there, it alone counts. */
  readonly given: Secret | undefined
  readonly store: ApiTokenStore
  /** Where the plain text of a token that the agent makes is left, mode 0600. */
  readonly path: string
  readonly log: Logger
  readonly clock: Clock
}

/** The bearer token of the agent's API. */
export interface ApiToken {
  isValid(token: string): boolean
  /** The plain text while somebody still has it: the setting, or the file that it was left in. */
  readonly plain: Secret | undefined
}

/**
 * Takes the given token, else the one that was made before, else makes one. Throws a StartError
 * when one is needed and cannot be kept: without a token the API would be open or shut for good.
 */
export function openApiToken({ given, store, path, log, clock }: ApiTokenOptions): ApiToken {
  if (given) return tokenOf(hashToken(given.reveal()), given)
  const written = readWritten(path)
  const kept = store.hash()
  if (kept !== undefined) {
    return tokenOf(kept, written && matchesHash(written, kept) ? new Secret(written) : undefined)
  }
  const token = written ?? createToken(PREFIX)
  try {
    // File first: a hash whose plain text nobody ever saw would lock everybody out.
    if (written === undefined) writeFileDurably(path, `${token}\n`)
    store.keep(hashToken(token), clock.now())
  } catch (error) {
    throw new StartError(
      'No API token can be made, because the data folder cannot be written: set AGENT_API_TOKEN, or make the folder writable.',
      { cause: error },
    )
  }
  log.info({ file: path }, 'the token of the API is in this file')
  return tokenOf(hashToken(token), new Secret(token))
}

function tokenOf(hash: string, plain: Secret | undefined): ApiToken {
  return { isValid: (token) => matchesHash(token, hash), plain }
}

function readWritten(path: string): string | undefined {
  try {
    const text = readFileSync(path, 'utf8').trim()
    return FORM.test(text) ? text : undefined
  } catch {
    return undefined
  }
}

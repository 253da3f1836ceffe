import { createHash, hkdfSync, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { closeSecretFile, writeFileDurably } from '../../base/file.ts'
import type { Logger } from '../../base/logger.ts'

const KEY_BYTES = 32
/** Input of every derived secret (`info` in RFC 5869): a change would invalidate all sealed data. */
const LABEL = 'device-agent gateway 1'

/**
 * Secrets that policies use to seal data for clients, one per account and purpose. All are derived from one
 * key in a private file (RFC 5869). Without the file, sealed data is worthless.
 */
export class AccountSecrets {
  readonly #key: Buffer

  /** Creates the file if it is missing. A key that cannot be saved is used until the process ends. */
  constructor(path: string, log: Logger) {
    this.#key = readKey(path, log) ?? makeKey(path, log)
  }

  secretFor(ownerId: string | null, purpose: string): Buffer {
    const info = JSON.stringify([LABEL, ownerId, purpose])
    return Buffer.from(hkdfSync('sha256', this.#key, '', digestOf(info), KEY_BYTES))
  }
}

/** A hash, because the system accepts 1,024 bytes and a purpose may be longer. */
const digestOf = (info: string) => createHash('sha256').update(info).digest()

function readKey(path: string, log: Logger): Buffer | undefined {
  try {
    if (closeSecretFile(path)) log.warn({ path }, 'the login key file was readable by other users')
    const key = Buffer.from(readFileSync(path, 'utf8').trim(), 'base64url')
    if (key.length === KEY_BYTES) return key
    log.warn({ path }, 'the login key is damaged: visitors must sign in again')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code !== 'ENOENT') log.warn({ path, code }, 'the login key cannot be read')
  }
  return undefined
}

function makeKey(path: string, log: Logger): Buffer {
  const key = randomBytes(KEY_BYTES)
  try {
    writeFileDurably(path, `${key.toString('base64url')}\n`)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    log.warn({ path, code }, 'the login key cannot be saved: logins end when this process ends')
  }
  return key
}

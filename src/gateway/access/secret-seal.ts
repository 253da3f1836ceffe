import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { closeSecretFile, writeFileDurably } from '../../base/file.ts'
import type { Logger } from '../../base/logger.ts'
import { ServiceError } from '../records/service-error.ts'

/** Key file in the data directory. Several gateways share its content. */
export const SECRETS_KEY = 'secrets.key'

const KEY_BYTES = 32
/** NIST SP 800-38D 8.2: 96 random bits are good for 2^32 values. */
const NONCE_BYTES = 12
const TAG_BYTES = 16
const CIPHER = 'aes-256-gcm'
/** First part of the data that is bound to a value. A change would make all values unreadable. */
const LABEL = 'device-agent policy secret 1'
const CERTIFICATE_LABEL = 'device-agent certificate key 1'

/** A new key, as it stands in the file. */
export const createSecretsKey = (): string => `${randomBytes(KEY_BYTES).toString('base64url')}\n`

/**
 * Place of a value: a secret of policies, or the key of an uploaded certificate. A value that was moved to
 * another place cannot be opened. The account of a certificate is no part, because its deletion changes it.
 */
export type SealedPlace =
  | { readonly ownerId: string | null; readonly vaultId: string; readonly name: string }
  | { readonly certificateId: string }

/** A sealed value with its place. */
export interface SealedValue {
  readonly sealed: string
  readonly place: SealedPlace
}

interface SecretSealOptions {
  /** Path of the key file. */
  readonly path: string
  /** Several gateways share the key: it comes from their database, and none creates one here. */
  readonly isShared: boolean
  /** One of the sealed values, if there are any. A new key could not open them. */
  readonly sample: () => SealedValue | undefined
  readonly log: Logger
}

/** The key file is missing or damaged. The message names the fix. */
export class NoKeyError extends ServiceError {
  constructor(message: string) {
    super(24011, message)
  }
}

/** Seals values with AES-256-GCM and the key of a private file. */
export class SecretSeal {
  readonly #path: string
  readonly #isShared: boolean
  readonly #sample: () => SealedValue | undefined
  readonly #log: Logger
  #key: Buffer | undefined
  #hasWarned = false
  #problem: string | undefined

  constructor({ path, isShared, sample, log }: SecretSealOptions) {
    this.#path = path
    this.#isShared = isShared
    this.#sample = sample
    this.#log = log
  }

  /**
   * Seals a value with the key that the file has now. Creates the file for the first value. Throws NoKeyError, and errors of the file system.
   */
  seal(value: string, place: SealedPlace): string {
    const key = this.#reread() ?? this.#create()
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
    cipher.setAAD(boundTo(place))
    const sealed = Buffer.concat([cipher.update(value, 'utf8'), cipher.final()])
    return Buffer.concat([nonce, cipher.getAuthTag(), sealed]).toString('base64url')
  }

  /** Undefined if the key is missing, or the value was sealed with another key or for another place. */
  open(sealed: string, place: SealedPlace): string | undefined {
    const bytes = Buffer.from(sealed, 'base64url')
    const before = this.#key
    const value = before && openWith(before, bytes, place)
    if (value !== undefined) return value
    // The file may have been restored since.
    const key = this.#reread()
    const second = key && openWith(key, bytes, place)
    if (second === undefined) this.#warn(key !== undefined)
    return second
  }

  /** Why stored values cannot be opened, with the fix, as of the last check. */
  get problem(): string | undefined {
    return this.#problem
  }

  /** Reads the key file, and looks whether it opens a stored value. */
  check(): void {
    this.#problem = this.#findProblem()
  }

  #findProblem(): string | undefined {
    const sample = this.#sample()
    if (!sample) return undefined
    const key = readKey(this.#path, this.#log)
    if (key && openWith(key, Buffer.from(sample.sealed, 'base64url'), sample.place) !== undefined) {
      return undefined
    }
    const what = key ? 'has another key' : 'is missing or damaged'
    return `The file ${SECRETS_KEY} ${what}: policies cannot read secrets, and uploaded certificates are not served. ${this.#fix}`
  }

  get #fix(): string {
    return this.#isShared
      ? 'Restart this gateway while it reaches PostgreSQL, which has the key.'
      : 'Restore the file from a backup of the data directory.'
  }

  /** The key of the file as it is now; undefined if the file is missing or damaged. */
  #reread(): Buffer | undefined {
    const key = readKey(this.#path, this.#log)
    if (key) this.#key = key
    return key
  }

  #create(): Buffer {
    if (this.#isShared) {
      throw new NoKeyError(`This gateway has no ${SECRETS_KEY}. ${this.#fix}`)
    }
    const problem = this.#sample() ? 'is missing or damaged' : findProblem(this.#path)
    if (problem !== undefined) {
      throw new NoKeyError(`The file ${SECRETS_KEY} of the gateway ${problem}. ${this.#fix}`)
    }
    writeFileDurably(this.#path, createSecretsKey())
    const key = this.#reread()
    if (!key) throw new NoKeyError(`The file ${SECRETS_KEY} cannot be read after it was written.`)
    return key
  }

  /** Once, because every request would repeat it. */
  #warn(hasKey: boolean): void {
    if (this.#hasWarned) return
    this.#hasWarned = true
    const why = hasKey
      ? `a secret or the key of a certificate cannot be opened. Set the secret or upload the certificate again. If the key file is wrong: ${this.#fix}`
      : `secrets and keys of certificates cannot be opened without the key file. ${this.#fix}`
    this.#log.error({ path: this.#path }, why)
  }
}

function openWith(key: Buffer, bytes: Buffer, place: SealedPlace): string | undefined {
  if (bytes.length < NONCE_BYTES + TAG_BYTES) return undefined
  try {
    return decipher(bytes, key, place)
  } catch {
    return undefined
  }
}

function decipher(bytes: Buffer, key: Buffer, place: SealedPlace): string {
  const nonce = bytes.subarray(0, NONCE_BYTES)
  const opener = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
  opener.setAAD(boundTo(place))
  opener.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES))
  const content = bytes.subarray(NONCE_BYTES + TAG_BYTES)
  return Buffer.concat([opener.update(content), opener.final()]).toString('utf8')
}

function boundTo(place: SealedPlace): Buffer {
  const parts =
    'certificateId' in place
      ? [CERTIFICATE_LABEL, place.certificateId]
      : [LABEL, place.ownerId, place.vaultId, place.name]
  return Buffer.from(JSON.stringify(parts))
}

function readKey(path: string, log: Logger): Buffer | undefined {
  try {
    if (closeSecretFile(path)) log.warn({ path }, 'the key file of secrets was readable by others')
    return parseKey(readFileSync(path, 'utf8'))
  } catch {
    return undefined
  }
}

function parseKey(text: string): Buffer | undefined {
  const key = Buffer.from(text.trim(), 'base64url')
  return key.length === KEY_BYTES ? key : undefined
}

/** Why no new key can be written; undefined if there is no file yet. */
function findProblem(path: string): string | undefined {
  try {
    readFileSync(path)
    return 'is damaged'
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    return code === 'ENOENT' ? undefined : `cannot be read (${code})`
  }
}

import { randomBytes } from 'node:crypto'
import { readFileSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { AppError } from '../base/app-error.ts'
import type { Clock } from '../base/clock.ts'
import { syncFolder, writeFileDurably } from '../base/file.ts'
import type { Logger } from '../base/logger.ts'
import { areEqualHashes, createToken, hashToken, Secret } from '../base/secret.ts'
import type { Caller } from '../http/caller.ts'
import type { Database } from '../store/database.ts'
import { type ApiToken, type ApiTokenSecret, ApiTokenStore } from './api-token-store.ts'
import { TOKEN_FORM, TOKEN_PREFIX } from './token-form.ts'

/** Content of the token file. `unreadable`: the file may exist, but cannot be read. */
type OwnerTokenState = Secret | 'missing' | 'unreadable'

/** `data/api-token`: the plain text of the owner's token, for this user alone (0600). */
class OwnerTokenFile {
  readonly path: string

  constructor(path: string) {
    this.path = path
  }

  /** A file that holds no token counts as missing. */
  read(): OwnerTokenState {
    try {
      const text = readFileSync(this.path, 'utf8').trim()
      return TOKEN_FORM.test(text) ? new Secret(text) : 'missing'
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'missing' : 'unreadable'
    }
  }

  write(token: Secret): void {
    writeFileDurably(this.path, `${token.reveal()}\n`)
  }

  remove(): void {
    rmSync(this.path, { force: true })
    syncFolder(dirname(this.path))
  }
}

/** Id and name of the token that the file, or AGENT_API_TOKEN, holds. */
export const OWNER = 'owner'
/** Id and usual name of the token that was made when the device was provisioned. */
export const PROVISIONED = 'provisioned'
const OWNER_FILE = 'api-token'
export const MAX_TOKENS = 100
/** Secrets of one token: the newest, and older ones whose overlap has not ended. */
const MAX_SECRETS = 8
/** A time of use is written at most this often: storage on devices wears out. */
const USE_EVERY_MS = 60_000

export interface ApiTokensOptions {
  readonly database: Database
  /** Holds the owner's file. */
  readonly dataDir: string
  /** AGENT_API_TOKEN: while it is set, it is the owner's token. */
  readonly given: Secret | undefined
  readonly log: Logger
  readonly clock: Clock
}

/** Place of the token's plain text: nowhere, the owner's file, or a setting. */
export type TokenSource = 'made' | 'file' | 'setting'

/** How the owner's row was changed to match its source. */
export type OwnerAdoption = 'kept' | 'made' | 'healed' | 'dropped' | 'unreadable'

/** A token as it can be shown. */
export interface ShownToken extends ApiToken {
  readonly source: TokenSource
  /** End of the overlap: secrets from before the last rotation are valid until then. */
  readonly overlapEndsAt: number | null
}

/** A requested token. Times are milliseconds since the epoch; null means no end. */
export interface TokenToBe extends Pick<ApiToken, 'name' | 'scope' | 'expiresAt'> {}

export interface TokenChange {
  readonly overlapMs: number
  /** Undefined: no change. */
  readonly expiresAt: number | null | undefined
}

export interface NewToken {
  readonly token: ShownToken
  /** The token before the rotation; undefined if it did not exist. */
  readonly before: ShownToken | undefined
  /** Stands in this answer and, but for the owner's file, nowhere else. */
  readonly secret: Secret
}

/**
 * The bearer tokens of the agent's API.
 *
 * INVARIANTS
 * - Memory holds what the database holds, and changes after it. The folder lock keeps other processes out. So
 *   a revoked token stays invalid after every restart, and the API works for other tokens when the disk
 *   fails.
 * - The owner's newest secret is the one in the file: `adoptOwner` makes the row follow it.
 */
export class ApiTokens {
  readonly #options: ApiTokensOptions
  readonly #store: ApiTokenStore
  readonly #ownerFile: OwnerTokenFile
  readonly #tokens = new Map<string, ApiToken>()
  /** By hash. Lookup time reveals nothing, because a caller cannot choose hashes. */
  readonly #secrets = new Map<string, ApiTokenSecret>()
  readonly #usesWritten = new Map<string, number>()
  readonly #givenHash: string | undefined

  constructor(options: ApiTokensOptions) {
    this.#options = options
    this.#store = new ApiTokenStore(options.database)
    this.#ownerFile = new OwnerTokenFile(join(options.dataDir, OWNER_FILE))
    this.#givenHash = options.given && hashToken(options.given.reveal())
    for (const token of this.#store.tokens()) this.#tokens.set(token.id, token)
    for (const secret of this.#store.secrets()) this.#secrets.set(secret.hash, secret)
  }

  /** Finds the caller of a token; `ended` if the token was valid earlier. */
  authenticate(presented: string): Caller | 'ended' | undefined {
    return this.authenticateHash(hashToken(presented))
  }

  /** The same by the hash of the token, for sessions that do not keep the token itself. */
  authenticateHash(hash: string): Caller | 'ended' | undefined {
    const now = this.#options.clock.now()
    if (this.#givenHash !== undefined && areEqualHashes(hash, this.#givenHash)) {
      return this.#callerOf(this.#tokens.get(OWNER) ?? this.#ownerToken(), now)
    }
    const secret = this.#secrets.get(hash)
    const token = secret && this.#tokens.get(secret.tokenId)
    if (!secret || !token) return undefined
    const hasEnded = isPast(secret.endsAt, now) || isPast(token.expiresAt, now)
    return hasEnded ? 'ended' : this.#callerOf(token, now)
  }

  /** Oldest first. */
  list(): ShownToken[] {
    return [...this.#tokens.values()].map((token) => this.#shown(token))
  }

  /** By id or name. Throws AppError `token-not-found`. */
  find(idOrName: string): ShownToken {
    return this.#shown(this.#find(idOrName))
  }

  /** Throws AppError `token-name-taken` or `too-many-tokens`. */
  create(request: TokenToBe): NewToken {
    const { name } = request
    if (name === OWNER || [...this.#tokens.values()].some((token) => token.name === name)) {
      throw new AppError(
        'token-name-taken',
        `A token named ${name} already exists. Rotate or revoke it.`,
      )
    }
    if (this.#tokens.size >= MAX_TOKENS) {
      const detail = `The device has ${MAX_TOKENS} tokens. Revoke unused tokens.`
      throw new AppError('too-many-tokens', detail)
    }
    const id = `tok_${randomBytes(10).toString('hex')}`
    const now = this.#options.clock.now()
    if (isPast(request.expiresAt, now)) throw badEnd('must be in the future')
    const token: ApiToken = { ...request, id, createdAt: now, lastUsedAt: null }
    const secret = new Secret(createToken(TOKEN_PREFIX))
    this.#put(token, [newest(secret, id)])
    return { token: this.#shown(token), before: undefined, secret }
  }

  /**
   * Gives a token a new secret. Older secrets stay valid for `overlapMs`, but not beyond their own end.
   * Throws AppError `token-not-found`, `token-given`, `too-many-tokens`, or `invalid-request` when the token
   * has expired and gets no new end.
   */
  rotate(idOrName: string, { overlapMs, expiresAt }: TokenChange): NewToken {
    const before = this.#shown(this.#changeable(idOrName))
    const now = this.#options.clock.now()
    const token = expiresAt === undefined ? before : { ...before, expiresAt }
    if (isPast(token.expiresAt, now)) {
      const isOld = expiresAt === undefined
      throw badEnd(isOld ? 'is required, because the token has expired' : 'must be in the future')
    }
    const latest = Math.min(now + overlapMs, before.expiresAt ?? Number.POSITIVE_INFINITY)
    const older = this.#secretsOf(token.id)
      .map((one) => ({ ...one, endsAt: Math.min(one.endsAt ?? latest, latest) }))
      .filter(({ endsAt }) => endsAt > now)
    if (older.length >= MAX_SECRETS) {
      const detail = `The token already has ${MAX_SECRETS} valid secrets. Rotate it without an overlap.`
      throw new AppError('too-many-tokens', detail)
    }
    const secret = new Secret(createToken(TOKEN_PREFIX))
    this.#put(token, [...older, newest(secret, token.id)], token.id === OWNER ? secret : undefined)
    return { token: this.#shown(token), before, secret }
  }

  /**
   * Makes a hash the only secret of the token `provisioned`. The agent never sees the token itself. Returns
   * `made` for a new token and `changed` for an existing one; undefined if the hash belongs to another token.
   */
  adoptProvisioned(hash: string): 'made' | 'changed' | undefined {
    const holder = this.#secrets.get(hash)?.tokenId
    if (holder !== undefined && holder !== PROVISIONED) return undefined
    const before = this.#tokens.get(PROVISIONED)
    const createdAt = this.#options.clock.now()
    const never = { expiresAt: null, lastUsedAt: null }
    const token: ApiToken = before
      ? { ...before, expiresAt: null }
      : { id: PROVISIONED, name: this.#freeName(PROVISIONED), scope: 'write', createdAt, ...never }
    this.#put(token, [{ hash, tokenId: PROVISIONED, endsAt: null }])
    return before ? 'changed' : 'made'
  }

  /** Ends a token with all its secrets, at once. Throws AppError `token-not-found` or `token-given`. */
  revoke(idOrName: string): ShownToken {
    const token = this.#changeable(idOrName)
    const shown = this.#shown(token)
    const remove = () => {
      this.#store.delete(token.id)
      if (token.id === OWNER) this.#ownerFile.remove()
    }
    this.#options.database.write(remove, { mayUseReserve: true })
    this.#tokens.delete(token.id)
    this.#usesWritten.delete(token.id)
    this.#dropSecrets(token.id)
    return shown
  }

  /**
   * Makes the owner's row match its source, and returns what changed. The file decides: a different row was
   * damaged or restored. If the file is missing, a new token is made. With AGENT_API_TOKEN, the token in the
   * file ends. Throws when the disk cannot be written.
   */
  adoptOwner(): OwnerAdoption {
    const file = this.#ownerFile.read()
    if (this.#options.given) return this.#dropOwnerFile(file)
    if (file === 'missing') return this.#makeOwner()
    if (file === 'unreadable') return 'unreadable'
    const kept = this.#secrets.get(hashToken(file.reveal()))
    if (kept && kept.tokenId !== OWNER) return this.#makeOwner()
    return kept?.endsAt === null ? 'kept' : this.#healOwner(newest(file, OWNER))
  }

  /** Path of the file with the owner's token. */
  get ownerPath(): string {
    return this.#ownerFile.path
  }

  /** Plain text of the owner's token while the file or setting has it. */
  get ownerPlain(): Secret | undefined {
    const file = this.#ownerFile.read()
    return this.#options.given ?? (typeof file === 'string' ? undefined : file)
  }

  #dropOwnerFile(file: OwnerTokenState): OwnerAdoption {
    const isOver = file === 'missing' && this.#secretsOf(OWNER).length === 0
    if (isOver && this.#tokens.has(OWNER)) return 'kept'
    this.#dropSecrets(OWNER)
    if (file !== 'missing') this.#ownerFile.remove()
    this.#put(this.#tokens.get(OWNER) ?? this.#ownerToken(), [])
    return isOver ? 'kept' : 'dropped'
  }

  #makeOwner(): OwnerAdoption {
    const secret = new Secret(createToken(TOKEN_PREFIX))
    this.#dropSecrets(OWNER)
    this.#put(this.#tokens.get(OWNER) ?? this.#ownerToken(), [newest(secret, OWNER)], secret)
    return 'made'
  }

  #healOwner(secret: ApiTokenSecret): OwnerAdoption {
    const isOlder = ({ hash, endsAt }: ApiTokenSecret) => endsAt !== null && hash !== secret.hash
    const secrets = [...this.#secretsOf(OWNER).filter(isOlder), secret]
    const token = this.#tokens.get(OWNER) ?? this.#ownerToken()
    // Valid first: the token in the file has to work even if the disk cannot be written.
    this.#remember(token, secrets)
    this.#put(token, secrets)
    return 'healed'
  }

  #find(idOrName: string): ApiToken {
    const named = () => [...this.#tokens.values()].find(({ name }) => name === idOrName)
    // Ids come before names: a name may equal the id of another token, and the id is the only way to address
    // that token.
    const found = this.#tokens.get(idOrName) ?? named()
    if (found) return found
    throw new AppError('token-not-found', `No token is named ${idOrName.slice(0, 100)}.`)
  }

  #changeable(idOrName: string): ApiToken {
    const token = this.#find(idOrName)
    if (token.id !== OWNER || !this.#options.given) return token
    const detail = 'AGENT_API_TOKEN sets this token. Change the setting and restart the agent.'
    throw new AppError('token-given', detail)
  }

  #freeName(wanted: string): string {
    const names = new Set([...this.#tokens.values()].map(({ name }) => name))
    let name = wanted
    for (let n = 2; names.has(name); n += 1) name = `${wanted}-${n}`
    return name
  }

  #ownerToken(): ApiToken {
    const createdAt = this.#options.clock.now()
    const never = { expiresAt: null, lastUsedAt: null }
    return { id: OWNER, name: OWNER, scope: 'write', createdAt, ...never }
  }

  /**
   * On disk first, then in memory. A new owner secret is written to the file within the transaction: a secret
   * that exists nowhere else would lock the owner out.
   */
  #put(token: ApiToken, secrets: readonly ApiTokenSecret[], forFile?: Secret): void {
    const before = forFile && this.#ownerFile.read()
    try {
      this.#options.database.write(() => {
        this.#store.put(token, secrets)
        if (forFile) this.#ownerFile.write(forFile)
      })
    } catch (error) {
      if (before instanceof Secret) tryTo(() => this.#ownerFile.write(before))
      throw error
    }
    this.#remember(token, secrets)
  }

  #remember(token: ApiToken, secrets: readonly ApiTokenSecret[]): void {
    this.#tokens.set(token.id, token)
    this.#dropSecrets(token.id)
    for (const secret of secrets) this.#secrets.set(secret.hash, secret)
  }

  #secretsOf(id: string): ApiTokenSecret[] {
    return [...this.#secrets.values()].filter(({ tokenId }) => tokenId === id)
  }

  #dropSecrets(id: string): void {
    for (const { hash } of this.#secretsOf(id)) this.#secrets.delete(hash)
  }

  #shown(token: ApiToken): ShownToken {
    const ends = this.#secretsOf(token.id).flatMap(({ endsAt }) =>
      endsAt === null ? [] : [endsAt],
    )
    const latest = Math.max(0, ...ends)
    const ownSource = this.#options.given ? 'setting' : 'file'
    return {
      ...token,
      source: token.id === OWNER ? ownSource : 'made',
      overlapEndsAt: latest > this.#options.clock.now() ? latest : null,
    }
  }

  #callerOf(token: ApiToken, now: number): Caller {
    const { id, name, scope } = token
    this.#tokens.set(id, { ...token, lastUsedAt: now })
    this.#writeUse(id, now)
    return { actor: { kind: 'token', id, name }, scope }
  }

  #writeUse(id: string, at: number): void {
    const { clock, log } = this.#options
    const now = clock.monotonic()
    if (now - (this.#usesWritten.get(id) ?? Number.NEGATIVE_INFINITY) < USE_EVERY_MS) return
    this.#usesWritten.set(id, now)
    try {
      this.#store.noteUse(id, at)
    } catch (error) {
      log.debug({ err: error }, 'cannot save the last use of a token')
    }
  }
}

const newest = (secret: Secret, tokenId: string): ApiTokenSecret => ({
  hash: hashToken(secret.reveal()),
  tokenId,
  endsAt: null,
})

const isPast = (time: number | null, now: number) => time !== null && time <= now

function badEnd(detail: string): AppError {
  const errors = [{ pointer: '/expires_at', detail }]
  return new AppError('invalid-request', 'The expiry of the token is invalid.', { errors })
}

function tryTo(run: () => void): void {
  try {
    run()
  } catch {
    // Report the first error.
  }
}

import type { Clock } from '../../base/clock.ts'
import { hashToken, type Secret } from '../../base/secret.ts'
import type { Database } from '../../store/database.ts'
import type { AccountQuotas, QuotaName } from '../records/account-quotas.ts'
import type { ApiKey, ApiKeyScope, ApiKeyStore } from '../records/api-key-store.ts'
import type { BotUser, BotUserStore } from '../records/bot-user-store.ts'
import type {
  AuthtokenTerms,
  Credential,
  CredentialStore,
  Successor,
} from '../records/credential-store.ts'
import { createResourceToken, type IdSource } from '../records/resource-id.ts'
import { checkLength, checkTexts, present, ServiceError } from '../records/service-error.ts'
import { isAclRule } from './acl.ts'

const MAX_NAME = 255
const TEXT_CODES = [604, 605] as const
const MAX_RULES = 100

export interface CredentialIssuerDeps {
  readonly database: Pick<Database, 'change'>
  readonly botUsers: BotUserStore
  readonly quotas: AccountQuotas
  readonly credentials: CredentialStore
  readonly apiKeys: ApiKeyStore
  readonly ids: IdSource
  readonly clock: Clock
}

export interface CredentialText {
  readonly description?: string | undefined
  readonly metadata?: string | undefined
}

export interface CredentialChange extends CredentialText {
  readonly acl?: readonly string[] | undefined
}

/** The caller that changes a credential. */
export interface CredentialAuthor {
  /** Whether the rules are set by the gateway's owner, and may grant names of the owner's domains. */
  readonly isGranting: boolean
}
const GATEWAY_OWNER: CredentialAuthor = { isGranting: true }

export interface ApiKeyChange extends CredentialText {
  /** Default: the description, or the id of the key. */
  readonly name?: string | undefined
  readonly scope?: ApiKeyScope | undefined
  /** Whether the key only works for objects of its owner. Default: true for a key with an owner. */
  readonly isOwnerOnly?: boolean | undefined
  /** Milliseconds since the epoch; null: no expiry. */
  readonly expiresAt?: number | null | undefined
}

interface Owned {
  readonly ownerId?: string | null | undefined
  /** Whether the owner may be disabled. The credential then works once the owner is enabled. */
  readonly mayBeInactive?: boolean
}

interface BotUserRequest {
  readonly name: string
  readonly active?: boolean | undefined
}

type CredentialRequest = CredentialChange & Owned

/** A new credential. The token is only in this answer. */
export interface IssuedCredential {
  readonly credential: Credential
  readonly authtoken: Secret
}

/**
 * Creates, changes and revokes bot users, authtokens and API keys. Every refusal is a ServiceError. Each
 * change concludes the id of its object.
 */
export class CredentialIssuer {
  readonly #deps: CredentialIssuerDeps

  constructor(deps: CredentialIssuerDeps) {
    this.#deps = deps
  }

  createBotUser(request: BotUserRequest): Promise<BotUser> {
    const botUser = this.#draftBotUser(request)
    return this.#change(botUser.id, () => this.#insertBotUser(botUser))
  }

  /** Like `createBotUser`, as a part of an open change. */
  createBotUserWithin(request: BotUserRequest): BotUser {
    return this.#insertBotUser(this.#draftBotUser(request))
  }

  #draftBotUser({ name, active = true }: BotUserRequest): BotUser {
    const { ids, clock } = this.#deps
    return { id: ids.next('bot'), name, active, quotas: {}, createdAt: clock.now() }
  }

  #insertBotUser(botUser: BotUser): BotUser {
    this.#checkName(botUser.name)
    this.#deps.botUsers.insert(botUser)
    return botUser
  }

  updateBotUser(
    { id }: BotUser,
    change: {
      name?: string | undefined
      active?: boolean | undefined
      /** Null resets a quota to its default. */
      quotas?: Readonly<Partial<Record<QuotaName, number | null | undefined>>> | undefined
    },
  ): Promise<BotUser> {
    const { botUsers } = this.#deps
    return this.#change(id, () => {
      const botUser = present(botUsers.get(id))
      const { name = botUser.name, active = botUser.active } = change
      if (name !== botUser.name) this.#checkName(name)
      const quotas = Object.fromEntries(
        Object.entries({ ...botUser.quotas, ...change.quotas }).filter(
          (entry): entry is [string, number] => typeof entry[1] === 'number',
        ),
      )
      const updated = { ...botUser, name, active, quotas }
      botUsers.replace(updated)
      return updated
    })
  }

  /** Also deletes its authtokens, API keys and cloud endpoints. Its domains go to the gateway's owner. */
  async deleteBotUser({ id }: BotUser): Promise<void> {
    await this.#remove(id, () => this.#deps.botUsers.delete(id))
  }

  /**
   * Creates a credential. The token is only in this answer. `check` runs in the same transaction and may
   * throw to refuse the credential.
   */
  createCredential(
    request: CredentialRequest,
    check: () => void = () => {},
    author = GATEWAY_OWNER,
  ): Promise<IssuedCredential> {
    const issued = this.#draftCredential(request, author)
    return this.#change(issued.credential.id, () => {
      check()
      return this.#insertCredential(issued, request)
    })
  }

  /** Like `createCredential`, as a part of an open change. */
  createCredentialWithin(request: CredentialRequest, author = GATEWAY_OWNER): IssuedCredential {
    return this.#insertCredential(this.#draftCredential(request, author), request)
  }

  #draftCredential(request: CredentialRequest, { isGranting }: CredentialAuthor): IssuedCredential {
    const { acl = [] } = request
    const { item, token: authtoken } = this.#draw('cr', request)
    const granted = isGranting ? acl : []
    return { credential: { ...item, acl, granted, successor: null }, authtoken }
  }

  #insertCredential(issued: IssuedCredential, request: CredentialRequest): IssuedCredential {
    const { credential } = issued
    checkRules(credential.acl)
    this.#checkOwner(request)
    checkTexts(credential, TEXT_CODES)
    this.#deps.quotas.check(credential.ownerId, 'credentials')
    this.#deps.credentials.insert(credential)
    return issued
  }

  /**
   * Gives a credential another authtoken, which the device replaces the current one with, as a part of an open
   * change. An earlier successor ends.
   */
  renewCredentialWithin(
    credential: Credential,
    successor: Omit<Successor, 'tokenHash'>,
  ): IssuedCredential {
    const { id, ownerId } = credential
    checkRules(successor.acl)
    this.#checkOwner({ ownerId })
    checkTexts(successor, TEXT_CODES)
    const authtoken = createResourceToken(id)
    const tokenHash = hashToken(authtoken.reveal())
    const renewed = { ...credential, successor: { ...successor, tokenHash } }
    this.#deps.credentials.replace(renewed)
    return { credential: renewed, authtoken }
  }

  /**
   * Also changes the authtoken that waits for its first use, so that a withdrawn rule does not return with it.
   * `check` runs in the same transaction, with the current credential.
   */
  updateCredential(
    { id }: Credential,
    change: CredentialChange,
    check: (credential: Credential) => void = () => {},
    { isGranting } = GATEWAY_OWNER,
  ): Promise<Credential> {
    const { credentials } = this.#deps
    return this.#change(id, () => {
      const credential = present(credentials.get(id))
      check(credential)
      const changed = <Part extends AuthtokenTerms>(part: Part): Part => {
        const { description = part.description, metadata = part.metadata } = change
        const { acl = part.acl } = change
        // Kept rules keep their grants, whether or not the gateway's owner changes the others.
        const isGiven = (rule: string) =>
          (isGranting && change.acl !== undefined) || part.granted.includes(rule)
        return { ...part, description, metadata, acl, granted: acl.filter(isGiven) }
      }
      const { successor } = credential
      const updated = { ...changed(credential), successor: successor && changed(successor) }
      checkTexts(updated, TEXT_CODES)
      checkRules(updated.acl)
      credentials.replace(updated)
      return updated
    })
  }

  async deleteCredential({ id }: Credential): Promise<void> {
    await this.#remove(id, () => this.#deps.credentials.delete(id))
  }

  /** Creates an API key. The token is only in this answer. */
  createApiKey(request: ApiKeyChange & Owned): Promise<{ apiKey: ApiKey; token: Secret }> {
    const { scope = 'write', expiresAt = null } = request
    const { item, token } = this.#draw('ak', request)
    const apiKey: ApiKey = {
      ...item,
      name: request.name ?? (item.description.trim() || item.id),
      scope,
      isOwnerOnly: request.isOwnerOnly ?? item.ownerId !== null,
      expiresAt,
      lastUsedAt: null,
    }
    return this.#change(apiKey.id, () => {
      this.#checkEnd(expiresAt)
      this.#checkOwner(request)
      checkTexts(apiKey, TEXT_CODES)
      this.#deps.quotas.check(apiKey.ownerId, 'keys')
      this.#deps.apiKeys.insert(apiKey)
      return { apiKey, token }
    })
  }

  updateApiKey({ id }: ApiKey, change: ApiKeyChange): Promise<ApiKey> {
    const { apiKeys } = this.#deps
    return this.#change(id, () => {
      const apiKey = present(apiKeys.get(id))
      const { description = apiKey.description, metadata = apiKey.metadata } = change
      const { name = apiKey.name, scope = apiKey.scope } = change
      const { isOwnerOnly = apiKey.isOwnerOnly, expiresAt = apiKey.expiresAt } = change
      checkTexts({ description, metadata }, TEXT_CODES)
      if (expiresAt !== apiKey.expiresAt) this.#checkEnd(expiresAt)
      const updated = { ...apiKey, name, description, metadata, scope, isOwnerOnly, expiresAt }
      apiKeys.replace(updated)
      return updated
    })
  }

  async deleteApiKey({ id }: ApiKey): Promise<void> {
    await this.#remove(id, () => this.#deps.apiKeys.delete(id))
  }

  #change<T>(id: string, change: () => T): Promise<T> {
    return this.#deps.database.change(change, { concludes: id })
  }

  #remove(id: string, remove: () => unknown): Promise<unknown> {
    return this.#deps.database.change(remove, { concludes: id, mayUseReserve: true })
  }

  #draw(
    prefix: 'cr' | 'ak',
    request: CredentialText & Owned,
  ): { item: Omit<Credential, 'acl' | 'granted' | 'successor'>; token: Secret } {
    const { ids, clock } = this.#deps
    const { ownerId = null, description = '', metadata = '' } = request
    const id = ids.next(prefix)
    const token = createResourceToken(id)
    const tokenHash = hashToken(token.reveal())
    const item = { id, ownerId, description, metadata, tokenHash, createdAt: clock.now() }
    return { item, token }
  }

  #checkEnd(expiresAt: number | null): void {
    if (expiresAt === null || expiresAt > this.#deps.clock.now()) return
    throw new ServiceError(
      215,
      'The field expires_at must be in the future. To end a key now, delete it.',
    )
  }

  #checkName(name: string): void {
    if (name.trim() === '')
      throw new ServiceError(4109, 'The field name is required for a bot user.')
    checkLength(name, MAX_NAME, 4110, 'name')
    if (this.#deps.botUsers.findByName(name)) {
      throw new ServiceError(4112, `A bot user named ${name} already exists.`)
    }
  }

  #checkOwner({ ownerId = null, mayBeInactive = false }: Owned): void {
    if (ownerId === null) return
    const owner = this.#deps.botUsers.get(ownerId)
    if (!owner) throw new ServiceError(634, `The owner ${ownerId} is not an existing bot user.`)
    if (owner.active || mayBeInactive) return
    throw new ServiceError(636, `The bot user ${ownerId} is inactive.`)
  }
}

/** Throws ServiceError 600 for too many rules, and for one that is not valid. */
export function checkRules(acl: readonly string[]): void {
  if (acl.length > MAX_RULES) {
    throw new ServiceError(
      600,
      `The authtoken has ${acl.length} ACL rules; at most ${MAX_RULES} are allowed.`,
    )
  }
  for (const rule of acl) {
    if (isAclRule(rule)) continue
    throw new ServiceError(
      600,
      `The ACL rule ${JSON.stringify(rule.slice(0, 64))} is not valid. Write "*", "bind:" with a domain, address or label, or "share:" with a name below .internal.`,
    )
  }
}

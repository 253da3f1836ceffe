import type { Clock } from '../../base/clock.ts'
import type { Secret } from '../../base/secret.ts'
import { hashToken } from '../../base/token.ts'
import type { ApiKey, ApiKeyScope, ApiKeyStore } from '../records/api-key-store.ts'
import type { BotUser, BotUserStore } from '../records/bot-user-store.ts'
import type { Credential, CredentialStore } from '../records/credential-store.ts'
import { createResourceToken, type IdSource } from '../records/resource-id.ts'
import { checkLength, ServiceError } from '../records/service-error.ts'
import { isAclRule } from './acl.ts'

const MAX_NAME = 255
const MAX_DESCRIPTION = 255
const MAX_METADATA = 4_096
const MAX_RULES = 100

export interface CredentialIssuerDeps {
  readonly botUsers: BotUserStore
  readonly credentials: CredentialStore
  readonly apiKeys: ApiKeyStore
  readonly ids: IdSource
  readonly clock: Clock
  /** After a credential, or its owner, was changed or deleted: what it no longer allows ends. */
  readonly onCredentialChange: (credentialId: string) => void
  /** After a bot user was deleted, and with it all that is kept for it. */
  readonly onOwnerDelete: (ownerId: string) => void
}

export interface CredentialText {
  readonly description?: string | undefined
  readonly metadata?: string | undefined
}

export interface CredentialChange extends CredentialText {
  readonly acl?: readonly string[] | undefined
}

export interface ApiKeyChange extends CredentialText {
  /** Unless given, the description, or the id of the key. */
  readonly name?: string | undefined
  readonly scope?: ApiKeyScope | undefined
  /** Unless given, a key that has an owner is good for what belongs to that owner alone. */
  readonly isOwnerOnly?: boolean | undefined
  /** Milliseconds since the epoch; null for no end. */
  readonly expiresAt?: number | null | undefined
}

interface Owned {
  readonly ownerId?: string | null | undefined
  /** Whether the owner may be switched off: what it gets is of no use until it is switched on. */
  readonly mayBeInactive?: boolean
}

/** Makes, changes and revokes bot users, authtokens and API keys. Every refusal is a ServiceError. */
export class CredentialIssuer {
  readonly #deps: CredentialIssuerDeps

  constructor(deps: CredentialIssuerDeps) {
    this.#deps = deps
  }

  createBotUser({ name, active = true }: { name: string; active?: boolean | undefined }): BotUser {
    const { botUsers, ids, clock } = this.#deps
    this.#checkName(name)
    const botUser = { id: ids.next('bot'), name, active, createdAt: clock.now() }
    botUsers.insert(botUser)
    return botUser
  }

  updateBotUser(
    botUser: BotUser,
    change: { name?: string | undefined; active?: boolean | undefined },
  ): BotUser {
    const { name = botUser.name, active = botUser.active } = change
    if (name !== botUser.name) this.#checkName(name)
    const updated = { ...botUser, name, active }
    this.#deps.botUsers.replace(updated)
    if (active !== botUser.active) this.#announce(this.#deps.credentials.idsOfOwner(botUser.id))
    return updated
  }

  /** Its authtokens, API keys and cloud endpoints go with it; its domains are the gateway's then. */
  deleteBotUser({ id }: BotUser): void {
    const { botUsers, credentials, onOwnerDelete } = this.#deps
    const owned = credentials.idsOfOwner(id)
    botUsers.delete(id)
    this.#announce(owned)
    onOwnerDelete(id)
  }

  /** The token stands in this answer and nowhere else. */
  createCredential(request: CredentialChange & Owned): {
    credential: Credential
    authtoken: Secret
  } {
    const { acl = [] } = request
    checkRules(acl)
    const { item, token } = this.#draw('cr', request)
    const credential = { ...item, acl }
    this.#deps.credentials.insert(credential)
    return { credential, authtoken: token }
  }

  updateCredential(credential: Credential, change: CredentialChange): Credential {
    const { description = credential.description, metadata = credential.metadata } = change
    const { acl = credential.acl } = change
    checkTexts({ description, metadata })
    checkRules(acl)
    const updated = { ...credential, description, metadata, acl }
    this.#deps.credentials.replace(updated)
    this.#announce([credential.id])
    return updated
  }

  deleteCredential({ id }: Credential): void {
    this.#deps.credentials.delete(id)
    this.#announce([id])
  }

  /** The key stands in this answer and nowhere else. */
  createApiKey(request: ApiKeyChange & Owned): { apiKey: ApiKey; token: Secret } {
    const { scope = 'write', expiresAt = null } = request
    this.#checkEnd(expiresAt)
    const { item, token } = this.#draw('ak', request)
    const apiKey: ApiKey = {
      ...item,
      name: request.name ?? (item.description.trim() || item.id),
      scope,
      isOwnerOnly: request.isOwnerOnly ?? item.ownerId !== null,
      expiresAt,
      lastUsedAt: null,
    }
    this.#deps.apiKeys.insert(apiKey)
    return { apiKey, token }
  }

  updateApiKey(apiKey: ApiKey, change: ApiKeyChange): ApiKey {
    const { description = apiKey.description, metadata = apiKey.metadata } = change
    const { name = apiKey.name, scope = apiKey.scope } = change
    const { isOwnerOnly = apiKey.isOwnerOnly, expiresAt = apiKey.expiresAt } = change
    checkTexts({ description, metadata })
    if (expiresAt !== apiKey.expiresAt) this.#checkEnd(expiresAt)
    const updated = { ...apiKey, name, description, metadata, scope, isOwnerOnly, expiresAt }
    this.#deps.apiKeys.replace(updated)
    return updated
  }

  deleteApiKey({ id }: ApiKey): void {
    this.#deps.apiKeys.delete(id)
  }

  #draw(
    prefix: 'cr' | 'ak',
    request: CredentialText & Owned,
  ): { item: Omit<Credential, 'acl'>; token: Secret } {
    const { ids, clock } = this.#deps
    const { ownerId = null, mayBeInactive = false, description = '', metadata = '' } = request
    this.#checkOwner(ownerId, mayBeInactive)
    checkTexts({ description, metadata })
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
      'The field expires_at has to be later than now: to end a key at once, delete it.',
    )
  }

  #announce(credentialIds: readonly string[]): void {
    for (const id of credentialIds) this.#deps.onCredentialChange(id)
  }

  #checkName(name: string): void {
    if (name.trim() === '') throw new ServiceError(4109, 'A bot user needs a name.')
    checkLength(name, MAX_NAME, 4110, 'name')
    if (this.#deps.botUsers.findByName(name)) {
      throw new ServiceError(4112, `There is a bot user named ${name} already.`)
    }
  }

  #checkOwner(ownerId: string | null, mayBeInactive: boolean): void {
    if (ownerId === null) return
    const owner = this.#deps.botUsers.get(ownerId)
    if (!owner) throw new ServiceError(634, `There is no bot user ${ownerId} to own this.`)
    if (owner.active || mayBeInactive) return
    throw new ServiceError(636, `The bot user ${ownerId} is not active.`)
  }
}

function checkTexts({ description, metadata }: { description: string; metadata: string }): void {
  checkLength(description, MAX_DESCRIPTION, 604, 'description')
  checkLength(metadata, MAX_METADATA, 605, 'metadata')
}

function checkRules(acl: readonly string[]): void {
  if (acl.length > MAX_RULES) {
    throw new ServiceError(600, `There are ${acl.length} ACL rules; at most ${MAX_RULES} will do.`)
  }
  for (const rule of acl) {
    if (isAclRule(rule)) continue
    throw new ServiceError(
      600,
      `The ACL rule ${JSON.stringify(rule.slice(0, 64))} is not one: write "*", "bind:" and a domain, an address or a label, or "share:" and a name below .internal.`,
    )
  }
}

import { hashToken, matchesHash } from '../../base/token.ts'
import type { ApiKey, ApiKeyStore } from '../records/api-key-store.ts'
import type { BotUserStore } from '../records/bot-user-store.ts'
import type { Credential, CredentialStore } from '../records/credential-store.ts'
import { isInternal } from '../records/domain-name.ts'
import type { ReservedDomainStore } from '../records/reserved-domain-store.ts'
import { idOfToken, isResourceId } from '../records/resource-id.ts'
import { ServiceError } from '../records/service-error.ts'
import { Acl } from './acl.ts'

/** Compared with when there is no such credential, so that the answer takes as long. */
const NO_HASH = hashToken('')

export interface AuthorityDeps {
  readonly credentials: CredentialStore
  readonly botUsers: BotUserStore
  readonly domains: ReservedDomainStore
  readonly apiKeys: ApiKeyStore
}

/** Decides who somebody is, and which names an agent may bind. Every answer is read fresh. */
export class Authority {
  readonly #credentials: CredentialStore
  readonly #botUsers: BotUserStore
  readonly #domains: ReservedDomainStore
  readonly #apiKeys: ApiKeyStore

  constructor({ credentials, botUsers, domains, apiKeys }: AuthorityDeps) {
    this.#apiKeys = apiKeys
    this.#credentials = credentials
    this.#botUsers = botUsers
    this.#domains = domains
  }

  /** The credential of an authtoken. Throws ServiceError 4018, 105, 107 or 636. */
  authenticate(authtoken: string): Credential {
    if (authtoken === '') throw new ServiceError(4018, 'An agent session needs an authtoken.')
    const id = idOfToken(authtoken, 'cr')
    if (id === undefined) {
      throw new ServiceError(
        105,
        'The authtoken has not the form of one: check that it was copied whole.',
      )
    }
    const credential = this.#credentials.get(id)
    if (!matchesHash(authtoken, credential?.tokenHash ?? NO_HASH) || !credential) {
      throw new ServiceError(
        107,
        'The authtoken is not valid here: it was deleted, or it belongs to another service.',
      )
    }
    this.#checkOwner(credential)
    return credential
  }

  /** The API key of a token. Throws ServiceError 202, 203, 206, 208 or 636. */
  authenticateApiKey(token: string): ApiKey {
    const id = idOfToken(token, 'ak')
    if (id === undefined) {
      throw isResourceId(token, 'ak')
        ? new ServiceError(208, 'This is the id of an API key, not the key itself.')
        : new ServiceError(202, 'The authorization has not the form Bearer <API key>.')
    }
    const apiKey = this.#apiKeys.get(id)
    if (matchesHash(token, apiKey?.tokenHash ?? NO_HASH) && apiKey) {
      this.#checkOwner(apiKey)
      return apiKey
    }
    const credential = this.#credentials.get(idOfToken(token, 'cr') ?? '')
    throw credential && matchesHash(token, credential.tokenHash)
      ? new ServiceError(206, 'This is an authtoken of an agent, not an API key.')
      : new ServiceError(203, 'The API key is not valid here.')
  }

  /** Checks that an API key is still good for anything. Throws ServiceError 203 or 636. */
  checkApiKey(keyId: string): void {
    const apiKey = this.#apiKeys.get(keyId)
    if (!apiKey) throw new ServiceError(203, 'The API key is not valid here.')
    this.#checkOwner(apiKey)
  }

  /** Checks that a credential is still good for anything. Throws ServiceError 300 or 636. */
  checkCredential(credentialId: string): void {
    this.#current(credentialId)
  }

  /**
   * Checks that a credential may bind an endpoint on a valid `host`. Internal names belong to all
   * who may bind them; the others have to be reserved.
   * Throws ServiceError 300, 636, 316, 318, 319 or 321.
   */
  checkBind(credentialId: string, host: string): void {
    // The rules come first: a device learns nothing about names that are not its own.
    if (!Acl.of(this.#current(credentialId).acl).allows(host)) {
      throw new ServiceError(
        316,
        `The authtoken ${credentialId} may not bind ${host}: its ACL rules allow other names.`,
      )
    }
    this.checkReserved(host)
  }

  /** Checks that a valid host is reserved, or internal. Throws ServiceError 318, 319 or 321. */
  checkReserved(host: string): void {
    if (isInternal(host)) return
    const covering = this.#domains.findCovering(host)
    if (covering?.domain === host) return
    if (!host.startsWith('*.')) {
      if (covering) return
      throw new ServiceError(319, `The domain ${host} is not reserved: reserve it first.`)
    }
    throw covering
      ? new ServiceError(
          321,
          `The wildcard ${host} has to be reserved itself; ${covering.domain} above it does not do.`,
        )
      : new ServiceError(318, `The wildcard domain ${host} is not reserved: reserve it first.`)
  }

  /** The wildcard that a credential draws names from when it asks for none. Throws 300, 636, 15013. */
  wildcardFor(credentialId: string): string {
    const acl = Acl.of(this.#current(credentialId).acl)
    const candidates = [...acl.hosts(), ...this.#domains.all().map(({ domain }) => domain)]
    const wildcard = candidates.find(
      (host) => host.startsWith('*.') && acl.allows(host) && this.#domains.findCovering(host),
    )
    if (wildcard) return wildcard
    throw new ServiceError(
      15013,
      'There is no reserved wildcard domain to draw a name from: ask for a domain by name.',
    )
  }

  #current(credentialId: string): Credential {
    const credential = this.#credentials.get(credentialId)
    if (!credential) throw new ServiceError(300, `The authtoken ${credentialId} has been revoked.`)
    this.#checkOwner(credential)
    return credential
  }

  #checkOwner({ ownerId }: Pick<Credential, 'ownerId'>): void {
    if (ownerId === null || this.#botUsers.get(ownerId)?.active) return
    throw new ServiceError(636, `The owner, ${ownerId}, is not active.`)
  }
}

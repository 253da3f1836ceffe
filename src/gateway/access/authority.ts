import { AppError } from '../../base/app-error.ts'
import { BoundedCache } from '../../base/bounded-cache.ts'
import type { Clock } from '../../base/clock.ts'
import { hashToken, matchesHash } from '../../base/secret.ts'
import type { Database } from '../../store/database.ts'
import type { ApiKey, ApiKeyStore } from '../records/api-key-store.ts'
import type { BotUserStore } from '../records/bot-user-store.ts'
import type { Credential, CredentialStore } from '../records/credential-store.ts'
import { isInternal } from '../records/domain-name.ts'
import type { EndpointAddress, EndpointProtocol } from '../records/endpoint-protocol.ts'
import type { ReservedAddrStore } from '../records/reserved-addr-store.ts'
import type { ReservedDomainStore } from '../records/reserved-domain-store.ts'
import { idOfToken, isResourceId } from '../records/resource-id.ts'
import { ServiceError } from '../records/service-error.ts'
import { Acl } from './acl.ts'
import { NameOwners, type NameUse } from './name-rules.ts'

/**
 * Calls `listener` with the id of each credential that was changed or deleted, itself or with its owner,
 * whoever did it: what it no longer allows has to end.
 */
export function watchCredentials(
  { credentials, botUsers }: { credentials: CredentialStore; botUsers: BotUserStore },
  listener: (credentialId: string) => void,
): void {
  credentials.onChange(({ before }) => before && listener(before.id))
  botUsers.onChange(({ before, after }) => {
    if (!before || !after || before.active === after.active) return
    for (const id of credentials.idsOfOwner(after.id)) listener(id)
  })
}

/** Compared with when there is no such credential, so that the answer takes as long. */
const NO_HASH = hashToken('')

/** Lists of rules that are kept compiled. */
const MAX_ACLS = 64

/** The time of last use is true to this much, so that using a key is not writing. */
const USE_STEP_MS = 60_000

export interface AuthorityDeps {
  readonly database: Pick<Database, 'change'>
  readonly credentials: CredentialStore
  readonly botUsers: BotUserStore
  readonly domains: ReservedDomainStore
  readonly reservedAddrs: ReservedAddrStore
  readonly apiKeys: ApiKeyStore
  /** Names and wildcards of the gateway itself, such as the targets of DNS records. */
  readonly ownNames?: readonly string[] | undefined
  readonly clock: Clock
}

/** What a credential has leave for on a host. */
export interface BindRight {
  /** Whose endpoint it is going to be. */
  readonly ownerId: string | null
  /** Whether policies of other accounts can reach it. */
  readonly isShared: boolean
}

/** A name, and what it was bound with. */
export interface BoundName extends EndpointAddress {
  readonly credentialId: string
  readonly ownerId: string | null
  /** Set where the gateway has chosen the name for that credential. */
  readonly drawn?: object | undefined
}

/** Decides who somebody is, and which names an agent may bind. Every answer is read fresh. */
export class Authority {
  readonly owners: NameOwners
  readonly #credentials: CredentialStore
  readonly #botUsers: BotUserStore
  readonly #domains: ReservedDomainStore
  readonly #reservedAddrs: ReservedAddrStore
  readonly #apiKeys: ApiKeyStore
  readonly #database: Pick<Database, 'change'>
  /** Keys whose use is being noted. */
  readonly #noting = new Set<string>()
  readonly #clock: Clock
  /** By their rules: a device binds a thousand names with the same ones. */
  readonly #acls = new BoundedCache((rules) => Acl.of(JSON.parse(rules)), MAX_ACLS)

  constructor(deps: AuthorityDeps) {
    this.#database = deps.database
    const { credentials, botUsers, domains, reservedAddrs, apiKeys, clock } = deps
    this.#reservedAddrs = reservedAddrs
    this.#clock = clock
    this.#apiKeys = apiKeys
    this.#credentials = credentials
    this.#botUsers = botUsers
    this.#domains = domains
    this.owners = new NameOwners(domains, deps.ownNames)
  }

  /** The credential of an authtoken. Throws ServiceError 4018, 105, 107 or 636. */
  authenticate(authtoken: string): Credential {
    if (authtoken === '') throw new ServiceError(4018, 'The agent sent no authtoken.')
    const id = idOfToken(authtoken, 'cr')
    if (id === undefined) {
      throw new ServiceError(
        105,
        'The authtoken is malformed. Check that it was copied completely.',
      )
    }
    const credential = this.#credentials.get(id)
    if (!matchesHash(authtoken, credential?.tokenHash ?? NO_HASH) || !credential) {
      throw new ServiceError(
        107,
        'The authtoken is not valid here. It was deleted, or it belongs to another service.',
      )
    }
    this.#checkOwner(credential)
    return credential
  }

  /** The account that an authtoken is of, whether or not it is good for anything; null when unknown. */
  accountOf(authtoken: string): string | null {
    const credential = this.#credentials.get(idOfToken(authtoken, 'cr') ?? '')
    const isOne = matchesHash(authtoken, credential?.tokenHash ?? NO_HASH)
    return (isOne && credential?.ownerId) || null
  }

  /**
   * The API key of a token. Throws ServiceError 202, 203, 206, 208 or 636, and AppError
   * `unauthenticated` for one that has ended.
   */
  authenticateApiKey(token: string): ApiKey {
    const id = idOfToken(token, 'ak')
    if (id === undefined) {
      throw isResourceId(token, 'ak')
        ? new ServiceError(208, 'This is the id of an API key, not the key itself.')
        : new ServiceError(202, 'The authorization header must have the form Bearer <API key>.')
    }
    const apiKey = this.#apiKeys.get(id)
    if (matchesHash(token, apiKey?.tokenHash ?? NO_HASH) && apiKey) {
      this.#checkKey(apiKey)
      return apiKey
    }
    const credential = this.#credentials.get(idOfToken(token, 'cr') ?? '')
    throw credential && matchesHash(token, credential.tokenHash)
      ? new ServiceError(206, 'This is an authtoken of an agent, not an API key.')
      : new ServiceError(203, 'The API key is not valid here.')
  }

  /**
   * An API key that is still good for something. Throws ServiceError 203 or 636, and AppError
   * `unauthenticated` for one that has ended.
   */
  currentApiKey(keyId: string): ApiKey {
    const apiKey = this.#apiKeys.get(keyId)
    if (!apiKey) throw new ServiceError(203, 'The API key is not valid here.')
    this.#checkKey(apiKey)
    return apiKey
  }

  /**
   * Notes that an API key was used, once a minute. Nobody waits for it, and a storage that cannot be
   * written keeps nobody out.
   */
  noteUse({ id, lastUsedAt }: ApiKey): void {
    const now = this.#clock.now()
    // The clock of a device may have been set back.
    if (lastUsedAt !== null && Math.abs(now - lastUsedAt) < USE_STEP_MS) return
    if (this.#noting.has(id)) return
    this.#noting.add(id)
    // Backups are for what people change: this alone is not worth one.
    void this.#database
      .change(() => this.#apiKeys.noteUse(id, now), { withoutBackup: true })
      .catch(() => {})
      .finally(() => this.#noting.delete(id))
  }

  /** Checks that a credential is still good for anything. Throws ServiceError 300 or 636. */
  checkCredential(credentialId: string): void {
    this.#current(credentialId)
  }

  /**
   * Checks that a credential may bind an endpoint on a valid `host`: in a domain of its owner, in
   * one of the gateway's own when the gateway's owner has set a rule for that, or below `.internal`, where
   * each account has names of its own. A name that the gateway has chosen for the credential (`isDrawn`)
   * needs no rule. Throws ServiceError 300, 636, 316, 318, 319 or 321.
   */
  checkBind(
    credentialId: string,
    host: string,
    protocol: EndpointProtocol = 'https',
    isDrawn = false,
  ): BindRight {
    const credential = this.#current(credentialId)
    const { ownerId } = credential
    const acl = this.#aclOf(credential.acl)
    // The rules come first: a device learns nothing about names that are not its own.
    const isInternalAddress = protocol === 'tcp' && isInternal(host)
    const isAddress = protocol === 'tcp' && !isInternalAddress
    const name = isInternalAddress ? host.replace(/:\d+$/, '') : host
    const isDrawnName = isDrawn && !isAddress && this.#drawsFrom(credential, host) !== undefined
    // Behind an internal name nobody listens: a rule for the name is one for its ports.
    const isAllowed = protocol === 'tcp' && acl.allowsAddress(host)
    if (!isDrawnName && !isAllowed && (isAddress || !acl.allows(name))) {
      throw new ServiceError(
        316,
        `The ACL rules of the authtoken ${credentialId} do not allow ${host}.`,
      )
    }
    if (isAddress) {
      const isGranted =
        credential.granted.length > 0 && this.#grantsOf(credential).allowsAddress(host)
      this.#checkAddress(host, { ownerId, isGranted })
      return { ownerId, isShared: false }
    }
    const isGranted = isDrawnName || this.#isGranted(credential, host)
    this.checkReserved(host, { ownerId, isGranted })
    return { ownerId, isShared: acl.shares(name) }
  }

  /** Whether a credential may still bind a host that it has bound before, for the same account. */
  mayBind({ credentialId, host, protocol, ownerId, drawn }: BoundName): boolean {
    try {
      const isDrawn = drawn !== undefined
      return this.checkBind(credentialId, host, protocol, isDrawn).ownerId === ownerId
    } catch (error) {
      if (error instanceof ServiceError) return false
      throw error
    }
  }

  /** Which TCP addresses the rules of a credential allow. Throws ServiceError 300 or 636. */
  addressesOf(credentialId: string): (address: string) => boolean {
    const acl = this.#aclOf(this.#current(credentialId).acl)
    return (address) => acl.allowsAddress(address)
  }

  /** The account that an address is reserved for, internal ones aside; null also when it is for nobody. */
  accountFor({ protocol, host }: EndpointAddress): string | null {
    const reserved =
      protocol === 'tcp' ? this.#reservedAddrs.find(host) : this.owners.reservationOf(host)
    return reserved?.ownerId ?? null
  }

  /** Checks the address of an endpoint that no credential binds; see `checkReserved`. */
  checkUse({ protocol, host }: EndpointAddress, use: NameUse): void {
    if (protocol === 'tcp' && !isInternal(host)) this.#checkAddress(host, use)
    else this.checkReserved(host, use)
  }

  /**
   * Checks that a valid host is internal, or reserved for who wants to use it. What is reserved
   * for another is answered as what is not reserved at all. Throws ServiceError 318, 319 or 321.
   */
  checkReserved(host: string, use: NameUse): void {
    const problem = this.owners.useProblem(host, use)
    if (problem === undefined) return
    switch (problem) {
      case 'not-reserved':
        throw new ServiceError(319, `The domain ${host} is not reserved ${forWhom(use)}.`)
      case 'wildcard-not-reserved':
        throw new ServiceError(318, `The wildcard domain ${host} is not reserved ${forWhom(use)}.`)
      case 'wildcard-above': {
        const above = this.owners.reservationOf(host)?.domain
        throw new ServiceError(
          321,
          `The wildcard ${host} must be reserved separately. ${above} does not cover it.`,
        )
      }
      case 'gateway-name':
        throw new ServiceError(
          319,
          `The name ${host} belongs to the gateway itself. Use another name, or ask the gateway's owner to reserve exactly this one for you.`,
        )
    }
  }

  /** Throws ServiceError 319 for a TCP address that is reserved for somebody else. */
  #checkAddress(address: string, { ownerId, isGranted }: NameUse): void {
    const reserved = this.#reservedAddrs.find(address)
    if (!reserved || reserved.ownerId === ownerId) return
    if (isGranted && reserved.ownerId === null) return
    throw new ServiceError(319, `The address ${address} is reserved for another account.`)
  }

  /** Whether the gateway's owner has given a name of its own domains to a credential. */
  #isGranted(credential: Credential, host: string): boolean {
    if (credential.granted.length === 0) return false
    const hosts = this.#grantsOf(credential).hostsOfRulesFor(host)
    return hosts.some((ruleHost) => this.owners.isGrant(ruleHost, host))
  }

  /**
   * The wildcard from which a credential may be given a host: one of its owner, or one of the gateway's
   * owner in which that owner has given the credential something.
   */
  #drawsFrom(credential: Credential, host: string): string | undefined {
    const covering = this.owners.reservationOf(host)
    if (!covering?.domain.startsWith('*.')) return undefined
    const { domain, ownerId } = covering
    if (ownerId === credential.ownerId) return domain
    if (ownerId !== null) return undefined
    const grants = this.#grantsOf(credential)
    const isGiven =
      grants.hasAll || grants.hosts().some((it) => this.owners.reservationOf(it)?.domain === domain)
    return credential.granted.length > 0 && isGiven ? domain : undefined
  }

  /** Those of its rules that the gateway's owner has set. */
  #grantsOf({ acl, granted }: Credential): Acl {
    return this.#aclOf(granted.filter((rule) => acl.includes(rule)))
  }

  /**
   * The wildcard that a credential draws names from when it asks for none: one that its rules allow, else
   * one that a name of its rules lies below. Throws 300, 636, 15013.
   */
  wildcardFor(credentialId: string): string {
    const credential = this.#current(credentialId)
    const acl = this.#aclOf(credential.acl)
    const candidates = [...acl.hosts(), ...this.#domains.all().map(({ domain }) => domain)]
    const allowed = candidates.find(
      (host) => host.startsWith('*.') && acl.allows(host) && this.#drawsFrom(credential, host),
    )
    const wildcard =
      allowed ?? acl.hosts().flatMap((host) => this.#drawsFrom(credential, host) ?? [])[0]
    if (wildcard) return wildcard
    throw new ServiceError(
      15013,
      'No wildcard domain is reserved for automatic names. Request a domain by name.',
    )
  }

  #aclOf(rules: readonly string[]): Acl {
    return this.#acls.get(JSON.stringify(rules))
  }

  #current(credentialId: string): Credential {
    const credential = this.#credentials.get(credentialId)
    if (!credential) throw new ServiceError(300, `The authtoken ${credentialId} has been revoked.`)
    this.#checkOwner(credential)
    return credential
  }

  #checkKey(apiKey: ApiKey): void {
    this.#checkOwner(apiKey)
    const { name, expiresAt } = apiKey
    if (expiresAt === null || this.#clock.now() < expiresAt) return
    throw new AppError(
      'unauthenticated',
      `The API key "${name}" expired on ${new Date(expiresAt).toISOString()}. Use another key.`,
      { serviceCode: 'ERR_GATEWAY_KEY_EXPIRED' },
    )
  }

  #checkOwner({ ownerId }: Pick<Credential, 'ownerId'>): void {
    if (ownerId === null || this.#botUsers.get(ownerId)?.active) return
    throw new ServiceError(636, `The owner ${ownerId} is inactive.`)
  }
}

function forWhom({ ownerId, isGranted }: NameUse): string {
  if (ownerId === null) return 'for the gateway itself. Reserve it first'
  return isGranted
    ? `for ${ownerId} or the gateway itself. Reserve it first`
    : `for ${ownerId}. Reserve it for this owner, or add an ACL rule to the authtoken`
}
